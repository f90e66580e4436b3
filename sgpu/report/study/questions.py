"""Questions that the page lists: examples with their pictures, and rankings of cells without metrics."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import polars as pl
from PIL import Image

from sgpu.errors import DataError, QuarantineError
from sgpu.judges.alias import most_named
from sgpu.methods.base import METHODS
from sgpu.no_answer import describe
from sgpu.report.study.data import CellRanking, Example, RankedQuestion
from sgpu.report.study.study_frames import agreement_shares, published_frame
from sgpu.stages.cell_frame import cell_frame, cell_inputs, published_labels
from sgpu.stages.decode import DecodeWorker, StoredQuestions
from sgpu.stages.fit import METHOD
from sgpu.stages.run import Run
from sgpu.storage.store import Published
from sgpu.study.benchmark import Cell

RANKED = 200  # questions of a cell that the page lists


def unlabelled(run: Run, cell: Cell) -> bool:
    """Return whether nothing was given to judge answers by: no label and no reference at all."""
    labels = published_labels(run, cell)
    if labels.read(["label"])["label"].null_count < labels.rows:
        return False
    questions = run.questions(cell.dataset)
    return not any(questions.read(["references"])["references"].to_pylist())


def why_unmeasured(run: Run, cell: Cell) -> str | None:
    """Return why no method can be measured on a cell, as a sentence; None if methods can be.

    A cell whose labels could not be determined, although there are references, is not meant: `check_labels`
    reports it.
    """
    known = published_labels(run, cell).read(["label"])["label"].drop_null().to_pylist()
    if not known and unlabelled(run, cell):
        return "Neither labels nor references were given, so no answer is called right or wrong."
    if len(set(known)) == 1:
        kind, other = ("right", "wrong") if known[0] else ("wrong", "right")
        return (
            f"All {len(known)} labelled questions of {cell} are {kind}; without {other} ones no method can "
            "be trained or measured."
        )
    return None


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


def rankings(run: Run) -> list[CellRanking]:
    """Return a ranking for each cell that cannot be measured and that at least one method has scored."""
    reasons = {cell: why for cell in run.study.cells() if (why := why_unmeasured(run, cell))}
    made = [
        CellRanking(cell.model, cell.dataset, why, *_ranked_questions(run, cell))
        for cell, why in reasons.items()
    ]
    return [ranking for ranking in made if ranking.questions]


def _ranked_questions(run: Run, cell: Cell) -> tuple[list[RankedQuestion], frozenset[str]]:
    """List the test questions of a cell, the most doubtful first, and the methods that are uncertainties.

    Questions without an answer come first, the others by their mean rank over the methods; `RANKED` at most.
    """
    scores = published_frame(run, "predictions", cell).filter(
        (pl.col("split") == "test") & (pl.col("confidence").is_not_null() | pl.col("no_answer").is_not_null())
    )
    placed = scores.with_columns(place=pl.col("confidence").rank("average").over("method").fill_null(0))
    order = placed.group_by("question_id").agg(pl.col("place").mean()).sort("place", "question_id")
    rows = {row["question_id"]: row for row in cell_frame(cell_inputs(run, cell)).to_dicts()}
    methods = sorted(set(scores["method"]))
    signs = {name: getattr(METHODS.get(name), "sign", None) for name in methods}
    uncertainties = frozenset(name for name, sign in signs.items() if sign == "uncertainty")
    values = {
        (row["question_id"], row["method"]): _signed(row["confidence"], row["method"] in uncertainties)
        for row in scores.to_dicts()
    }
    ranked = []
    for question_id in order["question_id"].head(RANKED):
        row = rows[question_id]
        answers = [answer or "" for answer in row["answers"] or [""]]
        answer, times = most_named(answers)
        ranked.append(
            RankedQuestion(
                question_id=question_id, question=row["question"], answer=answer, times=times, n=len(answers),
                scores={name: values.get((question_id, name)) for name in methods},
                no_answer=describe(row["no_answer"], len(answers)) if row["no_answer"] else None,
            )
        )  # fmt: skip
    return ranked, uncertainties


def _signed(confidence: float | None, is_uncertainty: bool) -> float | None:
    """Return a confidence in the sign in which its method is known."""
    return -confidence if is_uncertainty and confidence is not None else confidence


EXAMPLES_OF_A_KIND = 2
_LISTS = ("references", "answers", "votes", "eigenvalues")
_SHOWN = (
    "model", "dataset", "question_id", "question", "label", "probability", "sd", "unsafe", "agreement",
    *_LISTS,
)  # fmt: skip


def choose_examples(run: Run, cell: Cell) -> list[Example]:
    """Choose a few test questions of each kind that the report shows; without a classifier there are none."""
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
    stored = StoredQuestions(questions.files, DecodeWorker(PIXELS))
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
