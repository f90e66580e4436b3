"""Questions that the page lists: examples with their pictures, and those of cells without labels."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Sequence

import polars as pl
from PIL import Image

from sgpu.errors import DataError, QuarantineError
from sgpu.report.study.data import Example, RankedQuestion
from sgpu.report.study.study_frames import agreement_shares, published_frame
from sgpu.runtime.run import Run
from sgpu.stages.cell_frame import cell_frame, cell_inputs, published_labels
from sgpu.stages.decode import StoredQuestions
from sgpu.stages.fit import METHOD
from sgpu.storage.store import Published
from sgpu.study.benchmark import Cell

RANKED = 200  # questions of a cell that the page lists


def unlabelled(run: Run, cell: Cell) -> bool:
    """Whether nothing was given by which answers could be judged: no label and no reference at all."""
    labels = published_labels(run, cell)
    if labels.read(["label"])["label"].null_count < labels.rows:
        return False
    questions = run.questions(cell.dataset)
    return not any(questions.read(["references"])["references"].to_pylist())


def check_labels(run: Run) -> None:
    """Raise QuarantineError if a cell misses more labels than the study allows; none by design is allowed."""
    bound = run.study.bounds.missing_labels
    for cell in run.study.cells():
        labels = published_labels(run, cell)
        missing = labels.read(["label"])["label"].null_count
        if missing > bound * labels.rows and not unlabelled(run, cell):
            raise QuarantineError(
                f"the study is finished, but {missing} of {labels.rows} questions of {cell} have no label, "
                f"more than the bound of {bound:.0%}. They are left out of every metric; "
                "bounds.missing_labels in the study file sets the bound."
            )


def ranking(run: Run, cell: Cell) -> list[RankedQuestion]:
    """The test questions of a cell without labels, the most doubtful first.

    They stand in the order of their mean rank over the scores that need no labels; at most `RANKED` of them.
    """
    scores = published_frame(run, "predictions", cell).filter(
        (pl.col("split") == "test") & pl.col("confidence").is_not_nan() & pl.col("confidence").is_not_null()
    )
    if scores.is_empty():
        return []
    placed = scores.with_columns(pl.col("confidence").rank("average").over("method").alias("place"))
    order = placed.group_by("question_id").agg(pl.col("place").mean()).sort("place", "question_id")
    said = {row["question_id"]: row for row in cell_frame(cell_inputs(run, cell)).to_dicts()}
    values = {(row["question_id"], row["method"]): row["confidence"] for row in scores.to_dicts()}
    methods = sorted(set(scores["method"]))
    made = []
    for question_id in order["question_id"].head(RANKED):
        answers = said[question_id]["answers"] or [""]
        answer, times = Counter(answers).most_common(1)[0]
        made.append(
            RankedQuestion(
                model=cell.model, dataset=cell.dataset, question_id=question_id,
                question=said[question_id]["question"], answer=answer, times=times, n=len(answers),
                scores={name: values.get((question_id, name)) for name in methods},
            )
        )  # fmt: skip
    return made


EXAMPLES_OF_A_KIND = 2
_LISTS = ("references", "answers", "votes", "eigenvalues")
_SHOWN = (
    "model", "dataset", "question_id", "question", "label", "probability", "sd", "unsafe", "agreement",
    *_LISTS,
)  # fmt: skip


def examples(run: Run, cell: Cell) -> list[Example]:
    """A few test questions of each kind that the report shows; without a classifier there are none."""
    predictions = published_frame(run, "predictions", cell).filter(
        (pl.col("method") == METHOD) & (pl.col("split") == "test") & pl.col("label").is_not_null()
    )
    inputs = cell_inputs(run, cell)
    shares = agreement_shares(inputs, predictions["question_id"].to_list())
    predictions = predictions.with_columns(pl.Series("agreement", shares, dtype=pl.Float64))
    doubted = (pl.col("label") == 0) & (pl.col("agreement") > 0.5) & (pl.col("probability") < 0.5)
    right, wrong = predictions.filter(label=1), predictions.filter(label=0)
    kinds = (
        predictions.filter(doubted).sort("agreement", "question_id", descending=[True, False]),
        right.sort("probability", descending=True),
        wrong.sort("probability", descending=True),
        wrong.sort("probability"),
        predictions.filter(pl.col("unsafe")),
    )
    chosen = pl.concat([kind.head(EXAMPLES_OF_A_KIND) for kind in kinds])
    chosen = chosen.unique("question_id", keep="first", maintain_order=True)
    pictures = thumbnails(inputs.questions, chosen["question_id"].to_list())
    rows = chosen.drop("label").join(cell_frame(inputs), on="question_id", how="left", maintain_order="left")
    return [
        Example(**{name: row[name] for name in _SHOWN}, image=pictures.get(row["question_id"]))
        for row in rows.with_columns(pl.col(_LISTS).fill_null([])).to_dicts()
    ]


PIXELS = 200 * 200


def thumbnails(questions: Published, question_ids: Sequence[str]) -> dict[str, str]:
    """Data URIs of the images of these questions; without those that have none or cannot be read."""
    stored = StoredQuestions(questions.files, {"max_pixels": PIXELS})
    uris = {}
    for question_id in question_ids:
        try:
            _, image = stored.get(question_id)
        except DataError:
            continue
        if image is not None:
            uris[question_id] = _data_uri(image)
    return uris


def _data_uri(pixels: bytes) -> str:
    buffer = io.BytesIO()
    Image.open(io.BytesIO(pixels)).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
