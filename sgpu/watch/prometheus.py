"""A day as a textfile for Prometheus's node exporter."""

from __future__ import annotations

import re
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from sgpu.logs.accounting import Accounting
from sgpu.storage.location import Location
from sgpu.watch.metrics import day_metrics
from sgpu.watch.sketch import Sketch, sorted_keys
from sgpu.watch.verdict import Verdict

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
    "bad_share": "Faulty rows or files, of all",
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
        ("file_faults", "Files that could not be read whole, by reason", "reason", accounting.file_faults),
        ("no_answer_rows", "Rows that hold no answer, by kind", "kind", accounting.no_answer_by_kind),
    ):
        _by_label(registry, name, words, label, counts)
    _by_group(registry, sketch)
    return bytes(generate_latest(registry))


def write_newest(out: Location, text: bytes) -> None:
    """Put a day's `metrics_text` at ``out``/metrics.prom, unless a later day stands there.

    Each day has its own file with the same metrics, of which a collector can only read one; this one stays
    where it is, and days that are looked at again do not take it back. Also in object storage, from where it
    has to be copied to a folder that a collector reads.
    """
    place = out / TEXTFILE
    try:
        before = day_of(place.read_bytes())
    except FileNotFoundError:
        before = None
    if before is None or before <= (day_of(text) or 0.0):
        place.write_bytes(text)


def day_of(text: bytes) -> float | None:
    """The start of the day that a textfile is of, in seconds since 1970; None if it does not say."""
    found = _DAY_LINE.search(text)
    try:
        return None if found is None else float(found[1])
    except ValueError:
        return None


def _by_label(
    registry: CollectorRegistry, name: str, words: str, label: str, counts: Mapping[str, int]
) -> None:
    gauge = Gauge(PREFIX + name, words, [label], registry=registry)
    for value, count in sorted(counts.items()):
        gauge.labels(value).set(count)


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
