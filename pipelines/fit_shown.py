"""What a person sees of a fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from sgpu.evaluation.delong import few_rows_caution
from sgpu.fitted.model import FittedModel
from sgpu.fitted.risk_control import rows_needed
from sgpu.tracking import RegisteredFit
from sgpu.watch import Thresholds

MEASURES = {"auroc": "AUROC", "ece": "ECE", "brier": "Brier score", "accuracy": "share that is right"}


def show_fit(console: Console, facts: Mapping[str, Any], notes: Sequence[str]) -> None:
    """A short table of what stands in metrics.json."""
    rows = facts["rows"]
    table = Table(f"held out: {rows['test']} rows", title_justify="left")
    table.add_column("value", justify="right")
    table.add_column("95 % interval", justify="right")
    for row in facts["metrics"]:
        if row["metric"] in MEASURES:
            interval = "" if row["lo"] is None else f"{row['lo']:.3f} to {row['hi']:.3f}"
            value = "not defined" if row["value"] is None else f"{row['value']:.3f}"
            table.add_row(MEASURES[row["metric"]], value, interval)
    console.print(table)
    left_out = ", ".join(f"{count} {why}" for why, count in facts["left_out"].items() if count)
    answers = ", ".join(facts["answers"])
    console.print(
        f"{rows['train']} rows trained on, {rows['validation']} kept for the cut; sets of {answers} answers; "
        f"left out: {left_out or 'none'}",
        markup=False,
        soft_wrap=True,
    )
    for line in [*_caution(facts), *notes, *_rule(facts)]:
        console.print(line, markup=False, soft_wrap=True)


def _caution(facts: Mapping[str, Any]) -> list[str]:
    """A word on measures of few held-out rows."""
    counts = [(row["value"], row["n"]) for row in facts["metrics"] if row["metric"] == "accuracy"]
    if not counts or counts[0][0] is None:
        return []
    right = round(counts[0][0] * counts[0][1])
    text = few_rows_caution(right, counts[0][1] - right)
    return [f"held out: {text}"] if text else []


def profile_notes(model: FittedModel) -> list[str]:
    """What the watch of `sgpu score` cannot compare days with, for want of rows."""
    profile, least = model.profile, Thresholds().min_rows
    if profile is None:
        return []
    sides = {"training": len(profile.shares), "held-out": profile.held_out_rows}
    few = [f"{rows} {side} rows" for side, rows in sides.items() if rows < least]
    if not few:
        return []
    return [
        f"the model's profile holds {' and '.join(few)}: `sgpu score` compares days with the training by "
        f"their mean probability only; all tests need {least} rows of each"
    ]


def show_version(console: Console, version: RegisteredFit, alias: str, promoted: bool) -> None:
    """Which version the model has become, and how to make it the champion unless that is done."""
    what = "" if version.created else " (the same files were registered before)"
    console.print(
        f"registered as {version.name} version {version.version}{what}, alias {alias}."
        + ("" if promoted else f" Champion: sgpu model promote {version.name} {version.version}"),
        markup=False,
        soft_wrap=True,
    )


def _percent(share: float) -> str:
    """Not rounded: 99.5 % is not 100 %, and 0.05 % is not 0.1 %."""
    return f"{round(100 * share, 9):.12g}%"


def _calibration(facts: Mapping[str, Any]) -> str:
    """The rows that the cut was chosen on, and why they are fewer than were set apart."""
    used, kept = facts["rule"]["n_calibration"], facts["rows"]["validation"]
    return f"{used} calibration rows" + (f" (of {kept}: one of each group)" if used < kept else "")


def _rule(facts: Mapping[str, Any]) -> list[str]:
    rule = facts["rule"]
    if rule is None:
        return []
    aim = f"at most {_percent(rule['target_error'])} wrong with confidence {_percent(rule['confidence'])}"
    if rule["cut"] is None:
        least = rows_needed(rule["target_error"], round(1 - rule["confidence"], 12))
        return [
            f"no cut holds {aim} on {_calibration(facts)}. It would have to accept "
            f"{least} or more of them, nearly all of them right. Label more rows, or allow more errors."
        ]
    accepted, wrong = rule["test_accepted"], rule["test_accepted_wrong"]
    return [
        f"accept from probability {rule['cut']:.3f}: {aim}, by {_calibration(facts)}; of "
        f"the held-out rows it accepts {accepted}, of which {wrong} are wrong"
    ]
