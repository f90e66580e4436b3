"""One page for one day: names come from logs, so they are data, escaped by Jinja2 wherever they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from sgpu.errors import DataError
from sgpu.evaluation.inputs import Floats
from sgpu.fitted.profile import BINS
from sgpu.report.daily import counts, findings, groups
from sgpu.report.daily.charts import COLOURS, REFERENCE_COLOURS, probability_figure, trail_figure
from sgpu.report.daily.facts import as_yaml, facts, mapping, window
from sgpu.report.daily.headline import notes, sentence, tiles
from sgpu.report.daily.trail import Line, lines, table
from sgpu.report.look import numbers
from sgpu.report.look.svg import inline
from sgpu.report.study.page import TEMPLATES, environment_of
from sgpu.visible import visible
from sgpu.watch.challenger import Duel, Interval, champion_auroc, duel
from sgpu.watch.history import PastDay, Trail
from sgpu.watch.sketch import Sketch
from sgpu.watch.verdict import Verdict


def daily_page(summary: Mapping[str, Any], trail: Trail) -> str:
    """The page of the day of ``summary`` beside the days of ``trail``, as HTML without scripts or resources.

    Of the summary it also takes, where they are there: ``quarantine`` (reason -> first rows, each with file,
    line and detail), ``training`` with a ``histogram`` of held-out probabilities (50,), and ``thresholds``.
    Raises DataError for a summary that cannot be read.
    """
    today, days = PastDay.of(summary), window(summary)
    verdict = today.verdict or Verdict("grey")
    made = lines(today, trail.days, days)
    past = [one.sketch for one in trail.days]
    return (
        _environment()
        .get_template("daily.html.j2")
        .render(
            day=today.day,
            level=verdict.level if today.verdict else None,
            words=findings.WORDS,
            colours=COLOURS,
            summary=sentence(today),
            tiles=tiles(today, past),
            reasons=findings.reasons(verdict),
            notes=notes(today, trail, days, _bound(summary)),
            counts=counts.count_rows(today.accounting),
            accounted=counts.accounted(today.accounting),
            accounting=today.accounting,
            quarantine=counts.quarantine_rows(today.accounting, mapping(summary, "quarantine")),
            probabilities=_probabilities(today.sketch, past, _training(summary)),
            groups=groups.group_rows(today.sketch, groups.same_model(today.sketch, past), verdict),
            intake=findings.intake(verdict),
            tests=findings.tests(verdict),
            untested=findings.untested(verdict),
            duels=_duels(today.sketch, past),
            lines=[(line, _chart(line)) for line in made],
            days=table(made),
            window=days,
            settings=as_yaml(mapping(summary, "settings")),
            thresholds=as_yaml(mapping(summary, "thresholds")) if mapping(summary, "thresholds") else None,
            formats=sorted(today.accounting.by_format.items(), key=lambda item: (-item[1], item[0])),
            facts=facts(summary),
        )
    )


def _environment() -> Any:
    environment = environment_of(TEMPLATES)
    environment.filters.update(
        decimals=numbers.decimals,
        interval=numbers.interval,
        percent=numbers.percent,
        p_value=numbers.probability,
        count=numbers.count,
        signed=numbers.signed,
        visible=visible,
    )
    return environment


def _probabilities(
    today: Sketch, past: Sequence[Sketch], training: Floats | None
) -> tuple[Any, list[tuple[str, str, int]]] | None:
    """The figure and its legend: (colour, name, rows)."""
    if not today.rows:
        return None
    references = {}
    before = groups.histogram(groups.same_model(today, past))
    if before.any():
        references["history"] = before
    if training is not None and training.any():
        references["training"] = training
    names = {"history": "past days of this model", "training": "held-out rows of its training"}
    legend = [("accent", "today", today.rows)]
    legend += [(REFERENCE_COLOURS[key], names[key], int(rows.sum())) for key, rows in references.items()]
    figure = probability_figure(groups.histogram([today]), references)
    return inline(figure, "probabilities", "Probabilities today and before"), legend


def _chart(line: Line) -> Markup | None:
    """None where no day has a value."""
    if all(value is None for value in line.values):
        return None
    return inline(trail_figure(line), f"trail-{line.name}", f"{line.title} over the days")


def _bound(summary: Mapping[str, Any]) -> float | None:
    """The share of rows that the run allowed in quarantine."""
    value = mapping(summary, "settings").get("max_bad")
    return float(value) if isinstance(value, int | float) else None


def _training(summary: Mapping[str, Any]) -> Floats | None:
    counts = mapping(summary, "training").get("histogram")
    if counts is None:
        return None
    if not isinstance(counts, list) or len(counts) != BINS:
        raise DataError(f"the training histogram of a summary has not {BINS} counts; score the day again")
    return np.array(counts, dtype=np.float64)


def _duels(today: Sketch, past: Sequence[Sketch]) -> list[tuple[str, Duel, Interval, float | None, int]]:
    """Today, and with the past days of the same two models, where there are labels.

    (title, both models on their common rows, the champion's AUROC and Brier score on all, labelled rows).
    """
    same = [sketch for sketch in groups.same_model(today, past) if sketch.challengers <= today.challengers]
    found = []
    for title, sketches in (("Today", [today]), (f"Today and {len(same)} past days", [*same, today])):
        group = groups.labelled(sketches)
        rows = group.counts["labelled"]
        if rows and (title == "Today" or same):
            brier = group.mean("squared_error", "labelled")
            found.append((title, duel(group), champion_auroc(group), brier, rows))
    return found
