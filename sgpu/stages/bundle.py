"""A fitted classifier made a model that scores answers: with its encoder, N and where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sgpu.encoders import load_encoder
from sgpu.fitted import BUNDLE, FittedModel
from sgpu.gp.classifier import GPClassifier
from sgpu.provenance import code_version
from sgpu.stages.fit_rows import Prepared
from sgpu.stages.run import Run


def save_bundle(run: Run, prepared: Prepared, folder: Path) -> None:
    """Complete the folder of a fit, unless it is complete."""
    if (folder / BUNDLE).is_file():
        return
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
            "tables": [version for inputs in prepared.inputs for version in inputs.versions],
            "code_version": code_version(),
        },
    ).save(folder)


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
