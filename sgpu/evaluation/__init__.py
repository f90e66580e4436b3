"""Metrics with honest intervals: arrays in, arrays out; higher confidence = more trustworthy."""

from sgpu.evaluation.agreement import Agreement, agreement
from sgpu.evaluation.auarc import RetentionCurve, auarc, auarc_20, retention_curve, selective_accuracy
from sgpu.evaluation.auroc import auroc
from sgpu.evaluation.bootstrap import Interval, bootstrap
from sgpu.evaluation.calibration import ReliabilityCurve, brier, ece, log_loss, reliability_curve
from sgpu.evaluation.cell import EvaluationSettings, MetricRow, evaluate_cell
from sgpu.evaluation.mapping import fit_mapping

__all__ = [
    "Agreement",
    "EvaluationSettings",
    "Interval",
    "MetricRow",
    "ReliabilityCurve",
    "RetentionCurve",
    "agreement",
    "auarc",
    "auarc_20",
    "auroc",
    "bootstrap",
    "brier",
    "ece",
    "evaluate_cell",
    "fit_mapping",
    "log_loss",
    "reliability_curve",
    "retention_curve",
    "selective_accuracy",
]
