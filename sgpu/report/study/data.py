"""What a report is made of: tables and short lists, already computed, nothing looked up later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import polars as pl

from sgpu.datasets.base import Departure
from sgpu.errors import DataError
from sgpu.evaluation.agreement import Agreement


def _schema(names: Sequence[str], numbers: Sequence[str], counts: Sequence[str] = ()) -> pl.Schema:
    columns = {**dict.fromkeys(names, pl.String), **dict.fromkeys(numbers, pl.Float64)}
    return pl.Schema({**columns, **dict.fromkeys(counts, pl.Int64)})


METRIC_COLUMNS = ("dataset", "model", "method", "metric", "value", "lo", "hi", "n", "n_missing", "settings")
PREDICTION_COLUMNS = (
    "model", "dataset", "question_id", "split", "method", "label", "confidence", "probability", "sd",
    "unsafe",
)  # fmt: skip
COMPARISON_SCHEMA = _schema(
    ("model", "dataset", "method", "reference", "metric", "test"),
    ("difference", "lo", "hi", "p", "p_holm"),
    ("n", "n_missing"),
)
SENSITIVITY_SCHEMA = _schema(
    ("model", "dataset", "kind", "setting", "method", "metric"), ("value", "lo", "hi"), ("n",)
)
CONFUSION_SCHEMA = _schema(
    ("model", "dataset"), ("n", "tp", "fp", "tn", "fn", "recall", "precision", "accuracy")
)
EMBEDDING_SCHEMA = _schema(("embedding",), ("lambda_1", "lambda_2", "epsilon"))
PAIR_SCHEMA = _schema(("context",), ("bidirectional_entailment", "cosine"))
POSTHOC_SCHEMA = _schema(("method", "dataset"), ("seconds_per_input",))
SOURCE_STAGES = ("prepare", "import")  # the stages that read files of the user or of a data set
# The frames of a report and the columns that they must have.
FRAMES: Mapping[str, Sequence[str]] = {
    "metrics": METRIC_COLUMNS,
    "predictions": PREDICTION_COLUMNS,
    "comparisons": COMPARISON_SCHEMA.names(),
    "sensitivity": SENSITIVITY_SCHEMA.names(),
    "confusion": CONFUSION_SCHEMA.names(),
    "embeddings": EMBEDDING_SCHEMA.names(),
    "sentence_pairs": PAIR_SCHEMA.names(),
    "posthoc": POSTHOC_SCHEMA.names(),
}


def cell_name(model: str, dataset: str) -> str:
    """The name of a cell in ``StageSummary.cell``, ``Unavailable`` and ``Agreement`` rows."""
    return f"{model}/{dataset}"


class Quarantined(TypedDict):
    """A row that could not be processed."""

    model: str
    dataset: str
    table: str
    question_id: str
    reason: str


class Granted(TypedDict):
    """How many questions a split was asked for and how many the data set holds."""

    dataset: str
    split: str
    requested: int | None  # None: whatever there is
    granted: int


class Unavailable(TypedDict):
    """A method that a cell could not be given, and why."""

    cell: str
    method: str
    why: str


@dataclass(frozen=True)
class ProvenanceRow:
    """Weights or data that the study rests on."""

    role: str  # data set, model, judge, encoder
    name: str
    source: str
    revision: str
    licence: str
    gated: bool


@dataclass(frozen=True)
class Example:
    """One response set to show: N answers, one vote each (1 correct, 0 wrong, None missing)."""

    model: str
    dataset: str
    question_id: str
    question: str
    references: Sequence[str]
    answers: Sequence[str]
    votes: Sequence[int | None]
    label: int | None
    eigenvalues: Sequence[float]  # descending, sum N; empty where there is no spectrum
    probability: float | None
    sd: float | None
    unsafe: bool | None
    agreement: float | None = None  # share of the answers that have the most frequent meaning
    image: str | None = None  # a small picture of what was asked about, as a data URI made by us


@dataclass(frozen=True)
class RankedQuestion:
    """A question with the scores that need no labels, each in the sign of its method."""

    question_id: str
    question: str
    answer: str  # the one that most answers repeat or name, ``times`` of ``n``
    times: int
    n: int
    scores: Mapping[str, float | None]
    no_answer: str | None = None  # why there are no scores, see `sgpu.no_answer`


@dataclass(frozen=True)
class CellRanking:
    """The questions of a cell whose methods cannot be measured, the most doubtful first.

    ``why`` is the reason as a sentence; ``uncertainties`` are the methods whose lower values are better.
    """

    model: str
    dataset: str
    why: str
    questions: Sequence[RankedQuestion]
    uncertainties: frozenset[str] = frozenset()


@dataclass(frozen=True)
class StageSummary:
    """What a stage did; ``cell`` is empty for a stage that serves several cells."""

    name: str
    cell: str
    rows_in: int
    rows_ok: int
    rows_failed: int
    rows_missing: int
    seconds: float
    rate: str
    reused: bool


@dataclass(frozen=True)
class ReportData:
    """All that a report shows.

    ``metrics`` holds METRIC_COLUMNS and ``predictions`` PREDICTION_COLUMNS (sgpu.storage.tables, with the
    partition columns ``model`` and ``dataset``), the others the columns of their schemas.
    ``primary`` is the method whose probability is drawn.
    Raises DataError if a column is absent.
    """

    study: Mapping[str, Any]
    run_info: Mapping[str, Any]
    metrics: pl.DataFrame
    predictions: pl.DataFrame
    examples: Sequence[Example] = ()
    stages: Sequence[StageSummary] = ()
    quarantine: Sequence[Quarantined] = ()
    notes: Sequence[str] = ()
    agreement: Sequence[tuple[str, str, str, Agreement]] = ()  # (cell, its judge, a further one, result)
    granted: Sequence[Granted] = ()
    unavailable: Sequence[Unavailable] = ()
    sources: Sequence[ProvenanceRow] = ()
    departures: Sequence[Departure] = ()
    rankings: Sequence[CellRanking] = ()  # of the cells that cannot be measured
    comparisons: pl.DataFrame = field(default_factory=COMPARISON_SCHEMA.to_frame)
    sensitivity: pl.DataFrame = field(default_factory=SENSITIVITY_SCHEMA.to_frame)
    confusion: pl.DataFrame = field(default_factory=CONFUSION_SCHEMA.to_frame)
    embeddings: pl.DataFrame = field(default_factory=EMBEDDING_SCHEMA.to_frame)
    sentence_pairs: pl.DataFrame = field(default_factory=PAIR_SCHEMA.to_frame)
    posthoc: pl.DataFrame = field(default_factory=POSTHOC_SCHEMA.to_frame)
    primary: str = "sgpu"

    def __post_init__(self) -> None:
        for name, columns in FRAMES.items():
            absent = [column for column in columns if column not in getattr(self, name).columns]
            if absent:
                raise DataError(
                    f"report: the {name} frame has no column {', '.join(absent)}; "
                    f"it must have {', '.join(columns)}."
                )

    def source_rows(self) -> tuple[int, int]:
        """Count the rows of all sources, and those among them that could not be used."""
        # An import also writes answers and labels, of a cell "model/data set".
        read = [stage for stage in self.stages if stage.name in SOURCE_STAGES and "/" not in stage.cell]
        return sum(stage.rows_in for stage in read), sum(stage.rows_failed for stage in read)

    def cells(self) -> list[tuple[str, str]]:
        """Every (model, dataset) that has a metric, a prediction or an example, sorted."""
        named = {
            (str(model), str(dataset))
            for frame in (self.metrics, self.predictions)
            for model, dataset in frame.select("model", "dataset").unique().iter_rows()
        }
        return sorted(named | {(example.model, example.dataset) for example in self.examples})
