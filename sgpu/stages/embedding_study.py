"""Embedding study: constructed sets of two meanings, as an encoder and as the model itself embed them.

Ten wordings of a right answer and five of another one, fixed or by the cell's own model. Ideal embeddings
would give the eigenvalues 10 and 5.
Three pairs of sentences of one meaning, which the paper quotes, show how cosine and entailment judge it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from sgpu.engines.base import Prompt
from sgpu.entailment.base import ENTAIL, AnswerPair
from sgpu.evaluation.embedding_error import embedding_error
from sgpu.hidden.rows import model_shape
from sgpu.runtime.stage import Stage
from sgpu.runtime.worker import StageWorker
from sgpu.stages.actors import engine_actors, light_actors
from sgpu.stages.encode import HeldEncoder, encoder_of
from sgpu.stages.entail import HeldBackend, built_from, needs_entailment, setup_of
from sgpu.stages.hidden import HeldExtractor, why_no_hidden_states
from sgpu.stages.paraphrase import Statement, wording_stage, wordings
from sgpu.stages.run import Run
from sgpu.stages.sample import engine_of
from sgpu.storage.store import Published, fingerprint
from sgpu.storage.tables import CONSTRUCTED, EMBEDDINGS
from sgpu.study.benchmark import Cell
from sgpu.study.models import card_of

VERSION = 3
EXTERNAL = "external"
WORDINGS = (
    "{}", "{}.", "It is {}.", "The answer is {}.", "I think it is {}.", "That would be {}.",
    "The correct answer is {}.", "It's {}, I believe.", "My answer is {}.", "{} is the answer.",
)  # fmt: skip
N_FIRST, N_SECOND = 10, 5
PAIR = "sentence-pair:"  # begins the ids of the pairs, which no data set has
PAIRS = (  # Grewal et al. 2024
    (
        "What is the primary function of the mitochondria in cells?",
        "The mitochondria produce energy for the cells.",
        "Mitochondria provides energy to cells in the body.",
    ),
    (
        "What happens when you heat ice?",
        "Heating ice will eventually boil after becoming water.",
        "When ice is heated, it melts into water before boiling.",
    ),
    (
        "What do mammals have in common?",
        "Mammals are warm-blooded and have hair or fur.",
        "All mammals (like humans and dogs) are warm-blooded creatures with hair.",
    ),
)
BLOCK_ROWS = 8


@dataclass(eq=False)
class EmbeddingWorker(StageWorker):
    """Embeds constructed sets with an encoder and, where there is a model, with its hidden states.

    The ``classifier`` judges the pairs.
    """

    encoder: HeldEncoder
    prompt: str
    extractor: HeldExtractor | None = None
    classifier: HeldBackend | None = None

    def open(self) -> None:
        self._encoder = self.encoder.open()
        self._classifier = self.classifier.open() if self.classifier else None
        self._extractor = self.extractor.open() if self.extractor else None

    def __call__(self, batch: pa.Table) -> pa.Table:
        return pa.Table.from_pylist([self._row(row) for row in batch.to_pylist()], schema=EMBEDDINGS.schema)

    def counts(self, output: pa.Table) -> Mapping[str, float]:
        n_pairs = sum(name.startswith(PAIR) for name in output["question_id"].to_pylist())
        return {"texts": float((output.num_rows - n_pairs) * (N_FIRST + N_SECOND) + 2 * n_pairs)}

    def _row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        vectors = {EXTERNAL: self._encoder.encode(row["texts"])}
        if self._extractor is not None and self.extractor is not None:
            prompt = Prompt((("user", self.prompt.replace("{question}", row["question"])),), seed=0)
            states = self._extractor.states_of_texts(prompt, row["texts"])
            vectors |= {f"layer {layer}": states[index] for index, layer in enumerate(self.extractor.layers)}
        errors = {name: embedding_error(embedded, row["clusters"]) for name, embedded in vectors.items()}
        return {
            "question_id": row["question_id"],
            "status": "ok",
            "embedding": list(errors),
            **{name: [getattr(error, name) for error in errors.values()] for name in MEASURED},
            "entailed": self._entailed(row) if row["question_id"].startswith(PAIR) else None,
        }

    def _entailed(self, row: Mapping[str, Any]) -> bool | None:
        """Return whether the two texts of a pair entail each other; None without a classifier."""
        if self._classifier is None:
            return None
        first, second = row["texts"]
        pairs = [AnswerPair(row["question"], *texts) for texts in ((first, second), (second, first))]
        return bool((self._classifier.classify(pairs).argmax(axis=1) == ENTAIL).all())


MEASURED = ("lambda_1", "lambda_2", "epsilon", "mean_square")


def plan_wording(run: Run, cell: Cell) -> list[Stage]:
    """Return the stage in which the cell's model words the answers of its constructed sets, where it does."""
    statements = _statements(run, cell, _chosen(run, cell))
    return [wording_stage(run, cell, statements)] if statements else []


def plan_embedding_study(run: Run, cell: Cell) -> list[Stage]:
    """Return the stage that embeds the constructed sets of a cell, where the study asks for any."""
    if not run.study.sensitivity_of(cell).embedding_sets or (source := _constructed(run, cell)) is None:
        return []
    extractor, resources = None, light_actors(run, "encode")
    if why_no_hidden_states(run, cell) is None:
        model = run.study.model(cell.model)
        engine = engine_of(run, model)
        extractor = HeldExtractor(engine, list(range(1, model_shape(engine.config).n_layers + 1)))
        resources = engine_actors(run, "hidden", card_of(model), "transformers", 0, BLOCK_ROWS, gpus=1.0)
    judged = needs_entailment(run.study) and built_from(run.study) == "checkpoint"
    stage = Stage(
        name="embed",
        version=VERSION,
        table=EMBEDDINGS,
        partition=cell.partition(),
        source=source,
        columns=("question_id", "question", "texts", "clusters"),
        worker=EmbeddingWorker(
            encoder_of(run),
            run.study.sampling_of(cell).prompt,
            extractor,
            setup_of(run, cell).backend if judged else None,
        ),
        engine=cell.model if extractor else run.study.encoder.name,
        resources=resources,
    )
    return [stage]


def _chosen(run: Run, cell: Cell) -> list[tuple[Mapping[str, Any], str]]:
    """The first test questions, each with the next question's answer as the other meaning."""
    if not (wanted := run.study.sensitivity_of(cell).embedding_sets):
        return []
    columns = ["question_id", "question", "references", "split", "position"]
    rows = run.questions(cell.dataset).read(columns).to_pylist()
    test = sorted((r for r in rows if r["split"] == "test" and r["references"]), key=lambda r: r["position"])
    candidates = ((row, other) for row in test if (other := _another(row, test)) is not None)
    return list(islice(candidates, wanted))


def _constructed(run: Run, cell: Cell) -> Published | None:
    """Sets of the chosen questions, in the wordings that the study asks for."""
    questions, chosen, partition = run.questions(cell.dataset), _chosen(run, cell), cell.partition()
    wanted = run.study.sensitivity_of(cell).embedding_sets
    worded, by = _worded(run, cell, chosen)
    content = {"questions": questions.fingerprint, "wanted": wanted, "wordings": WORDINGS, "version": VERSION}
    key = fingerprint(content | ({"paraphrases": by} if by else {}))
    if current := run.store.unchanged(CONSTRUCTED.name, partition, key):
        return current
    sets = [_set(row, other, worded) for row, other in chosen]
    if not sets:
        reason = "fewer than two test questions have different references to construct sets of"
        run.notes.append(f"{cell}: {reason}")
        return None
    pairs = [
        {"question_id": f"{PAIR}{i}", "question": question, "texts": texts, "clusters": [0, 0]}
        for i, (question, *texts) in enumerate(PAIRS)
    ]
    table = pa.Table.from_pylist([*sets, *pairs], schema=CONSTRUCTED.schema)
    return run.store.write(CONSTRUCTED, partition, table, key, content)


def _another(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str | None:
    """The first reference after this row's place that is none of its own."""
    start = rows.index(row) + 1
    for other in (*rows[start:], *rows[: start - 1]):
        if not {r.casefold() for r in other["references"]} & {r.casefold() for r in row["references"]}:
            return str(other["references"][0])
    return None


def _statements(run: Run, cell: Cell, chosen: Sequence[tuple[Mapping[str, Any], str]]) -> list[Statement]:
    """Return what the cell's model is to word; nothing if the study has fixed wordings."""
    if run.study.sensitivity.embedding_wordings == "fixed" or run.is_given(cell):
        return []
    pairs = ((row["question"], answer) for row, other in chosen for answer in (row["references"][0], other))
    return list(dict.fromkeys(pairs))


def _worded(
    run: Run, cell: Cell, chosen: Sequence[tuple[Mapping[str, Any], str]]
) -> tuple[Mapping[Statement, Sequence[str]], str | None]:
    """Return the model's wordings of the answers and their fingerprint; none if the study has fixed ones."""
    if not (statements := _statements(run, cell, chosen)):
        return {}, None
    published = run.run_stages([wording_stage(run, cell, statements)])[0].published
    worded = wordings(published, statements)
    few = sum(len(texts) < N_FIRST for texts in worded.values())
    run.notes.append(
        f"{cell}: the model worded the answers of the constructed sets; for {few} of {len(worded)} answers "
        f"it gave fewer than {N_FIRST} different texts, and fixed wordings make up for them."
    )
    return worded, published.fingerprint


def _set(row: Mapping[str, Any], other: str, worded: Mapping[Statement, Sequence[str]]) -> dict[str, Any]:
    def texts(answer: str, n: int) -> list[str]:
        fixed = [wording.format(answer) for wording in WORDINGS]
        return list(dict.fromkeys([*worded.get((row["question"], answer), []), *fixed]))[:n]

    first, second = texts(row["references"][0], N_FIRST), texts(other, N_SECOND)
    return {
        "question_id": row["question_id"],
        "question": row["question"],
        "texts": [*first, *second],
        "clusters": [0] * N_FIRST + [1] * N_SECOND,
    }
