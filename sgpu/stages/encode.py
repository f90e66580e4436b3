"""Encoding stage: the spectrum of every response set."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from sgpu.encoders import load_encoder
from sgpu.encoders.features import spectra_rows
from sgpu.stages.run import Run, as_settings
from sgpu.stages.runner import Outcome, Stage
from sgpu.store import Partition
from sgpu.study import Cell
from sgpu.tables import spectra

VERSION = 1


class EncodeWorker:
    """Holds one sentence encoder; turns response sets into eigenvalues."""

    def __init__(self, encoder: str, dtype: str, device: str, n: int) -> None:
        self._encoder, self._n = load_encoder(encoder, dtype=dtype, device=device), n

    def __call__(self, batch: pa.Table) -> pa.Table:
        return spectra_rows(batch, self._encoder, self._n)

    def counts(self, output: pa.Table) -> Mapping[str, float]:
        return {"answers": float(output.num_rows * self._n)}


def answers_per_question(run: Run, cell: Cell) -> int:
    """N of the cell: the study's, or what the given response sets have."""
    if not run.is_given(cell):
        return run.study.sampling.n
    responses = run.store.require("responses", Partition.of(model=cell.model, dataset=cell.dataset))
    return int(responses.manifest["n"])


def encoder_label(run: Run) -> str:
    """The encoder's name as a partition value: a hub id or a folder has slashes."""
    return run.study.encoder.name.strip("/").replace("/", "--")


def encode(run: Run, cell: Cell) -> Outcome:
    """Write the cell's spectra."""
    spec, n = run.study.encoder, answers_per_question(run, cell)
    stage = Stage(
        name="encode",
        version=VERSION,
        table=spectra(n),
        partition=Partition.of(model=cell.model, dataset=cell.dataset, encoder=encoder_label(run)),
        source=run.store.require("responses", Partition.of(model=cell.model, dataset=cell.dataset)),
        columns=("question_id", "status", "error", "answers"),
        worker="sgpu.stages.encode:EncodeWorker",
        arguments={
            "encoder": spec.name, "dtype": spec.dtype, "device": run.study.resources.device, "n": n,
        },
        settings={**as_settings(spec), "n": n},
        resources=run.light_resources(run.study.resources.encoders),
    )  # fmt: skip
    return run.run_stage(stage)
