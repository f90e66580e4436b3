"""Metrics with honest intervals: arrays in, arrays out; higher confidence = more trustworthy."""

from sgpu.evaluation.agreement import Agreement, agreement
from sgpu.evaluation.bootstrap import Difference, Interval, bootstrap, paired_bootstrap
from sgpu.evaluation.calibration import ReliabilityCurve, brier, ece, log_loss, reliability_curve
from sgpu.evaluation.cell import EvaluationSettings, MetricRow, evaluate_cell
from sgpu.evaluation.comparison import ComparisonRow, compare_cell, holm
from sgpu.evaluation.delong import AreaDifference, delong
from sgpu.evaluation.mapping import UndefinedMap, fit_mapping
from sgpu.evaluation.ranking import (
    RetentionCurve,
    auarc,
    auarc_20,
    auroc,
    retention_curve,
    selective_accuracy,
)

__all__ = [
    "Agreement",
    "AreaDifference",
    "ComparisonRow",
    "Difference",
    "EvaluationSettings",
    "Interval",
    "MetricRow",
    "ReliabilityCurve",
    "RetentionCurve",
    "UndefinedMap",
    "agreement",
    "auarc",
    "auarc_20",
    "auroc",
    "bootstrap",
    "brier",
    "compare_cell",
    "delong",
    "ece",
    "evaluate_cell",
    "fit_mapping",
    "holm",
    "log_loss",
    "paired_bootstrap",
    "reliability_curve",
    "retention_curve",
    "selective_accuracy",
]
