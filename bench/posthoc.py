"""What a method costs after sampling: SGPU against SE, DSE and KLE, and those against lm-polygraph's path.

Run it with `python -m bench posthoc`. The entailment classifier has the size of DeBERTa-large and random
weights, which cost what trained ones do; its tokens are bytes. lm-polygraph is compared where `make parity`
has put it.
"""

from __future__ import annotations

import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification

from bench.constructed import constructed_spectra
from bench.encoding import ENCODER, answer_sets
from bench.peers import FOLDER, peer
from bench.random_deberta import LARGE, write_deberta
from sgpu.encoders import load_encoder
from sgpu.encoders.spectra import spectra_of
from sgpu.entailment.deberta import DebertaBackend
from sgpu.entailment.rows import AnswerSet, relations
from sgpu.gp import GPClassifier
from sgpu.methods.clustering import entailment_clusters
from sgpu.methods.discrete_semantic_entropy import discrete_semantic_entropy
from sgpu.methods.kernel_language_entropy import kernel_language_entropy
from sgpu.methods.semantic_entropy import semantic_entropy

INPUTS = 100  # of SGPU; what the classifier costs is measured on fewer and scaled to as many
CLASSIFIED = 2
CHEAPER, FASTER = 50.0, 3.0


def run() -> list[dict[str, Any]]:
    """Seconds for 100 inputs of 20 answers."""
    sets = answer_sets()[:INPUTS]
    few = sets[:CLASSIFIED]
    with tempfile.TemporaryDirectory() as folder:
        write_deberta(Path(folder), size=LARGE, max_length=512)
        dtype = DebertaBackend(folder, device="cpu").dtype
        ours = _seconds(lambda: _entailment_methods(few, Path(folder)), few)
        theirs = _seconds(lambda: _peer(few, Path(folder)), few) if FOLDER.is_dir() else None
    sgpu = _seconds(lambda: _sgpu(sets), sets)
    distinct = sum(len(set(answers)) for answers in few)
    pairs = sum(len(set(a)) * (len(set(a)) - 1) for a in few)
    note = f"{len(few)} inputs of {distinct / len(few):.0f} different answers, {pairs} pairs"
    compared = f"{note}; ours in {dtype}, theirs in float32"
    absent = f"{note}; no lm-polygraph here, `make parity` gets it"
    return [
        _row("post-hoc: SGPU over SE, DSE and KLE", sgpu, ours, CHEAPER, f"{note}; SGPU on {len(sets)}"),
        _row(
            "post-hoc: SE, DSE and KLE over lm-polygraph's",
            ours,
            theirs,
            FASTER if theirs else None,
            compared if theirs else absent,
        ),
    ]


def _row(name: str, ours: float, baseline: float | None, bound: float | None, note: str) -> dict[str, Any]:
    ratio = baseline / ours if baseline else None
    return {
        "name": name,
        "ours": ours,
        "baseline": baseline,
        "ratio": ratio,
        "bound": bound,
        "unit": "s for 100 inputs",
        "note": note,
    }


def _seconds(prepare: Callable[[], Callable[[], object]], sets: list[list[str]]) -> float:
    """Of the work that ``prepare`` returns, scaled to 100 inputs; models are loaded before."""
    work = prepare()
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) / len(sets) * 100


def _sgpu(sets: list[list[str]]) -> Callable[[], object]:
    encoder = load_encoder(ENCODER, device="cpu")
    data = constructed_spectra(1000, seed=0)
    classifier = GPClassifier(seed=0).fit(data.spectra, data.label)
    encoder.encode(sets[0])
    classifier.predict(data.spectra[:2])
    return lambda: classifier.predict(spectra_of(sets, encoder))


def _entailment_methods(sets: list[list[str]], folder: Path) -> Callable[[], object]:
    backend = DebertaBackend(str(folder), device="cpu", prefix_question=False)
    log_likelihoods = np.log(np.random.default_rng(0).random((len(sets), len(sets[0]))))

    def work() -> list[np.ndarray]:
        related = np.stack(relations([AnswerSet("", tuple(answers)) for answers in sets], backend))
        entail, contradict = related[..., 0], related[..., 2]
        clusters = np.stack([entailment_clusters(e, c) for e, c in zip(entail, contradict, strict=True)])
        return [
            semantic_entropy(log_likelihoods, clusters),
            discrete_semantic_entropy(clusters),
            kernel_language_entropy(entail, contradict),
        ]

    return work


def _peer(sets: list[list[str]], folder: Path) -> Callable[[], object]:
    """Their calculator of the matrices that their SE and KLE need, in float32 and batches of ten."""
    module = peer("lm_polygraph.stat_calculators.semantic_matrix")
    entropy = peer("lm_polygraph.estimators.kernel_language_entropy")
    model = types.SimpleNamespace(
        deberta=AutoModelForSequenceClassification.from_pretrained(folder).eval(),
        deberta_tokenizer=DebertaBackend(str(folder), device="cpu")._tokenizer,
        batch_size=10,
        device=torch.device("cpu"),
    )
    calculator = module.SemanticMatrixCalculator(model)

    def work() -> object:
        matrices = calculator({"sample_texts": sets}, [""] * len(sets), None)
        return entropy.KernelLanguageEntropy()(matrices)

    return work


if __name__ == "__main__":
    for row in run():
        print(row)
