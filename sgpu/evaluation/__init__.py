"""Metrics with honest intervals: arrays in, arrays out; higher confidence = more trustworthy."""

from sgpu.evaluation.agreement import Agreement, agreement
from sgpu.evaluation.auarc import RetentionCurve, auarc, auarc_20, retention_curve, selective_accuracy
from sgpu.evaluation.auroc import auroc
from sgpu.evaluation.bootstrap import Interval, bootstrap
from sgpu.evaluation.calibration import ReliabilityCurve, brier, ece, log_loss, reliability_curve
from sgpu.evaluation.cell import EvaluationSettings, MetricRow, evaluate_cell
from sgpu.evaluation.comparison import ComparisonRow, compare_cell
from sgpu.evaluation.delong import AreaDifference, delong
from sgpu.evaluation.holm import holm
from sgpu.evaluation.mapping import UndefinedMap, fit_mapping
from sgpu.evaluation.paired import Difference, paired_bootstrap

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
