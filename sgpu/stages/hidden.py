"""Hidden-state stage: a second pass of the model over its stored answers, for methods that read states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from sgpu.engines.base import Prompt, has_own_models
from sgpu.hidden.rows import ModelShape, Wanted, hidden_rows, layer_indices, model_shape, states_table
from sgpu.images import ImageError
from sgpu.methods.base import METHODS
from sgpu.runtime.stage import Stage
from sgpu.runtime.worker import NOT_CONTENT, Held, StageWorker, hold
from sgpu.stages.actors import count_questions, engine_actors
from sgpu.stages.decode import DecodeWorker, StoredQuestions, has_images, image_decoder
from sgpu.stages.encode import answers_per_question
from sgpu.stages.run import Run
from sgpu.stages.sample import HeldEngine, as_sampling, engine_of, question_prompt
from sgpu.storage.store import Published
from sgpu.storage.tables import PROBE_POSITIONS
from sgpu.study.benchmark import Cell, Study
from sgpu.study.models import card_of, engine_name

if TYPE_CHECKING:
    from sgpu.hidden.extractor import HiddenStateExtractor

VERSION = 3
# What methods may need of hidden states; probes need the layers of one answer.
NEEDS = {"last_hidden": "last", "middle_hidden": "middle"}
PROBE_NEED = "layer_hidden"
# A block is a file of one row group: what a reader holds at a time, and what a killed run does again.
BLOCK_BYTES = 8 * 2**20
MAX_BLOCK_ROWS = 64


@dataclass(frozen=True)
class HeldExtractor(Held):
    """A model that the actors of a stage open for the hidden states of some layers."""

    model: HeldEngine
    layers: Sequence[int]

    def open(self) -> HiddenStateExtractor:
        """Open it, once for all workers of an actor."""
        from sgpu.hidden.extractor import HiddenStateExtractor

        return hold(self, lambda: HiddenStateExtractor(self.model.config, self.layers))


@dataclass(eq=False)
class HiddenWorker(StageWorker):
    """Turns response sets into hidden states.

    ``questions`` is the fingerprint of the data set's questions.
    """

    extractor: HeldExtractor
    wanted: Wanted
    n_layers: int
    prompt: str
    system_prompt: str | None
    stop: Sequence[str]
    max_tokens: int
    questions: str
    question_files: Sequence[str] = field(metadata=NOT_CONTENT)
    images: DecodeWorker | None = None

    def open(self) -> None:
        self._extractor = self.extractor.open()
        self._questions = StoredQuestions(self.question_files, self.images)

    def __call__(self, batch: pa.Table) -> pa.Table:
        wanted = zip(batch["question_id"].to_pylist(), batch["status"].to_pylist(), strict=True)
        with self._questions.prefetched([question_id for question_id, status in wanted if status == "ok"]):
            states_of = partial(self._extractor.states, stop=self.stop, max_tokens=self.max_tokens)
            return hidden_rows(batch, self._prompt, states_of, self.wanted)

    def counts(self, output: pa.Table) -> Mapping[str, float]:
        return {"answers": float(output.num_rows * self.wanted.n)}

    def _prompt(self, question_id: str) -> Prompt:
        try:
            question, image = self._questions.get(question_id)
        except ImageError as error:
            raise ValueError(f"image: {error}") from error
        # A seed decides what is drawn; nothing is drawn here.
        return question_prompt(self.prompt, self.system_prompt, question, image, seed=0)


def needs_hidden_states(study: Study) -> bool:
    """Whether a method of the study reads hidden states."""
    return bool(_needs(study) & {*NEEDS, PROBE_NEED})


def why_no_hidden_states(run: Run, cell: Cell) -> str | None:
    """Why this cell cannot have hidden states; None if it can."""
    if run.is_given(cell):
        return "hidden states need the model itself, and these answers were sampled elsewhere"
    engine = engine_name(run.study.model(cell.model))
    if has_own_models(engine):
        source = "a server" if engine == "openai" else f"engine {engine!r}"
        return f"hidden states need the model itself, and these answers came from {source}"
    return None


def plan_hidden_states(run: Run, cell: Cell) -> list[Stage]:
    """Return the stage that writes the cell's hidden states; none if unneeded or impossible to have."""
    if not needs_hidden_states(run.study) or why_no_hidden_states(run, cell):
        return []
    study, spec = run.study, run.study.model(cell.model)
    published = run.store.published("hidden_states", cell.partition())
    if study.keep.hidden_states and published and published.dropped:
        run.store.withdraw("hidden_states", cell.partition())
    model = engine_of(run, spec)
    shape = model_shape(model.config)
    wanted = wanted_states(study, shape, answers_per_question(run, cell))
    questions = run.questions(cell.dataset)
    sampling, rows = as_sampling(study.sampling_of(cell)), count_questions(run, cell)
    stage = Stage(
        name="hidden",
        version=VERSION,
        table=wanted.table,
        partition=cell.partition(),
        source=run.responses(cell),
        columns=("question_id", "status", "error", "prompt_sha256", "answers", "token_ids"),
        worker=HiddenWorker(
            HeldExtractor(model, wanted.read_layers),
            wanted,
            shape.n_layers,
            study.sampling_of(cell).prompt,
            spec.system_prompt,
            sampling.stop,
            sampling.max_tokens,
            questions.fingerprint,
            questions.files,
            image_decoder(study, cell) if has_images(questions) else None,
        ),
        engine=cell.model,
        resources=engine_actors(
            run, "hidden", card_of(spec), "transformers", rows, block_rows(wanted), gpus=1.0
        ),
    )
    return [stage]


def drop_hidden_states(run: Run, cells: Iterable[Cell]) -> None:
    """Delete the states of finished cells, unless the study keeps them; their stages stay done."""
    published = [] if run.study.keep.hidden_states else [published_hidden_states(run, cell) for cell in cells]
    freed = 0
    for one in published:
        if one is not None:
            table, columns = states_table(one)
            freed += run.store.drop_columns(table, one.partition, columns)
    if freed:
        gigabytes = f"{freed / 1e9:.2f} GB"
        run.progress.say(f"hidden states: {gigabytes} deleted; keep.hidden_states=true makes them again")


def wanted_states(study: Study, shape: ModelShape, n: int) -> Wanted:
    """The layers that the study names and those that its methods read by name; for probes, theirs."""
    needs, spec = _needs(study), study.hidden
    layers = [*spec.layers, *(layer for need, layer in NEEDS.items() if need in needs)]
    wanted = Wanted(layer_indices(layers, shape.n_layers), n, shape.dim)
    if PROBE_NEED not in needs:
        return wanted
    positions: list[str] = [position for position in PROBE_POSITIONS if position in spec.positions]
    return replace(wanted, probe_layers=layer_indices(spec.probe_layers, shape.n_layers), positions=positions)


def block_rows(wanted: Wanted) -> int:
    """Rows of one file, so that it holds at most about 8 MiB of float16."""
    return max(1, min(MAX_BLOCK_ROWS, BLOCK_BYTES // row_bytes(wanted)))


def row_bytes(wanted: Wanted) -> int:
    """Return how many bytes the float16 states of one question take."""
    probed = len(wanted.probe_layers) * len(wanted.positions)
    return 2 * wanted.dim * (len(wanted.layers) * wanted.n + probed)


def published_hidden_states(run: Run, cell: Cell) -> Published | None:
    """The cell's hidden states; None where the study needs none or the cell cannot have them."""
    if not needs_hidden_states(run.study) or why_no_hidden_states(run, cell):
        return None
    return run.store.require("hidden_states", cell.partition())


def _needs(study: Study) -> set[str]:
    return {need for name in study.methods for need in METHODS.get(name).needs}
