"""Encoding stage: the spectrum of every response set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sgpu.encoders import ENCODERS, Encoder, load_encoder
from sgpu.encoders.spectra import Embed, spectra_rows, with_embedded_texts
from sgpu.runtime.stage import Stage, hold
from sgpu.stages.actors import light_actors
from sgpu.stages.run import Run, as_settings
from sgpu.storage.tables import spectra_table
from sgpu.study.benchmark import Cell


def open_encoder(**encoder: Any) -> Encoder:
    """Open an encoder, once for all workers of an actor; arguments are those of `load_encoder`."""
    return hold(["encoder", encoder], lambda: load_encoder(**encoder))


VERSION = 4


@dataclass(eq=False)
class EncodeWorker:
    """Holds one sentence encoder; turns response sets into eigenvalues."""

    encoder: str
    dtype: str
    device: str
    n: int
    prefixes: Sequence[int] = ()
    embed: Embed = "full"

    def __post_init__(self) -> None:
        self._encoder = open_encoder(name=self.encoder, dtype=self.dtype, device=self.device)

    def __call__(self, batch: pa.Table) -> pa.Table:
        batch = with_embedded_texts(batch, self.embed)
        return spectra_rows(batch, self._encoder, self.n, self.prefixes)

    def counts(self, output: pa.Table) -> Mapping[str, float]:
        return {"answers": float(output.num_rows * self.n)}


def answers_per_question(run: Run, cell: Cell) -> int:
    """N of the cell: the study's, or what the given response sets have."""
    if not run.is_given(cell):
        return run.study.sampling_of(cell).n
    return int(run.responses(cell).manifest["n"])


def encoder_label(run: Run, encoder: str | None = None) -> str:
    """The name of an encoder (default the study's) as a partition value: hub ids have slashes."""
    return (encoder or run.study.encoder.name).strip("/").replace("/", "--")


def plan_encoding(run: Run, cell: Cell) -> list[Stage]:
    """Return the stages that write the cell's spectra, by the study's encoder first, then by further ones."""
    names = dict.fromkeys([run.study.encoder.name, *run.study.sensitivity_of(cell).encoders])
    return [_encoding(run, cell, name) for name in names]


def _encoding(run: Run, cell: Cell, encoder: str) -> Stage:
    n = answers_per_question(run, cell)
    spec = run.study.encoder.model_copy(update={"name": encoder})
    dtype = run.resolved.encoder_dtype_for(spec.dtype)
    return Stage(
        name="encode",
        version=VERSION,
        table=spectra_table(n),
        partition=cell.partition(encoder=encoder_label(run, encoder)),
        source=run.responses(cell),
        columns=("question_id", "status", "error", "answers"),
        worker="sgpu.stages.encode:EncodeWorker",
        arguments={"encoder": encoder, "device": run.resolved.device},
        settings={
            **as_settings(spec),
            "dtype": dtype,
            **ENCODERS.plugins(encoder),
            "n": n,
            "prefixes": run.study.smaller_sizes(n) if encoder == run.study.encoder.name else [],
            "embed": run.study.dataset(cell.dataset).embed,
        },
        holds={"encoder": encoder, "dtype": dtype},
        engine=encoder,
        resources=light_actors(run, "encode"),
    )
