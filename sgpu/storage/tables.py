"""The schema of every table of a benchmark: columns, types, partitioning.

Tables of transfer studies and of scoring are defined in `sgpu.transfer.measure` and `sgpu.scoring.tables`.

Partition columns are the hive folders of the path (`model=/dataset=/...`) and are not stored in the
files. `question_id` is unique inside a partition. Every stage table carries `status` ("ok", "failed" or
"missing") and `error`, so that a row that could not be processed is kept, counted and shown.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

STRINGS = pa.list_(pa.string())
QUESTION_ID = pa.field("question_id", pa.string(), nullable=False)
STATUS = [pa.field("status", pa.string(), nullable=False), pa.field("error", pa.string())]


def columns(kind: pa.DataType, *names: str, nullable: bool = True) -> list[pa.Field]:
    """Columns of one type."""
    return [pa.field(name, kind, nullable=nullable) for name in names]


@dataclass(frozen=True)
class Table:
    """A named table: its columns in order and the columns that its folders are named by."""

    name: str
    schema: pa.Schema
    partition_by: tuple[str, ...]

    @classmethod
    def of(cls, name: str, partition_by: tuple[str, ...], *fields: pa.Field) -> Table:
        """The table of these columns."""
        return cls(name, pa.schema(fields), partition_by)


QUESTIONS = Table.of(
    "questions",
    ("dataset",),
    QUESTION_ID,
    pa.field("group", pa.string()),
    pa.field("question", pa.string(), nullable=False),
    *columns(STRINGS, "references", "all_answers"),
    pa.field("image", pa.binary()),
    pa.field("image_sha256", pa.string()),
    pa.field("split", pa.string(), nullable=False),  # train, validation, test
    pa.field("position", pa.int32(), nullable=False),  # rank in key order inside its split
    pa.field("meta", pa.string()),  # JSON
    pa.field("row_sha256", pa.string()),  # of question, references and image: what a source changed
)

RESPONSES = Table.of(
    "responses",
    ("model", "dataset"),
    QUESTION_ID,
    *STATUS,
    pa.field("prompt_sha256", pa.string()),
    *columns(STRINGS, "answers", "raw_answers"),
    pa.field("token_ids", pa.list_(pa.list_(pa.int32()))),
    pa.field("token_logprobs", pa.list_(pa.list_(pa.float32()))),
    pa.field("n_tokens", pa.list_(pa.int32())),
    pa.field("finish_reasons", STRINGS),
    pa.field("seed", pa.int64()),
    *columns(pa.string(), "engine", "settings_sha256"),
)

LABELS = Table.of(
    "labels",
    ("model", "dataset", "judge"),
    QUESTION_ID,
    *STATUS,
    pa.field("votes", pa.list_(pa.int8())),  # 1 correct, 0 wrong, null missing
    *columns(pa.list_(pa.float64()), "p_yes", "mass"),
    pa.field("label", pa.int8()),  # null: no vote could be read
    pa.field("n_missing", pa.int32()),
    pa.field("tie", pa.bool_()),
    pa.field("guarded", pa.list_(pa.bool_())),  # true: see `judges.base.Vote`
)

# Further judges label a sample of the responses, to measure how far judges agree. Their labels stand apart:
# they cover some questions only and are never trained or tested on.
SECOND_OPINIONS = Table("second_opinions", LABELS.schema, LABELS.partition_by)


def spectra_table(n: int) -> Table:
    """Return the spectra table of a cell with ``n`` answers a question."""
    return Table.of(
        "spectra",
        ("model", "dataset", "encoder"),
        QUESTION_ID,
        *STATUS,
        pa.field("encoder_dtype", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("eigenvalues", pa.list_(pa.float64(), n)),
        pa.field("cosines", pa.list_(pa.float32(), n * (n - 1) // 2)),  # of answers i < j, row by row
        # The same for fewer answers, the first in an order drawn by the question's id.
        pa.field("prefixes", pa.list_(pa.int32())),
        pa.field("prefix_eigenvalues", pa.list_(pa.list_(pa.float64()))),
        pa.field("n_distinct", pa.int32()),
    )


# One pass over the answers serves every method that compares them. Matrices are N*N, row by row: [i, j] is
# what answer i says of answer j; null in the rows and columns of missing answers.
ENTAILMENT = Table.of(
    "entailment",
    ("model", "dataset", "backend"),
    QUESTION_ID,
    *STATUS,
    pa.field("threshold", pa.float64()),  # of the cosine backend
    pa.field("dtype", pa.string()),  # that a classifier or an encoder computed in
    pa.field("n", pa.int32()),
    pa.field("n_distinct", pa.int32()),  # texts that differ: a backend reads their ordered pairs
    pa.field("n_blank", pa.int32()),  # answers without a word, of which entailment says little
    *columns(pa.list_(pa.float64()), "entail", "neutral", "contradict"),
    pa.field("clusters", pa.list_(pa.int32())),  # null: a missing answer
)

# Where probes read the first answer: its last token, its second-last generated one, the last of the prompt.
PROBE_POSITIONS = ("last", "slt", "tbg")


def hidden_states_table(n_layers: int, n: int, dim: int, n_probe_layers: int = 0) -> Table:
    """Return the hidden_states table of a cell: states of ``dim`` numbers.

    ``states`` holds some layers of all ``n`` answers at their last token, the other columns more layers of
    the first answer. NaN stands for an answer without text, null for what was not asked for. Parquet's
    dictionary stores the float32 numbers of the files in two bytes, since only float16 values occur.
    """
    probed = pa.list_(pa.float16(), n_probe_layers * dim)
    return Table.of(
        "hidden_states",
        ("model", "dataset"),
        QUESTION_ID,
        *STATUS,
        pa.field("n_missing", pa.int32()),  # answers without a state: withheld or empty
        pa.field("layers", pa.list_(pa.int32(), n_layers)),  # indices; 0 is the embedding
        pa.field("states", pa.list_(pa.float16(), n_layers * n * dim)),  # layer, answer, number
        pa.field("probe_layers", pa.list_(pa.int32(), n_probe_layers)),
        *columns(probed, *(f"probe_{position}" for position in PROBE_POSITIONS)),
    )


PREDICTIONS = Table.of(
    "predictions",
    ("model", "dataset"),
    QUESTION_ID,
    *columns(pa.string(), "split", "method", nullable=False),
    pa.field("label", pa.int8()),
    *columns(pa.float64(), "confidence", "probability", "sd"),
    pa.field("unsafe", pa.bool_()),
    pa.field("no_answer", pa.string()),  # why no method scores the question: empty, refusal
    pa.field("chosen", pa.int32()),  # place of the answer that a method would show
    pa.field("p_answer", pa.float64()),  # probability that this answer is right
    *columns(pa.int8(), "chosen_vote", "first_vote"),  # of the judge on this answer and on the first one
    pa.field("fit_id", pa.string()),
)

METRICS = Table.of(
    "metrics",
    ("model", "dataset"),
    *columns(pa.string(), "method", "metric", nullable=False),
    *columns(pa.float64(), "value", "lo", "hi"),  # null: undefined (one class, no rows)
    *columns(pa.int64(), "n", "n_missing"),
    pa.field("settings", pa.string()),  # JSON: backend, n answers, seed, revision, code version ...
)

COMPARISONS = Table.of(
    "comparisons",
    ("model", "dataset"),
    *columns(pa.string(), "method", "reference", "metric", nullable=False),
    *columns(pa.float64(), "difference", "lo", "hi"),  # method minus reference; null: undefined
    *columns(pa.float64(), "p", "p_holm"),  # as it is, and corrected over the methods of the cell
    pa.field("test", pa.string()),
    *columns(pa.int64(), "n", "n_missing"),
    pa.field("settings", pa.string()),  # JSON
)

# One setting of the study varied at a time, everything else as it is.
SENSITIVITY = Table.of(
    "sensitivity",
    ("model", "dataset"),
    # kind: kernel, global_kernel, encoder, n_answers, train_size, trained_on, judge
    *columns(pa.string(), "kind", "setting", nullable=False),
    *METRICS.schema,
)

# Answers that a model is asked to word, and what it says.
STATEMENTS = Table.of(
    "statements",
    ("model", "dataset"),
    QUESTION_ID,
    pa.field("question", pa.string()),
    pa.field("image", pa.binary()),
)
PARAPHRASES = Table("paraphrases", RESPONSES.schema, ("model", "dataset"))

# Sets of answers and pairs of sentences, of which the meanings are known, and how embeddings render them.
CONSTRUCTED = Table.of(
    "constructed",
    ("model", "dataset"),
    QUESTION_ID,
    pa.field("question", pa.string()),
    pa.field("texts", STRINGS),
    pa.field("clusters", pa.list_(pa.int32())),
)
EMBEDDINGS = Table.of(
    "embeddings",
    ("model", "dataset"),
    QUESTION_ID,
    *STATUS,
    pa.field("embedding", STRINGS),  # external, layer 1, layer 2 ...; the lists beside it are aligned
    *columns(pa.list_(pa.float64()), "lambda_1", "lambda_2", "epsilon", "mean_square"),
    pa.field("entailed", pa.bool_()),  # of a pair of sentences: whether they entail each other
)
