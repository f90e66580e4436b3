"""Reads what `sgpu score` has written, and writes what of it must not change from run to run."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
from polars import selectors

from tests.golden.stored import write_csv, write_json

# Who wrote a row, and its models, which the summary names.
OF_THE_RUN = (
    "run_key", "code_version", "scorer", "scorer_sha256", "encoder", "encoder_sha256", "shadow_scorer",
)  # fmt: skip
# Sums are kept in steps of 2^-32; as whole numbers they would have to be equal to the last step.
STEP = 2**-32
SUMS = ("probability", "squared_error", "shadow_probability", "shadow_squared_error", "gain", "gain_squared")
COUNTS = (
    "rows_in", "scored_rows", "quarantined", "duplicates", "no_answer", "prompts", "requests_scored",
    "by_reason",
)  # fmt: skip
DIGITS = 9


def write_night(written: Path, out: Path, truth: Mapping[str, Any] | None = None) -> None:
    """Tables, summaries and metrics of the output folder ``written`` as text below ``out``.

    ``truth``: by day the counts that its logs were made to have.
    """
    scores(written).write_csv(out / "scores.csv")
    quarantine(written).write_csv(out / "quarantine.csv")
    days = sorted((written / "days").iterdir())
    summaries = {day.name: json.loads((day / "summary.json").read_bytes()) for day in days}
    for day, content in summaries.items():
        write_json(summary(content, (truth or {}).get(day)), out / "days" / f"{day}.json")
    bounds = [(content["thresholds"], content["training"]) for content in summaries.values()]
    write_json([pair for place, pair in enumerate(bounds) if pair not in bounds[:place]], out / "bounds.json")
    write_csv((row for content in summaries.values() for row in findings(content)), out / "findings.csv")
    write_csv((row for content in summaries.values() for row in groups(content)), out / "groups.csv")
    write_csv(
        ({"day": day.name, "metric": name, "value": value} for day in days for name, value in metrics(day)),
        out / "metrics.csv",
    )


def scores(written: Path) -> pl.DataFrame:
    """Rows in order of day and request; a spectrum as its size and its sum of squares."""
    squares = pl.col("spectrum").list.eval(pl.element() ** 2).list.sum()
    return (
        pl.read_delta(str(written / "scores"))
        .with_columns(
            pl.col("timestamp").dt.to_string("iso:strict"),
            pl.col("content_sha256").str.head(12),
            pl.col("members").list.join(" "),
            spectrum_squares=squares,
            spectrum_size=pl.col("spectrum").list.len(),
        )
        .drop("spectrum", *OF_THE_RUN)
        .with_columns(selectors.float().round(DIGITS))
        .sort("date", "model", "request_id")
    )


def quarantine(written: Path) -> pl.DataFrame:
    """Rows in order of day, file and line."""
    return (
        pl.read_delta(str(written / "quarantine"))
        .with_columns(pl.col("timestamp").dt.to_string("iso:strict"))
        .drop("run_key", "code_version")
        .sort("date", "file", "line", "request_id")
    )


def summary(content: Mapping[str, Any], truth: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Counts and verdict of a summary.json without times, places and hashes; why how much was not tested."""
    counted = content["accounting"]
    labels = {name: value for name, value in content["labels"].items() if name not in ("until", "sha256")}
    grey = (finding["text"] for finding in content["verdict"]["findings"] if finding["level"] == "grey")
    return {
        **{name: content[name] for name in ("date", "formats", "accounting", "quarantine")},
        "labels": labels,
        "models": {role: content[role] and content[role]["label"] for role in ("scorer", "challenger")},
        "files": content["snapshot"]["files"],
        "level": content["verdict"]["level"],
        "not_tested": dict(sorted(Counter(re.sub(r"\d+", "N", text) for text in grey).items())),
        "not_as_the_logs_were_made": [name for name in COUNTS if truth and counted[name] != truth[name]],
    }


def findings(content: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What was tested of a day."""
    for finding in content["verdict"]["findings"]:
        if finding["level"] != "grey":
            yield {"day": content["date"], **finding}


def groups(content: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What is kept of the rows of each model and route, but for samples of them in half precision."""
    for group in content["sketch"]["groups"]:
        counts = {name: value * STEP if name in SUMS else value for name, value in group["counts"].items()}
        kept = {name: value for name, value in group.items() if name != "sample"}
        yield {"day": content["date"], **kept, "counts": counts}


def metrics(day: Path) -> Iterator[tuple[str, float]]:
    """Name with labels, and value, of metrics.prom; without clock times and durations."""
    for line in (day / "metrics.prom").read_text("utf-8").splitlines():
        name, _, value = line.rpartition(" ")
        if not line.startswith("#") and not name.endswith("seconds"):
            yield name, float(value)


def shown(printed: str, work: Path) -> str:
    """What `sgpu score` printed in ``work``, without the column of seconds and spaces that depend on it."""
    said = printed.replace(f"{work}/", "").splitlines()
    # Indented lines are of progress, and come where the work takes long.
    lines = (re.sub(r" +", " ", line).rstrip() for line in said if not line.startswith(" "))
    seconds = re.compile(r"^(\d{4}-\d\d-\d\d .*?) \d+\.\d( [a-z]|$)")
    return "".join(seconds.sub(r"\1\2", line) + "\n" for line in lines)
