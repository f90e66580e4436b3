"""One classifier for any number of answers against one fitted to each: `python -m bench.answer_counts [RUN]`.

All are trained on stored sets of 20 answers and tested on sets of 2 to 30. ``RUN`` is the folder of a study
whose response sets are used in the place of constructed ones.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import log_loss, roc_auc_score

from bench.constructed import CLASS_NAMES, ConstructedSets, constructed_sets
from sgpu.evaluation.calibration import ece
from sgpu.gp import GPClassifier
from sgpu.gp.representation import size_free, sized_rows
from sgpu.spectrum import gram

Floats = NDArray[np.float64]
STORED, SIZES = 20, (2, 3, 5, 8, 10, 15)
TESTED = (2, 3, 5, 8, 10, 15, 20, 30)
# Numbers between two heads, for which the smaller one reads a part of the answers.
BETWEEN = (4, 7, 12, 25)
TRAINING, HELD_OUT, SEEDS = 600, 1500, (0, 1, 2)
HEADS, ANY, PADDED = "one for each", "size-free", "zero-padded"
# The most that the mean log loss of the size-free one may be above that of the heads.
LOG_LOSS_BOUND = 0.003


class Score(NamedTuple):
    """Quality on the test sets of one size."""

    auroc: float
    ece: float
    log_loss: float


def padded(spectra: Floats, n: int) -> Floats:
    """(Q, n): filled with zeros, or cut."""
    wide = np.zeros((len(spectra), n))
    wide[:, : spectra.shape[1]] = spectra[:, :n]
    return wide


def compare(
    train: ConstructedSets, test: ConstructedSets, tested: Sequence[int], stored: int = STORED, seed: int = 0
) -> dict[tuple[str, int], Score]:
    """Every way on test sets of every size, trained on the first ``stored`` answers of the training sets."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(stored)
    by_size = {n: train.spectra(order[:n]) for n in (*(n for n in SIZES if n < stored), stored)}
    heads = {n: GPClassifier().fit(spectra, train.label) for n, spectra in by_size.items()}
    rows = sized_rows(by_size, seed, 30_000)
    any_size = GPClassifier().fit(rows.x, train.label[rows.question], None, rows.size)
    found = {}
    for n in tested:
        spectra, head = test.spectra(n), max(size for size in heads if size <= n)
        part = spectra if head == n else test.spectra(rng.permutation(n)[:head])
        forecasts = {
            HEADS: heads[head].predict(part).probability,
            ANY: any_size.predict(size_free(spectra)).probability,
            PADDED: heads[stored].predict(padded(spectra, stored)).probability,
        }
        for name, p in forecasts.items():
            y = test.label
            found[name, n] = Score(float(roc_auc_score(y, p)), ece(p, y), float(log_loss(y, p)))
    return found


def constructed() -> Iterator[tuple[str, dict[tuple[str, int], Score]]]:
    """Both kinds of constructed data, each for several seeds."""
    kinds: dict[str, Mapping[str, float]] = {"sentences": {}, "class names": CLASS_NAMES}
    for name, geometry in kinds.items():
        for seed in SEEDS:
            sets = _sets(TRAINING + HELD_OUT, seed, geometry)
            train, test = (ConstructedSets(*(part[where] for part in sets)) for where in _split(TRAINING))
            yield name, compare(train, test, sorted({*TESTED, *BETWEEN}), seed=seed)


def _sets(questions: int, seed: int, geometry: Mapping[str, Any]) -> ConstructedSets:
    # In blocks: the directions of the embeddings of one question take 70 kB.
    parts = [
        constructed_sets(300, answers=max(TESTED), seed=1000 * seed + start, **geometry)
        for start in range(0, questions, 300)
    ]
    return ConstructedSets(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _split(training: int) -> tuple[slice, slice]:
    return slice(None, training), slice(training, None)


def of_run(folder: Path, repeats: int = 10) -> Iterator[tuple[str, dict[tuple[str, int], Score]]]:
    """A study's stored response sets, split at random several times; trained on all answers and on 10."""
    import json

    import polars as pl

    from sgpu.encoders import load_encoder

    study = json.loads((folder / "run.json").read_text())["study"]
    encoder = load_encoder(study["encoder"]["name"])
    tables = {
        name: pl.read_delta(str(folder / "tables" / name)).select("question_id", "model", "dataset", column)
        for name, column in (("responses", "answers"), ("labels", "label"))
    }
    both = tables["responses"].join(tables["labels"], on=["question_id", "model", "dataset"]).drop_nulls()
    for (model, dataset), cell in both.group_by(["model", "dataset"], maintain_order=True):
        answers, n = cell["answers"].to_list(), int(cell["answers"].list.len().min())  # type: ignore[arg-type]
        vectors = encoder.encode([text or "" for row in answers for text in row[:n]])
        sets = ConstructedSets(
            gram(np.asarray(vectors).reshape(len(answers), n, -1)), cell["label"].to_numpy().astype(np.int64)
        )
        for stored in (n, 10):
            for seed in range(repeats):
                order = np.random.default_rng(seed).permutation(len(answers))
                halves = _split(round(0.6 * len(answers)))
                train, test = (ConstructedSets(*(part[order[half]] for part in sets)) for half in halves)
                tested = [size for size in sorted({*TESTED, *BETWEEN}) if size <= n]
                yield f"{model}/{dataset}, {stored} stored", compare(train, test, tested, stored, seed)


def means(
    results: Iterator[tuple[str, dict[tuple[str, int], Score]]],
) -> dict[str, dict[tuple[str, int], Score]]:
    """The mean over the repeats of each data set."""
    by_name: dict[str, list[dict[tuple[str, int], Score]]] = {}
    for name, found in results:
        by_name.setdefault(name, []).append(found)
    return {
        name: {key: Score(*np.mean([found[key] for found in several], axis=0)) for key in several[0]}
        for name, several in by_name.items()
    }


def run() -> list[dict[str, Any]]:
    """For each kind of constructed data the log loss at numbers of answers that have a head, and others."""
    rows = []
    for name, found in means(constructed()).items():
        for what, sizes in (("2 to 30 answers", TESTED), ("numbers between heads", BETWEEN)):
            loss = {
                way: float(np.mean([found[way, n].log_loss for n in sizes])) for way in (HEADS, ANY, PADDED)
            }
            used = max((loss[ANY] - loss[HEADS]) / LOG_LOSS_BOUND, 1e-3)
            rows.append(
                {
                    "name": f"any number of answers, {name}, {what}",
                    "ours": loss[ANY],
                    "baseline": loss[HEADS],
                    "ratio": 1 / used,
                    "bound": 1.0,
                    "unit": "log loss, mean over the numbers",
                    "note": f"one size-free classifier against one for each number; zero-padded "
                    f"{loss[PADDED]:.3f}; ratio: bound {LOG_LOSS_BOUND} / what is used of it",
                }
            )
    return rows


def table(found: Mapping[tuple[str, int], Score]) -> str:
    """Scores by way and number of answers, as text."""
    sizes = sorted({n for _, n in found})
    lines = [" " * 22 + "".join(f"{n:>8}" for n in sizes)]
    for measure in Score._fields:
        for way in (HEADS, ANY, PADDED):
            values = "".join(f"{getattr(found[way, n], measure):8.4f}" for n in sizes)
            lines.append(f"{measure:9}{way:13}{values}")
    return "\n".join(lines)


if __name__ == "__main__":
    for label, scores in means(of_run(Path(sys.argv[1])) if len(sys.argv) > 1 else constructed()).items():
        print(f"{label}\n{table(scores)}\n")
