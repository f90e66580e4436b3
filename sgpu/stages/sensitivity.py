"""Sensitivity stage: what changes with the kernel, the encoder, the answers, the training rows or the judge.

Nothing is sampled again: everything is made of the answers that are stored.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from sgpu.gp.classifier import GPClassifier
from sgpu.gp.heads import SIZE_FREE
from sgpu.gp.kernels import KERNELS
from sgpu.gp.persistence import write_training_rows
from sgpu.gp.representation import size_free
from sgpu.methods.spectral import largest_eigenvalue, spectral_entropy
from sgpu.provenance import code_version
from sgpu.runtime.run import Run, as_settings
from sgpu.runtime.stage import Outcome
from sgpu.runtime.train_job import FitResult, FitTask
from sgpu.stages.cell_frame import LabelledSpectra, cell_frame, cell_inputs
from sgpu.stages.encode import encode, encoder_label
from sgpu.stages.fit import fit_of, fit_tasks
from sgpu.stages.fit_rows import LOCAL, fit_key
from sgpu.stages.judge import second_labels
from sgpu.stages.measure import provenance
from sgpu.stages.variants import Variant, rejudged, variants, varied_rows
from sgpu.storage.store import fingerprint
from sgpu.storage.tables import SENSITIVITY
from sgpu.study.benchmark import Cell

VERSION = 2
# What of the spectrum needs no fit, so that one sees what the classifier adds.
SPECTRAL = ("encoder", "n_answers")
# The classifier that answers for any number of answers, beside those that are fitted to each.
ANY_SIZE = "sgpu_any_size"


def asks_for_sensitivity(run: Run) -> bool:
    """Whether the study varies anything, or has a second judge."""
    spec = run.study.sensitivity
    varied = spec.kernels or spec.encoders or spec.n_answers or spec.train_sizes
    transferred = any(donors(run, cell) for cell in run.study.cells())
    judged = any(run.study.judge_of(cell.dataset).agreement for cell in run.study.cells())
    return bool(varied) or transferred or judged


def donors(run: Run, cell: Cell) -> list[Cell]:
    """The cells whose classifiers are tried on this one: those of the same data set, its own among them.

    Empty where it is the only one, or the study has no classifier.
    """
    cells = [other for other in run.study.cells() if other.dataset == cell.dataset]
    return cells if len(cells) > 1 and LOCAL in run.study.methods else []


def sensitivity(run: Run, cells: Sequence[Cell]) -> list[Outcome]:
    """Publish the sensitivity table of every cell; all fits that are due are one training job."""
    if not asks_for_sensitivity(run):
        return []
    for cell in cells:
        for encoder in run.study.sensitivity.encoders:
            if encoder != run.study.encoder.name:
                encode(run, cell, encoder)
    contents = {cell: _content(run, cell) for cell in cells}
    kept_tables = {
        cell: run.store.unchanged(SENSITIVITY.name, cell.partition(), fingerprint(content))
        for cell, content in contents.items()
    }
    began = time.perf_counter()
    varied = {cell: list(variants(run, cell)) for cell, current in kept_tables.items() if current is None}
    fits = _fit(run, varied)
    outcomes = []
    for cell, current in kept_tables.items():
        if current is not None:
            outcomes.append(run.remember(Outcome("vary", current, reused=True)))
            continue
        rows = [*_refitted(run, cell, varied[cell], fits), *_transferred(run, cell), *rejudged(run, cell)]
        table = pa.Table.from_pylist(rows, schema=SENSITIVITY.schema)
        manifest = {**contents[cell], "code_version": code_version()}
        key = fingerprint(contents[cell])
        published = run.store.write(SENSITIVITY, cell.partition(), table, key, manifest)
        # The fits are one job for all cells, so its time is that of all.
        took = time.perf_counter() - began
        outcomes.append(run.remember(Outcome("vary", published, reused=False, seconds=took)))
    return outcomes


def _content(run: Run, cell: Cell) -> dict[str, object]:
    study = run.study
    others = [
        run.store.require("spectra", cell.partition(encoder=encoder_label(run, encoder)))
        for encoder in study.sensitivity.encoders
    ]
    tables = [*others, run.store.require("predictions", cell.partition()), *second_labels(run, cell).values()]
    return {
        "stage": "vary",
        "stage_version": VERSION,
        "inputs": [
            *cell_inputs(run, cell).versions,
            *([t.table, t.partition.path, t.fingerprint] for t in tables),
        ],
        "settings": as_settings(study.sensitivity),
        "classifier": study.classifier.of_one_fit(),
        "other_n": study.classifier.other_n,
        "sizes": study.classifier.sizes,
        "donors": {
            str(donor): fit.fit_id for donor in donors(run, cell) if (fit := fit_of(run, donor)) is not None
        },
        "evaluation": as_settings(study.evaluation),
        "seed": study.seed,
        **KERNELS.plugins(study.classifier.kernel, *study.sensitivity.kernels),
    }


def _fit(run: Run, varied: Mapping[Cell, Sequence[Variant]]) -> dict[str, FitResult]:
    """Every variant's classifier by its key; finished ones are kept as those of the cells are."""
    tasks = []
    for cell, members in varied.items():
        for variant in members:
            key = _fit_key(cell, variant)
            rows = run.out / "fits" / key / "rows.arrow"
            rows.parent.mkdir(parents=True, exist_ok=True)
            write_training_rows(rows, variant.spectra, variant.label)
            tasks.append(FitTask(key, rows, variant.classifier, run.study.seed))
    return fit_tasks(run, tasks)


def _fit_key(cell: Cell, variant: Variant) -> str:
    return f"{fit_key(cell, LOCAL)}/sensitivity/{variant.key}"


def _refitted(
    run: Run, cell: Cell, members: Iterable[Variant], fits: Mapping[str, FitResult]
) -> list[dict[str, object]]:
    rows, base = [], provenance(run, cell, cell_inputs(run, cell))
    for variant in members:
        fit = fits[_fit_key(cell, variant)]
        if fit.folder is None:
            run.notes.append(f"{cell}, {variant.kind} {variant.setting}: {fit.problem}")
            continue
        probability = variant.rows.predicted(fit.load())
        confidence = {LOCAL: probability}
        if variant.kind in SPECTRAL:
            confidence["largest_eigenvalue"] = largest_eigenvalue(variant.rows.spectra)
            confidence["spectral_entropy"] = -spectral_entropy(variant.rows.spectra)
        forecasts = {name: probability if name == LOCAL else None for name in confidence}
        if variant.kind == "n_answers" and (any_size := _of_any_size(run, cell)):
            confidence[ANY_SIZE] = forecasts[ANY_SIZE] = variant.rows.predicted(any_size, size_free)
        # The metrics are of the rows called "test": for the choice of a kernel those of the validation part.
        split = variant.rows.split
        if variant.evaluated != "test":
            split = np.where(split == variant.evaluated, "test", "not used")
        rows += varied_rows(
            run,
            base,
            variant.kind,
            variant.setting,
            confidence,
            forecasts,
            variant.rows.label,
            split,
            n_train=len(variant.label),
            evaluated_on=variant.evaluated,
            fit=fit.fingerprint,
        )
    return rows


def _of_any_size(run: Run, cell: Cell) -> GPClassifier | None:
    """The cell's classifier for any number of answers, trained on several at once."""
    fit = fit_of(run, cell)
    if fit is None or fit.folder is None or not (fit.folder / SIZE_FREE).is_dir():
        return None
    return GPClassifier.load(fit.folder / SIZE_FREE)


def _transferred(run: Run, cell: Cell) -> list[dict[str, object]]:
    """The classifiers of other models on this cell's test questions; no answer of this model trained them."""
    inputs = cell_inputs(run, cell)
    spectra = LabelledSpectra.of(cell_frame(inputs), inputs.n)
    rows, base = [], provenance(run, cell, inputs)
    for donor in donors(run, cell):
        fit = fit_of(run, donor)
        if fit is None or fit.folder is None or cell_inputs(run, donor).n != inputs.n:
            continue
        said = {LOCAL: spectra.predicted(GPClassifier.load(fit.folder))}
        rows += varied_rows(
            run, base, "trained_on", donor.model, said, said, spectra.label, spectra.split, fit=fit.fit_id
        )
    return rows
