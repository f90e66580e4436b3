"""The metrics of a day in MLflow: wanted, but never worth a failed night."""

from __future__ import annotations

from collections.abc import Mapping

from sgpu.addresses import without_credentials
from sgpu.tracking import open_tracker
from sgpu.tracking.bounds import bounded_requests

EXPERIMENT = "sgpu-scoring"
SHOWN = 300  # characters of an error


def log_to_mlflow(
    tracking: str | None,
    day: str,
    table: str,
    metrics: Mapping[str, float],
    tags: Mapping[str, str] | None = None,
    experiment: str = EXPERIMENT,
) -> str | None:
    """Log `sgpu.watch.metrics.day_metrics` of a day; return a warning if that did not work.

    ``tracking`` is as in `sgpu.tracking.store_address`. Raises nothing: the scores are committed by then.
    """
    try:
        with bounded_requests():
            open_tracker(tracking or "auto", experiment).log_day(day, table, metrics, tags)
    except Exception as error:  # whatever a server, a driver or a full disk comes up with
        cause = error.__cause__ or error
        text = without_credentials(" ".join(str(cause).split()))[:SHOWN]
        return (
            f"MLflow has not got the metrics of {day}: {type(cause).__name__}: {text}. "
            "The scores are committed and the page is written; a later run for the day logs them."
        )
    return None
