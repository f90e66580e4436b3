"""A fitted classifier made a model that scores answers: with its encoder, N and where it comes from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sgpu.encoders import load_encoder
from sgpu.fitted.model import FittedModel
from sgpu.gp.classifier import GPClassifier
from sgpu.gp.heads import OTHERS, SIZE_FREE, OtherSizes
from sgpu.provenance import code_version
from sgpu.runtime.run import Run
from sgpu.runtime.train_job import FitResult
from sgpu.stages.fit_rows import ALL_CELLS, Prepared
from sgpu.storage.bundle_files import BUNDLE


def save_bundle(run: Run, prepared: Prepared, folder: Path, others: Mapping[str, FitResult]) -> None:
    """Complete the folder of a fit, unless it is complete with these fits for other numbers of answers."""
    made = {place: result for place, result in others.items() if result.problem is None}
    ids = {place: result.fingerprint for place, result in sorted(made.items())}
    for place, result in others.items():
        if result.problem:
            run.notes.append(f"{prepared.cell or ALL_CELLS}, {place}: {result.problem}")
    if _is_complete(folder, ids):
        return
    for part in OTHERS:
        shutil.rmtree(folder / part, ignore_errors=True)
    study, dtype = run.study, _encoder_dtype(run, prepared)
    FittedModel(
        gp=GPClassifier.load(folder),
        encoder=study.encoder.name,
        encoder_dtype=dtype,
        n_answers=prepared.inputs[0].n,
        encoder_fingerprint=load_encoder(study.encoder.name, dtype).fingerprint,
        embed=prepared.inputs[0].embed if len({inputs.embed for inputs in prepared.inputs}) == 1 else "full",
        provenance={
            "study": study.name,
            "method": prepared.method,
            **_trained_on(prepared),
            "rows": prepared.rows,
            "seed": study.seed,
            "pool": study.classifier.pool if prepared.cell is None else None,
            "other_n": ids,
            "tables": [version for inputs in prepared.inputs for version in inputs.versions],
            "code_version": code_version(),
        },
        others=OtherSizes(
            {int(place.split("/")[1]): fit.load() for place, fit in made.items() if place != SIZE_FREE},
            made[SIZE_FREE].load() if SIZE_FREE in made else None,
        ),
    ).save(folder)


def _is_complete(folder: Path, others: Mapping[str, str]) -> bool:
    if not (folder / BUNDLE).is_file():
        return False
    written = json.loads((folder / BUNDLE).read_text())
    return bool(written["provenance"].get("other_n", {}) == others)


def _trained_on(prepared: Prepared) -> dict[str, Any]:
    judges = sorted({inputs.judge for inputs in prepared.inputs})
    judge = judges[0] if len(judges) == 1 else judges
    if prepared.cell is not None:
        return {"model": prepared.cell.model, "dataset": prepared.cell.dataset, "judge": judge}
    cells = [str(inputs.responses.partition) for inputs in prepared.inputs]
    return {"cells": cells, "judge": judge}


def _encoder_dtype(run: Run, prepared: Prepared) -> str:
    """The precision that the spectra were made with, where all agree."""
    found = {
        dtype
        for inputs in prepared.inputs
        for dtype in inputs.spectra.read(["encoder_dtype"])["encoder_dtype"].to_pylist()
        if dtype
    }
    return str(found.pop()) if len(found) == 1 else run.study.encoder.dtype
