"""The page of one day: names come from logs, so they are data, escaped by Jinja2 wherever they stand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
from markupsafe import Markup

from sgpu.errors import DataError
from sgpu.evaluation.inputs import Floats
from sgpu.fitted.profile import BINS
from sgpu.report.daily import PAGE, counts, findings
from sgpu.report.daily.charts import (
    COLOURS,
    REFERENCE_COLOURS,
    TrendLine,
    daily_probability_figure,
    lines,
    tabulate_trends,
    trail_figure,
)
from sgpu.report.look import as_yaml, template
from sgpu.report.look.svg import inline
from sgpu.storage.location import Location
from sgpu.visible import controls_shown, visible, without_credentials
from sgpu.watch.challenger import ModelComparison, NormalInterval, champion_auroc, compare_models
from sgpu.watch.comparisons import MEASURES
from sgpu.watch.history import PastDay, PastDays, read_past_days, read_summary, summary_place
from sgpu.watch.sketch import MOST_MODELS, MOST_ROUTES, OTHER, Sketch
from sgpu.watch.verdict import Verdict

# What the page shows elsewhere, or what is not for reading.
_ELSEWHERE = {
    "accounting", "sketch", "verdict", "settings", "thresholds", "date", "quarantine", "training", "tracked",
    "formats",
}  # fmt: skip


def mapping(summary: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of a summary; empty where there is none."""
    value = summary.get(name)
    return value if isinstance(value, Mapping) else {}


def window(summary: Mapping[str, Any]) -> int:
    """Return how many days back the verdict looked. Raises DataError for what is not a number of days."""
    days = mapping(summary, "thresholds").get("days")
    if isinstance(days, bool) or not isinstance(days, int) or days < 1:
        raise DataError(f"a summary looked back {ascii(days)[:40]} days; score the day again")
    return days


def facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Model, snapshot, times and versions of the run, as (name, text)."""
    pairs = []
    for key, value in summary.items():
        if key in _ELSEWHERE or value is None:
            continue
        for name, item in value.items() if isinstance(value, Mapping) else [("", value)]:
            text = item if isinstance(item, str) else json.dumps(item)
            pairs.append((public(f"{key} {name}".replace("_", " ").strip()), public(text)))
    return pairs


def public(text: str) -> str:
    """Without user and password of an address, and with control characters made visible; not yet escaped."""
    return controls_shown(without_credentials(text))


def daily_page(summary: Mapping[str, Any], trail: PastDays) -> str:
    """The page of the day of ``summary`` beside the days of ``trail``, as HTML without scripts or resources.

    Of the summary it also takes, where they are there: ``quarantine`` (reason -> first rows, each with file,
    line and detail), ``training`` with a ``histogram`` of held-out probabilities (50,), and ``thresholds``.
    Raises DataError for a summary that cannot be read.
    """
    today, days = PastDay.of(summary), window(summary)
    verdict = today.verdict or Verdict("grey")
    made = lines(today, trail.days, days)
    same = counts.same_model(today.sketch, trail.sketches)
    return template("daily.html.j2", as_yaml=as_yaml, public=public).render(
        findings=findings,
        counts=counts,
        measures=MEASURES,
        today=today,
        verdict=verdict,
        level=verdict.level if today.verdict else None,
        colours=COLOURS,
        same=same,
        trail=trail,
        max_bad=_bound(summary, "max_bad"),
        max_bad_files=_bound(summary, "max_bad_files"),
        other_models=sum(sketch.rows > 0 for sketch in trail.sketches) - len(same),
        wide=sorted(visible(model or "no model named") for model in today.sketch.wide),
        most=(MOST_ROUTES, MOST_MODELS),
        gathered=OTHER,
        quarantine=counts.quarantine_rows(today.accounting, mapping(summary, "quarantine")),
        probabilities=_probabilities(today.sketch, same, _training(summary)),
        duels=_duels(today.sketch, same),
        lines=[(line, _chart(line)) for line in made],
        days=tabulate_trends(made),
        window=days,
        settings=mapping(summary, "settings"),
        thresholds=mapping(summary, "thresholds"),
        formats=sorted(today.accounting.by_format.items(), key=lambda item: (-item[1], item[0])),
        facts=facts(summary),
    )


def _probabilities(
    today: Sketch, past: Sequence[Sketch], training: Floats | None
) -> tuple[Any, list[tuple[str, str, int]]] | None:
    """The figure and its legend: (colour, name, rows)."""
    if not today.rows:
        return None
    references = {}
    before = counts.histogram(past)
    if before.any():
        references["history"] = before
    if training is not None and training.any():
        references["training"] = training
    names = {"history": "past days of this model", "training": "held-out rows of its training"}
    legend = [("accent", "today", today.rows)]
    legend += [(REFERENCE_COLOURS[key], names[key], int(rows.sum())) for key, rows in references.items()]
    figure = daily_probability_figure(counts.histogram([today]), references)
    return inline(figure, "probabilities", "Probabilities today and before"), legend


def _chart(line: TrendLine) -> Markup | None:
    """None where no day has a value."""
    if all(value is None for value in line.values):
        return None
    return inline(trail_figure(line), f"trail-{line.name}", f"{line.title} over the days")


def _bound(summary: Mapping[str, Any], name: str) -> float | None:
    """Return the share of faulty rows or files that the settings of the run allowed."""
    value = mapping(summary, "settings").get(name)
    return float(value) if isinstance(value, int | float) else None


def _training(summary: Mapping[str, Any]) -> Floats | None:
    counts = mapping(summary, "training").get("histogram")
    if counts is None:
        return None
    if not isinstance(counts, list) or len(counts) != BINS:
        raise DataError(f"the training histogram of a summary has not {BINS} counts; score the day again")
    return np.array(counts, dtype=np.float64)


def _duels(
    today: Sketch, past: Sequence[Sketch]
) -> list[tuple[str, ModelComparison, NormalInterval, float | None, int]]:
    """Today, and with the past days of the same two models, where there are labels.

    (title, both models on their common rows, the champion's AUROC and Brier score on all, labelled rows).
    """
    same = [sketch for sketch in past if sketch.challengers <= today.challengers]
    duels = []
    for title, sketches in (("Today", [today]), (f"Today and {len(same)} past days", [*same, today])):
        group = counts.labelled(sketches)
        rows = group.counts["labelled"]
        if rows and (title == "Today" or same):
            brier = group.mean("squared_error", "labelled")
            duels.append((title, compare_models(group), champion_auroc(group), brier, rows))
    return duels


def write_daily_page(out: Location, day: date) -> Location:
    """Write ``days/<day>/index.html`` beside the day's summary, whole or not at all; return its place.

    The days before are read as far back as the verdict looked. The same summaries give the same bytes. Raises
    DataError where the day has no summary, or none that can be read.
    """
    path = summary_place(out, day)
    if (summary := read_summary(out, day)) is None:
        raise DataError(f"{path} does not exist; score {day} first")
    html = daily_page(summary, read_past_days(out, day, window(summary)))
    page = path.parent / PAGE
    page.write_bytes(html.encode("utf-8", "backslashreplace"))
    return page
