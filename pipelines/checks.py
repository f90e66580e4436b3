"""Data-quality checks on the tables; a blocking one stops what is downstream."""

# No postponed annotations here: Dagster reads the types of `context` at definition.

import dagster as dg
import numpy as np

from pipelines.study_resource import StudyResource
from sgpu.report.study.unlabelled import unlabelled
from sgpu.runtime.run import Run
from sgpu.stages.cell_frame import published_labels, published_spectra
from sgpu.storage.store import Partition
from sgpu.study.benchmark import Cell

# Eigenvalues come from a float32 Gram matrix; their sum is N to about N times its rounding error.
EIGENVALUE_SUM_TOLERANCE = 1e-3


def eigenvalue_sum(run: Run, cell: Cell) -> dg.AssetCheckResult:
    """Every spectrum sums to its number of answers."""
    rows = published_spectra(run, cell).read(["status", "n", "eigenvalues"]).to_pylist()
    worst = max(
        (abs(float(np.sum(row["eigenvalues"])) - row["n"]) for row in rows if row["status"] == "ok"),
        default=0.0,
    )
    return dg.AssetCheckResult(
        passed=worst <= EIGENVALUE_SUM_TOLERANCE,
        metadata={"worst_difference": worst, "bound": EIGENVALUE_SUM_TOLERANCE},
    )


def labels_known(run: Run, cell: Cell) -> dg.AssetCheckResult:
    """Labels are missing for no larger share than the study allows."""
    rows = published_labels(run, cell).read(["label"])["label"]
    share = rows.null_count / max(1, len(rows))
    bound = run.study.bounds.missing_labels
    return dg.AssetCheckResult(
        passed=share <= bound or unlabelled(run, cell),
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"missing_share": share, "bound": bound},
    )


def both_classes(run: Run, cell: Cell) -> dg.AssetCheckResult:
    """The label rate lies inside (0, 1): with one class nothing can be learned or ranked."""
    known = [
        label
        for label in published_labels(run, cell).read(["label"])["label"].to_pylist()
        if label is not None
    ]
    rate = float(np.mean(known)) if known else float("nan")
    return dg.AssetCheckResult(
        passed=bool(0 < rate < 1) or unlabelled(run, cell),
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"label_rate": rate, "labels": len(known)},
    )


def rows_answered(run: Run, cell: Cell) -> dg.AssetCheckResult:
    """Rows in quarantine are no larger share than the study allows."""
    published = run.store.require("responses", Partition.of(model=cell.model, dataset=cell.dataset))
    failed = published.read(["status"])["status"].to_pylist().count("failed")
    share, bound = failed / max(1, published.rows), run.study.bounds.quarantined
    return dg.AssetCheckResult(
        passed=share <= bound,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"quarantined": failed, "share": share, "bound": bound},
    )


CHECKS = {
    "eigenvalue_sum": (eigenvalue_sum, "spectra", True),
    "labels_known": (labels_known, "labels", False),
    "both_classes": (both_classes, "labels", False),
    "rows_answered": (rows_answered, "responses", False),
}


def build(
    pairs: dg.MultiPartitionsDefinition, **assets: dg.AssetsDefinition
) -> list[dg.AssetChecksDefinition]:
    """The checks as Dagster knows them, each on its asset and for the same partitions."""
    return [_define(name, assets[asset], pairs, blocking) for name, (_, asset, blocking) in CHECKS.items()]


def _define(
    name: str, asset: dg.AssetsDefinition, pairs: dg.MultiPartitionsDefinition, blocking: bool
) -> dg.AssetChecksDefinition:
    function = CHECKS[name][0]

    @dg.asset_check(
        asset=asset, name=name, blocking=blocking, description=function.__doc__, partitions_def=pairs
    )
    def check(context: dg.AssetCheckExecutionContext, study: StudyResource) -> dg.AssetCheckResult:
        keys = context.partition_key.keys_by_dimension
        return function(study.open(), Cell(keys["model"], keys["dataset"]))

    return check
