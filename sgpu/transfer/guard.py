"""The leakage guard: what of a target may not reach a fit, checked on the keys of the rows themselves.

Which rows a fit gets is decided by `sgpu.transfer.designs`; the guard does not trust it. It has a rule of its
own for each design. It looks at the rows of a fit before it is made, and at the finished fit for what it was
made from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from sgpu.errors import DataError
from sgpu.evaluation.inputs import Bools
from sgpu.gp.fitting import FitReport, TrainingRows
from sgpu.study.benchmark import Cell
from sgpu.transfer.rows import SourceCell, TransferRows

SHOWN = 3
IDENTITIES = ("text_sha256", "row_sha256")
# What of its target each design keeps from the classifier. Said here a second time, apart from the designs: a
# wrong plan must not make the rule that it is held to. Test questions of the target no design may see.
KEPT_OUT: Mapping[str, frozenset[str]] = {
    "in_domain": frozenset(),
    "model_matrix": frozenset({"model"}),
    "dataset_matrix": frozenset({"dataset"}),
    "leave_one_model_out": frozenset({"model"}),
    "leave_one_dataset_out": frozenset({"dataset"}),
    "leave_both_out": frozenset({"model", "dataset"}),
    "modality": frozenset({"model", "dataset", "modality"}),
}


class LeakageError(DataError):
    """A row of the target reached a place that it must not reach."""


@dataclass(frozen=True)
class Rule:
    """What a fit for ``target`` must not see: its model or data set, whole cells, and single questions.

    ``kept_out`` has "model" or "dataset" or both. ``questions`` are the keys of rows; a row is one of them
    under the same data set and id, the same words and image, or the same hash of question, references and
    image, whatever its model.
    """

    target: Cell
    kept_out: frozenset[str]
    questions: pl.DataFrame
    cells: frozenset[Cell] = frozenset()

    def forbidden(self, keys: pl.DataFrame) -> pl.DataFrame:
        """``keys`` with a boolean column for each reason why a row may not be seen."""
        target, kept_out = self.target, self.kept_out
        ids = self.questions.select("dataset", "question_id").unique().with_columns(pl.lit(True).alias("_"))
        same = keys.join(ids, on=["dataset", "question_id"], how="left", maintain_order="left")["_"]
        return keys.select(
            ((pl.col("model") == target.model) & ("model" in kept_out)).alias("target model"),
            ((pl.col("dataset") == target.dataset) & ("dataset" in kept_out)).alias("target data set"),
            pl.format("{}/{}", "model", "dataset").is_in(list(map(str, self.cells))).alias("target modality"),
            same.fill_null(False).alias("same question"),
            *(
                pl.col(name).is_in(self.questions[name].drop_nulls().unique().implode())
                .fill_null(False).alias(f"same {name}")
                for name in IDENTITIES
            ),
        )  # fmt: skip

    def allows(self, keys: pl.DataFrame) -> Bools:
        """(R,) whether a row may be seen."""
        return ~self.forbidden(keys).select(pl.any_horizontal(pl.all())).to_series().to_numpy()


def rule_for(design: str, target: Cell, cells: Mapping[Cell, SourceCell]) -> Rule:
    """Return what a classifier of this design must not see; LeakageError for a design without a rule."""
    if design not in KEPT_OUT:
        raise LeakageError(
            f"the guard has no rule for the design {design!r}; say in KEPT_OUT what it keeps out"
        )
    return rule_of(target, KEPT_OUT[design], cells)


def rule_of(target: Cell, kept_out: frozenset[str], cells: Mapping[Cell, SourceCell]) -> Rule:
    """Return the rule of a target with the questions that it shuts out.

    Those are all questions of its data set where that is kept out, as they can stand in another data set too;
    otherwise the test questions of the target.
    """
    questions = [cells[target].part("test").keys]
    if "dataset" in kept_out:
        questions = [source.rows.keys for cell, source in cells.items() if cell.dataset == target.dataset]
    same = {cell for cell, source in cells.items() if source.modality == cells[target].modality}
    return Rule(target, kept_out, pl.concat(questions), frozenset(same if "modality" in kept_out else ()))


def check(step: str, rows: TransferRows, rule: Rule) -> None:
    """Raise LeakageError if rows break the rule: it says where, why and how many, and names some of them."""
    reasons = rule.forbidden(rows.keys)
    seen = reasons.select(pl.any_horizontal(pl.all())).to_series()
    if seen.any():
        why = [name for name in reasons.columns if reasons[name].any()]
        some = rows.keys.filter(seen).head(SHOWN)
        named = ", ".join("/".join(row) for row in some.select("model", "dataset", "question_id").iter_rows())
        raise LeakageError(
            f"leak into {step}: {int(seen.sum())} of {len(rows)} rows belong to the target {rule.target} "
            f"({', '.join(why)}), for instance {named}. No target row may be used; this fit is discarded. "
            "Check the designs and that the runs do not share questions under other names."
        )


def check_report(report: FitReport, admitted: TrainingRows, target: Cell) -> None:
    """Raise LeakageError unless a fit was made from the ``admitted`` rows and from no others."""
    if report.rows_sha256 != admitted.sha256:
        raise LeakageError(
            f"leak into the fit for the target {target}: its {report.rows} rows ({report.positives} right) "
            f"are not the {len(admitted)} rows ({admitted.y.sum()} right) that were admitted. Remove the "
            "folder of fits and run again."
        )


def check_sample(sample: TransferRows, rule: Rule) -> None:
    """Raise LeakageError if a labelled row is among the questions of the rule, or is of another cell."""
    others = int((sample.cells != str(rule.target)).sum())
    if others:
        raise LeakageError(
            f"leak into calibration: {others} of {len(sample)} labelled rows are not of the target "
            f"{rule.target}; the sample may hold rows of the target cell only."
        )
    check("calibration", sample, rule)
