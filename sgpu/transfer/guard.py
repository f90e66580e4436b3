"""The leakage guard: what of a target may not reach a fit, checked on the keys of the rows themselves.

Which rows a fit gets is decided by `sgpu.transfer.pool`; the guard does not trust it. It looks at the rows
that arrive at each place, and at the inducing points of the finished fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from sgpu.errors import DataError
from sgpu.evaluation.inputs import Bools, Floats
from sgpu.gp.inducing import inducing_points
from sgpu.study import Cell
from sgpu.transfer.rows import Rows

SHOWN = 3
IDENTITIES = ("text_sha256", "row_sha256")


class LeakageError(DataError):
    """A row of the target reached a place that it must not reach."""


@dataclass(frozen=True)
class Rule:
    """What a fit for ``target`` must not see: whole models, whole data sets, and single questions.

    ``questions`` are the keys of rows; a row is one of them under the same data set and id, the same words
    and image, or the same hash of question, references and image, whatever its model.
    """

    target: Cell
    models: frozenset[str]
    datasets: frozenset[str]
    questions: pl.DataFrame

    def forbidden(self, keys: pl.DataFrame) -> pl.DataFrame:
        """``keys`` with a boolean column for each reason why a row may not be seen."""
        known = self.questions.select("dataset", "question_id").unique().with_columns(pl.lit(True).alias("_"))
        same = keys.join(known, on=["dataset", "question_id"], how="left", maintain_order="left")["_"]
        return keys.select(
            pl.col("model").is_in(list(self.models)).alias("target model"),
            pl.col("dataset").is_in(list(self.datasets)).alias("target data set"),
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


def check(place: str, rows: Rows, rule: Rule) -> Rows:
    """The rows, as they came; LeakageError names the place, how many are of the target, and some of them."""
    reasons = rule.forbidden(rows.keys)
    seen = reasons.select(pl.any_horizontal(pl.all())).to_series()
    if seen.any():
        why = [name for name in reasons.columns if reasons[name].any()]
        some = rows.keys.filter(seen).head(SHOWN)
        named = ", ".join("/".join(row) for row in some.select("model", "dataset", "question_id").iter_rows())
        raise LeakageError(
            f"leak into {place}: {int(seen.sum())} of {len(rows)} rows belong to the target {rule.target} "
            f"({', '.join(why)}), for instance {named}. None may; nothing of this fit is reported. "
            "Check the designs and that the runs do not share questions under other names."
        )
    return rows


def check_points(
    points: Floats, admitted: Floats, most: int, seed: int, target: Cell, weights: Floats | None = None
) -> None:
    """LeakageError unless ``points`` (m, N) are those of the ``admitted`` rows (M, N) and of no others.

    ``weights`` (M,) are those that the fit gave its rows.
    """
    expected = inducing_points(admitted, most, seed, weights)
    if points.shape != expected.shape or not np.allclose(points, expected, atol=1e-5):
        raise LeakageError(
            f"leak into the inducing points: those of the fit for the target {target} are not the ones of "
            f"its {len(admitted)} training rows. The file of rows or the fit was made with other rows: "
            "remove the folder of fits and run again."
        )


def check_sample(sample: Rows, evaluated: Rows, rule: Rule) -> None:
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
