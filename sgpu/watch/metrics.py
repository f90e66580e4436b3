"""A day in numbers by name, for MLflow and for Prometheus's node exporter."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from sgpu.logs.accounting import Accounting
from sgpu.storage.location import Location
from sgpu.tracking import open_tracker, store_address
from sgpu.visible import without_credentials
from sgpu.watch.challenger import compare_models
from sgpu.watch.sketch import Sketch, sorted_keys
from sgpu.watch.verdict import NUMBERS, Verdict

# The largest of these over all models and routes is kept by reference.
LARGEST = ("psi", "ks", "mmd", "sizes", "unsafe", "mean", "pooled_mean")


def day_metrics(
    sketch: Sketch, accounting: Accounting, verdict: Verdict, seconds: float | None = None
) -> dict[str, float]:
    """Counts, shares, the level (0 green, 1 yellow, 2 red, none if grey) and the largest effects.

    What is not known is not there: never 0 in its place.
    """
    whole = sketch.total()
    both = compare_models(whole)
    values: dict[str, float | None] = {
        "level": NUMBERS.get(verdict.level),
        "tested": float(verdict.level != "grey"),
        "seconds": seconds,
        "scoreable_share": accounting.scoreable_share,
        "bad_share": accounting.bad_share,
        "bad_file_share": accounting.bad_file_share,
        "scores": float(whole.rows),
        "mean_probability": whole.mean_probability,
        "unsafe_share": whole.unsafe_share,
        "accepted_share": whole.share("accepted", "decided"),
        "labelled": float(whole.counts["labelled"]),
        "right_share": whole.share("right", "labelled"),
        "champion_brier": both.brier[0],
        "challenger_brier": both.brier[1],
        "champion_auroc": both.auroc[0].value,
        "challenger_auroc": both.auroc[1].value,
    }
    for name in (
        "rows_in", "scored_rows", "quarantined", "duplicates", "already", "no_answer", "nested",
        "requests_scored", "together", "bytes_unread",
    ):  # fmt: skip
        values[name] = float(getattr(accounting, name))
    for measure in LARGEST:
        for reference in ("history", "training"):
            values[f"largest_{measure}_{reference}"] = largest_effect(verdict, measure, reference)
    return {name: value for name, value in values.items() if value is not None and math.isfinite(value)}


def largest_effect(verdict: Verdict, measure: str, reference: str) -> float | None:
    """Of a measure over all models and routes that were tested; None if none was."""
    return max(
        (
            finding.effect
            for finding in verdict.findings
            if (finding.measure, finding.reference) == (measure, reference) and finding.effect is not None
        ),
        default=None,
    )


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
    if store_address(tracking) == "none":
        return None
    try:
        from sgpu.tracking.store import bounded_requests

        with bounded_requests():
            if tracker := open_tracker(tracking or "auto", experiment):
                tracker.log_day(day, table, metrics, tags)
    except Exception as error:  # whatever a server, a driver or a full disk comes up with
        cause = error.__cause__ or error
        text = without_credentials(" ".join(str(cause).split()))[:SHOWN]
        return (
            f"MLflow has not got the metrics of {day}: {type(cause).__name__}: {text}. "
            "The scores are committed and the page is written; a later run for the day logs them."
        )
    return None


PREFIX = "sgpu_score_"
TEXTFILE = "metrics.prom"
DAY = "day_timestamp_seconds"
_DAY_LINE = re.compile(rb"^" + f"{PREFIX}{DAY}".encode() + rb" ([0-9.eE+]+)$", re.MULTILINE)
HELP: Mapping[str, str] = {
    "level": "Verdict on the day: 0 green, 1 yellow, 2 red; no value where it was not tested",
    "tested": "Whether the day's answers could be tested: 1 or 0",
    "seconds": "Duration of the run",
    "scoreable_share": "Requests scored, of those that carry an answer; rows without one are no_answer_rows",
    "together": "Rejected rows for which, as they are too many of one file, one row stands in quarantine",
    "bytes_unread": "Bytes of files above the bounds, which were not read",
    "nested": "Requests whose span lies in another with answers: one call may be counted as two",
    "bad_share": "Faulty rows, of the requests of the day",
    "bad_file_share": "Faulty files, of those that are logs",
    "scores": "Scores of the day in the table",
    "mean_probability": "Mean probability of being right",
    "unsafe_share": "Scores flagged unsafe, of all",
}


def metrics_text(
    sketch: Sketch,
    accounting: Accounting,
    verdict: Verdict,
    *,
    finished: float,
    day: float,
    seconds: float | None = None,
) -> bytes:
    """The text format, to be written by `Location.write_bytes`, which replaces the file whole.

    ``finished`` and ``day`` (its start, UTC) are seconds since 1970: alert on their age. Names of models and
    routes come from logs; the client escapes them, and a sketch bounds how many there are.
    """
    registry = CollectorRegistry()
    values = {
        **day_metrics(sketch, accounting, verdict, seconds),
        "finished_timestamp_seconds": finished,
        DAY: day,
    }
    for name, value in values.items():
        Gauge(PREFIX + name, HELP.get(name, name.replace("_", " ")), registry=registry).set(value)
    for name, words, label, counts in (
        ("quarantined_rows", "Rows in quarantine by reason", "reason", accounting.by_reason),
        (
            "file_faults",
            "Files that could not be read whole or are not logs, by reason",
            "reason",
            accounting.file_faults,
        ),
        ("no_answer_rows", "Rows that hold no answer, by kind", "kind", accounting.no_answer_by_kind),
    ):
        gauge = Gauge(PREFIX + name, words, [label], registry=registry)
        for member, count in sorted(counts.items()):
            gauge.labels(member).set(count)
    _by_group(registry, sketch)
    return bytes(generate_latest(registry))


def write_newest(out: Location, text: bytes) -> None:
    """Put a day's `metrics_text` at ``out``/metrics.prom, unless a later day stands there.

    Each day has its own file with the same metrics, of which a collector can only read one; this one stays
    where it is, and days that are looked at again do not take it back. Also in object storage, from where it
    has to be copied to a folder that a collector reads.
    """
    path = out / TEXTFILE
    try:
        before = read_day_start(path.read_bytes())
    except FileNotFoundError:
        before = None
    if before is None or before <= (read_day_start(text) or 0.0):
        path.write_bytes(text)


def read_day_start(text: bytes) -> float | None:
    """Return the start of a textfile's day in seconds since 1970; None if it does not say."""
    match = _DAY_LINE.search(text)
    try:
        return None if match is None else float(match[1])
    except ValueError:
        return None


def _by_group(registry: CollectorRegistry, sketch: Sketch) -> None:
    labels = ["model", "route"]
    rows = Gauge(PREFIX + "route_scores", "Scores by model and route", labels, registry=registry)
    mean = Gauge(PREFIX + "route_mean_probability", "Mean probability", labels, registry=registry)
    unsafe = Gauge(PREFIX + "route_unsafe_share", "Share flagged unsafe", labels, registry=registry)
    for key in sorted_keys(sketch.groups):
        group = sketch.groups[key]
        names = [name or "" for name in key]
        rows.labels(*names).set(group.rows)
        if group.mean_probability is not None and group.unsafe_share is not None:
            mean.labels(*names).set(group.mean_probability)
            unsafe.labels(*names).set(group.unsafe_share)
