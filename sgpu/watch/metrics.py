"""A day in numbers by name, for MLflow and Prometheus."""

from __future__ import annotations

import math

from sgpu.logs.accounting import Accounting
from sgpu.watch.challenger import duel
from sgpu.watch.sketch import Sketch
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
    both = duel(whole)
    values: dict[str, float | None] = {
        "level": NUMBERS.get(verdict.level),
        "tested": float(verdict.level != "grey"),
        "seconds": seconds,
        "scoreable_share": accounting.scoreable_share,
        "bad_share": accounting.bad_share,
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
