"""The assets of a benchmark: the tables that a study has, and what makes each of them.

An asset is a function of the run and, where it has partitions, of its data set or cell; `STUDY_ASSETS` says
what it depends on. `pipelines.assets` makes Dagster's assets of them. What does the work is imported when it
starts: PyTorch takes seconds, in which a person would wait to be told of a wrong word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sgpu.errors import StageError
from sgpu.runtime.stage import Outcome, imported
from sgpu.stages.run import Run
from sgpu.storage.location import Location
from sgpu.storage.store import Published
from sgpu.study.benchmark import Cell

if TYPE_CHECKING:
    from sgpu.report.study.data import StageSummary

# What an asset has made: a table, None where the study does not ask for it, or facts of several tables.
Made = Outcome | Published | Mapping[str, object] | None


def show_labels(run: Run, cell: Cell) -> Made:
    """Return the labels of the study's judge, or those that came with the answers."""
    from sgpu.stages.cell_frame import published_labels

    return published_labels(run, cell)


def fits(run: Run) -> Made:
    """Fit the classifiers of all cells."""
    from sgpu.stages.fit import fit_cells

    return {"fits": {fit.cell: fit.fit_id for fit in fit_cells(run, run.study.cells())}}


def sensitivity(run: Run) -> Made:
    """Measure what the study varies."""
    from sgpu.stages.sensitivity import publish_sensitivity

    return {"rows": sum(o.published.rows for o in publish_sensitivity(run, run.study.cells()))}


def report(run: Run) -> Made:
    """Write what the study found."""
    return {"page": write_report(run)}


def write_report(run: Run, stages: Sequence[StageSummary] | None = None) -> Location:
    """Write the page of the study and the aggregates over its cells, and print the table of methods.

    Everything comes from what is published; see `collect`. Returns the page.
    """
    from sgpu.report.aggregate.page import build_study_aggregates
    from sgpu.report.study.summary import collect, write_study_report
    from sgpu.report.study.terminal import show_methods

    data = collect(run, stages)
    build_study_aggregates(run.out, data)
    page = write_study_report(run, data)
    run.keep("report", "metrics.csv", "metrics.parquet", "run.json")
    show_methods(run.progress.console, data)
    return run.root / page.relative_to(run.out).as_posix()


@dataclass(frozen=True)
class StudyAsset:
    """One asset: what makes it, of one cell unless said otherwise, and the assets that it reads.

    ``plan`` names, as "module:function", what returns its stages; ``work`` makes the rest of it, or looks
    at what they have made. ``reads`` are read for the same cell, ``reads_all`` for every one.
    """

    name: str
    description: str
    group: str
    kinds: frozenset[str] = frozenset()
    reads: tuple[str, ...] = ()
    reads_all: tuple[str, ...] = ()
    of: str = "cell"  # or "dataset", or "study": what has no partitions
    plan: str = ""
    work: str | Callable[..., Made] = ""

    def make(self, run: Run, parts: Sequence[Sequence[Any]]) -> list[Made]:
        """Make it of several cells or data sets, whose stages share engines."""
        plan = imported(self.plan) if self.plan else lambda *part: []
        planned = [plan(run, *part) for part in parts]
        outcomes = run.run_stages([stage for stages in planned for stage in stages])
        work = imported(self.work) if isinstance(self.work, str) and self.work else self.work
        if work:
            return [work(run, *part) for part in parts]
        made = {(outcome.published.table, outcome.partition): outcome for outcome in outcomes}
        return [made[stages[0].table.name, stages[0].partition] if stages else None for stages in planned]


_RAY, _FEATURES = frozenset({"ray"}), ("labels", "spectra", "entailment", "hidden_states")
_FITTING = frozenset({"ray", "pytorch"})
# In the order of a run.
STUDY_ASSETS = (
    StudyAsset(
        "questions", "Questions with references, split by hashed id.", "data", frozenset({"deltalake"}),
        of="dataset", work="sgpu.stages.questions:prepare_questions",
    ),
    StudyAsset(
        "responses", "N sampled answers to every question, with token log-probabilities.", "stages",
        _RAY | {"vllm"}, ("questions",), plan="sgpu.stages.sample:plan_sampling", work=Run.responses,
    ),
    StudyAsset(
        "labels", "A vote on every answer and a label for every response set, by the study's judge.",
        "stages", _RAY, ("responses",), plan="sgpu.stages.judge:plan_judging", work=show_labels,
    ),
    StudyAsset(
        "judge_agreement", "Some of the questions by further judges, where the study asks for any.", "stages",
        _RAY | {"vllm"}, ("responses",), plan="sgpu.stages.judge:plan_second_judging",
    ),
    StudyAsset(
        "spectra", "Eigenvalues of the Gram matrix of the embedded answers.", "stages", _RAY, ("responses",),
        plan="sgpu.stages.encode:plan_encoding",
    ),
    StudyAsset(
        "entailment", "What each answer says of each other one, where a method compares answers.", "stages",
        _RAY, ("responses", "labels"), plan="sgpu.stages.entail:plan_entailment",
    ),
    StudyAsset(
        "hidden_states", "The model's hidden states at the answers, where a method reads them.", "stages",
        _RAY, ("responses",), plan="sgpu.stages.hidden:plan_hidden_states",
    ),
    StudyAsset(
        "fits", "One Gaussian-process classifier a cell, fitted by a Ray Train job.", "classifier", _FITTING,
        reads_all=_FEATURES, of="study", work=fits,
    ),
    StudyAsset(
        "predictions", "One confidence per method and question.", "evaluation", reads=("fits", *_FEATURES),
        work="sgpu.stages.evaluate:predict",
    ),
    StudyAsset(
        "metrics", "AUROC, AUARC, calibration and their bootstrap intervals.", "evaluation",
        reads=("predictions",), work="sgpu.stages.evaluate:measure",
    ),
    StudyAsset(
        "embeddings", "Constructed sets of two meanings by the encoder and by the model, where asked for.",
        "evaluation", _RAY, ("responses",), plan="sgpu.stages.embedding_study:plan_embedding_study",
    ),
    StudyAsset(
        "sensitivity", "SGPU with other kernels, encoders, numbers of answers and rows; other judges.",
        "evaluation", _FITTING, reads_all=("predictions", "judge_agreement"), of="study", work=sensitivity,
    ),
    StudyAsset(
        "report", "The page, metrics.csv, metrics.parquet, and the study in MLflow.", "evaluation",
        frozenset({"mlflow"}), ("sensitivity",), ("embeddings", "metrics", "judge_agreement"), "study",
        work=report,
    ),
)  # fmt: skip


# Eigenvalues come from a float32 Gram matrix; their sum is N to about N times its rounding error.
EIGENVALUE_SUM_TOLERANCE = 1e-3
Checked = tuple[bool, dict[str, float]]  # whether a check has passed, and its numbers


def eigenvalue_sum(run: Run, cell: Cell) -> Checked:
    """Every spectrum sums to its number of answers."""
    from sgpu.stages.cell_frame import published_spectra

    rows = published_spectra(run, cell).read(["status", "n", "eigenvalues"]).to_pylist()
    sums = ((math.fsum(row["eigenvalues"]), row["n"]) for row in rows if row["status"] == "ok")
    worst = max((abs(total - n) for total, n in sums), default=0.0)
    return worst <= EIGENVALUE_SUM_TOLERANCE, {"worst_difference": worst, "bound": EIGENVALUE_SUM_TOLERANCE}


def labels_known(run: Run, cell: Cell) -> Checked:
    """Labels are missing for no larger share than the study allows."""
    from sgpu.report.study.questions import unlabelled
    from sgpu.stages.cell_frame import published_labels

    rows = published_labels(run, cell).read(["label"])["label"]
    share = rows.null_count / max(1, len(rows))
    bound = run.study.bounds.missing_labels
    return share <= bound or unlabelled(run, cell), {"missing_share": share, "bound": bound}


def rows_answered(run: Run, cell: Cell) -> Checked:
    """Rows in quarantine are no larger share than the study allows."""
    published = run.responses(cell)
    failed = published.read(["status"])["status"].to_pylist().count("failed")
    share, bound = failed / max(1, published.rows), run.study.bounds.quarantined
    return share <= bound, {"quarantined": failed, "share": share, "bound": bound}


# Each with the asset that it looks at; a blocking one stops what is downstream, others warn.
CHECKS = (
    (eigenvalue_sum, "spectra", True),
    (labels_known, "labels", False),
    (rows_answered, "responses", False),
)


@dataclass(frozen=True)
class AssetCheck:
    """What a check has found of an asset."""

    name: str
    passed: bool
    numbers: Mapping[str, float]
    blocking: bool


def check_asset(run: Run, asset: StudyAsset, cell: Cell) -> list[AssetCheck]:
    """Look at what was made of a cell; what is not as it should be is told and noted.

    Raises StageError if a blocking check fails.
    """
    found = []
    for function, name, blocking in CHECKS:
        if name != asset.name:
            continue
        passed, numbers = function(run, cell)
        found.append(AssetCheck(function.__name__, passed, numbers, blocking))
        if not passed:
            values = ", ".join(f"{key} {value}" for key, value in numbers.items())
            run.notes.append(f"Check {function.__name__} failed for {cell}: {values}")
            run.progress.say(f"  check {function.__name__} failed on {cell}: {values}")
            if blocking:
                raise StageError(f"{name} of {cell} did not succeed: a blocking check failed (see above)")
    return found
