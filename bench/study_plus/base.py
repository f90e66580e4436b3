"""`sgpu-base`, the model that ships: a line for answers and one for sets, fitted to all cells; its card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.study_plus.cells import TEXT_MODEL
from bench.study_plus.compare import Measured, zero_shot_losses
from bench.study_plus.forecasts import base_rows, fit_pool
from bench.study_plus.page import Results
from sgpu.fitted.model import LEAST_LABELS, READY, FittedModel
from sgpu.gp.content import ContentClassifier

TITLES = {
    "rows": "questions",
    "base_rate": "right",
    "auroc": "AUROC",
    "log_loss": "log loss",
    "ece": "ECE",
    "log_loss_base_rate": "log loss of the others' base rate",
    "log_loss_recalibrated": f"log loss after {LEAST_LABELS} labels",
}
LIMITS = (
    f"Short facts, asked of {TEXT_MODEL} and of a small image model, judged by their accepted names.",
    "It ranks. Its numbers are no probabilities for another model or other questions before `recalibrate`.",
    "A model that repeats itself and is wrong looks like one that is right.",
    "It says nothing of answers that are drawn from the prompt, and was not tried on long texts, code or "
    "chains of thought.",
)
Card = dict[str, dict[str, dict[str, float]]]  # label, cell, measure


def write_base(results: Results, folder: Path, page: Path) -> None:
    """Fit and save the model, with what forecasts of each cell from all others are worth."""
    tested = [cell for cell in results.cells if not cell.of.cell.declined]
    card = {
        label: {
            cell.of.name: describe_cell(
                results.unseen[label][cell.of.name],
                zero_shot_losses(results.zero_shot[label][READY][cell.of.name], cell.label(label)),
            )
            for cell in tested
            if cell.of.name in results.unseen[label]
        }
        for label in ("chosen", "other")
    }
    sets = fit_pool([base_rows(cell, "other") for cell in tested if cell.of.cell.set_labels])
    answers = fit_pool([base_rows(cell, "chosen") for cell in tested])
    provenance = {"name": READY, "trained_on": TEXT_MODEL, "limits": LIMITS, "left_out": card}
    FittedModel(
        content=ContentClassifier(sets, answers), provenance=provenance, calibrated=False
    ).save(folder)  # fmt: skip
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    page.write_text(render_card(card, size), encoding="utf-8")


def describe_cell(measured: Measured, losses: Mapping[str, float]) -> dict[str, float]:
    """Return what the card says of a cell that was left out."""
    return {
        "rows": measured.rows,
        "base_rate": measured.rate,
        **measured.values[READY],
        "log_loss_base_rate": losses["base rate"],
        "log_loss_recalibrated": losses[f"{LEAST_LABELS} labels"],
    }


def render_card(card: Card, size: int) -> str:
    """Return the page of the model."""
    parts = [
        f"# `{READY}`",
        f"The model that ships with the package ({size / 1000:.0f} kB), fitted to the cells of the "
        "[study](sgpu_plus.md) and written by `make study-plus`. It says which answer to show and with what "
        "confidence, and gives probabilities once it is recalibrated on labels of the user's own.",
        "It reads one number on a line: of an answer its mean overlap with the others, of a set the mean "
        "over its pairs. Without labels the confidence is that overlap. The AUROC below is that of both; "
        "log loss and ECE are those of the line, from which recalibration starts.",
        "The classifiers of four and two numbers that `sgpu fit` uses rank worse on cells that they have not "
        "seen ([results](sgpu_plus_results.md), zero-shot), so they are not shipped. That choice was made "
        "after the study.",
        "## What it cannot know",
        "\n".join(f"- {text}" for text in LIMITS),
    ]
    said = {"chosen": "The confidence in the chosen answer", "other": "The confidence in the set"}
    for label, cells in card.items():
        rows = [["cell", *TITLES.values()], ["---", *["---:"] * len(TITLES)]]
        for name, found in cells.items():
            shown = [f"{found[key]:.3f}" for key in TITLES if key != "rows"]
            rows.append([f"`{name}`", str(found["rows"]), *shown])
        parts += [
            f"## {said[label]}",
            "Measured on each cell by a model of all others; a paraphrased cell and its original are one.",
            "\n".join(f"| {' | '.join(row)} |" for row in rows),
        ]
    return "\n\n".join(parts) + "\n"
