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
    """What a fit for ``target`` must not see: whole models, data sets and cells, and single questions.

    ``questions`` are the keys of rows; a row is one of them under the same data set and id, the same words
    and image, or the same hash of question, references and image, whatever its model.
    """

    target: Cell
    models: frozenset[str]
    datasets: frozenset[str]
    questions: pl.DataFrame
    cells: frozenset[Cell] = frozenset()

    def forbidden(self, keys: pl.DataFrame) -> pl.DataFrame:
        """``keys`` with a boolean column for each reason why a row may not be seen."""
        ids = self.questions.select("dataset", "question_id").unique().with_columns(pl.lit(True).alias("_"))
        same = keys.join(ids, on=["dataset", "question_id"], how="left", maintain_order="left")["_"]
        return keys.select(
            pl.col("model").is_in(list(self.models)).alias("target model"),
            pl.col("dataset").is_in(list(self.datasets)).alias("target data set"),
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
    """What a classifier of this design must not see; LeakageError for a design without a rule."""
    if design not in KEPT_OUT:
        raise LeakageError(
            f"the guard has no rule for the design {design!r}; say in KEPT_OUT what it keeps out"
        )
    kept_out = KEPT_OUT[design]
    if "dataset" in kept_out:
        # They can stand in another data set too.
        questions = [source.rows.keys for cell, source in cells.items() if cell.dataset == target.dataset]
    else:
        questions = [cells[target].part("test").keys]
    same = {cell for cell, source in cells.items() if source.modality == cells[target].modality}
    return Rule(
        target,
        frozenset({target.model} if "model" in kept_out else ()),
        frozenset({target.dataset} if "dataset" in kept_out else ()),
        pl.concat(questions),
        frozenset(same if "modality" in kept_out else ()),
    )


def check(step: str, rows: TransferRows, rule: Rule) -> TransferRows:
    """The rows, as they came; LeakageError names the place, how many are of the target, and some of them."""
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
    return rows


def check_report(report: FitReport, admitted: TrainingRows, target: Cell) -> None:
    """Raise LeakageError unless a fit was made from the ``admitted`` rows and from no others."""
    if report.rows_sha256 != admitted.sha256:
        raise LeakageError(
            f"leak into the fit for the target {target}: its {report.rows} rows ({report.positives} right) "
            f"are not the {len(admitted)} rows ({admitted.y.sum()} right) that were admitted. Remove the "
            "folder of fits and run again."
        )


def check_sample(sample: TransferRows, evaluated: TransferRows, rule: Rule) -> None:
    """LeakageError if a labelled row of the target is measured on too, or is of another cell."""
    own = sample.keys.filter(
        (pl.col("model") == rule.target.model) & (pl.col("dataset") == rule.target.dataset)
    )
    if own.height < len(sample):
        raise LeakageError(
            f"leak into calibration: {len(sample) - own.height} of {len(sample)} labelled rows are not of "
            f"the target {rule.target}; the sample may hold rows of the target cell only."
        )
    only = Rule(rule.target, frozenset(), frozenset(), evaluated.keys)
    check("calibration", sample, only)
