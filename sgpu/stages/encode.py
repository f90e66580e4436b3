"""Encoding stage: the spectrum of every response set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from sgpu.encoders import ENCODERS, Encoder, load_encoder
from sgpu.encoders.spectra import Embed, spectra_rows, with_embedded_texts
from sgpu.runtime.stage import Stage
from sgpu.runtime.worker import NOT_CONTENT, Held, StageWorker, hold, name_in
from sgpu.stages.actors import light_actors
from sgpu.stages.run import Run
from sgpu.storage.tables import spectra_table
from sgpu.study.benchmark import Cell


@dataclass(frozen=True)
class HeldEncoder(Held):
    """An encoder that the actors of a stage open; for the fields see `load_encoder`."""

    name: str = field(metadata=name_in(ENCODERS))
    dtype: str = "auto"
    device: str = field(default="auto", metadata=NOT_CONTENT)

    def open(self) -> Encoder:
        """Open it, once for all workers of an actor."""
        return hold(self, lambda: load_encoder(self.name, dtype=self.dtype, device=self.device))


def encoder_of(run: Run, name: str | None = None) -> HeldEncoder:
    """Return an encoder, by default the study's, as this run opens it."""
    dtype = run.resolved.encoder_dtype_for(run.study.encoder.dtype)
    return HeldEncoder(name or run.study.encoder.name, dtype, run.resolved.device)


VERSION = 6


@dataclass(eq=False)
class EncodeWorker(StageWorker):
    """Turns response sets into eigenvalues."""

    encoder: HeldEncoder
    n: int
    prefixes: Sequence[int] = ()
    embed: Embed = "full"

    def open(self) -> None:
        self._encoder = self.encoder.open()

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
    return Stage(
        name="encode",
        version=VERSION,
        table=spectra_table(n),
        partition=cell.partition(encoder=encoder_label(run, encoder)),
        source=run.responses(cell),
        columns=("question_id", "status", "error", "answers"),
        worker=EncodeWorker(
            encoder_of(run, encoder),
            n,
            run.study.smaller_sizes(n) if encoder == run.study.encoder.name else [],
            run.study.dataset(cell.dataset).embed,
        ),
        engine=encoder,
        resources=light_actors(run, "encode"),
    )
