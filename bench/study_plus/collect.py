"""Forecasts of all cells on all cores, kept in files, so that a repeated command goes on."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path

import numpy as np

from bench.study_plus.answers import LABELS, CellAnswers, Floats, ScoredAnswers, load_cells
from bench.study_plus.cells import CELLS
from bench.study_plus.compare import PAPER, PLUS, Measured, measure
from bench.study_plus.forecasts import (
    Forecast,
    ZeroShot,
    base_rows,
    content_rows,
    forecast_rivals,
    forecast_within,
    forecast_zero_shot,
    spectrum_rows,
)
from bench.study_plus.page import Results
from sgpu.fitted.model import READY
from sgpu.provenance import available_cores

SIZES = (5, 10)
ROWS_OF = {PAPER: spectrum_rows, PLUS: content_rows, READY: base_rows}


def collect_results(out: Path) -> Results:
    """Forecast what is not forecast yet, on all cores, and measure it."""
    cells = loaded_cells(out)
    tested = [cell for cell in cells if not cell.cell.declined]
    due = [
        partial(forecasts_of, out, cell.name, n, label)
        for n in SIZES
        for cell in tested
        for label in labels_of(cell)
    ]
    due += [
        partial(zero_shot_of, out, cell.name, label, method)
        for label in LABELS
        for method in ROWS_OF
        for cell in tested
        if label in labels_of(cell)
    ]
    _run_all(due)
    within: dict[int, dict[str, dict[str, Measured]]] = {
        n: {
            label: {
                cell.name: found
                for cell in tested
                if label in labels_of(cell)
                and (found := measure(forecasts_of(out, cell.name, n, label), cell.scored(n).label(label)))
            }
            for label in LABELS
        }
        for n in SIZES
    }
    zero_shot = {
        label: {
            method: {
                cell.name: zero_shot_of(out, cell.name, label, method)
                for cell in tested
                if label in labels_of(cell)
            }
            for method in ROWS_OF
        }
        for label in LABELS
    }
    unseen = {
        label: {
            cell.name: found
            for cell in tested
            if label in labels_of(cell) and (found := measure_unseen(out, cell.name, label))
        }
        for label in LABELS
    }
    return Results([cell.scored(max(SIZES)) for cell in cells], within, zero_shot, unseen)


def measure_unseen(out: Path, name: str, label: str) -> Measured | None:
    """Measure all methods on a cell that none was trained on."""
    others, target = split_cells(out, name, label)
    shots = {method: zero_shot_of(out, name, label, method).probability for method in ROWS_OF}
    # Where a question is declined, the classifier of spectra answers, as for a user.
    filled = {method: np.where(np.isnan(p), shots[PAPER], p) for method, p in shots.items()}
    trained = {method: Forecast(p, p) for method, p in filled.items()}
    return measure(forecast_rivals(others, target, label) | trained, target.label(label))


def split_cells(out: Path, name: str, label: str) -> tuple[list[ScoredAnswers], ScoredAnswers]:
    """Return the cells that are trained on for a cell, of other families, and the cell."""
    scored = {cell.name: cell.scored(max(SIZES)) for cell in loaded_cells(out)}
    target = scored[name]
    others = [
        cell
        for cell in scored.values()
        if not cell.of.cell.declined and label in labels_of(cell.of) and cell.of.family != target.of.family
    ]
    return others, target


def labels_of(cell: CellAnswers) -> Sequence[str]:
    """Return the labels that mean something for a cell."""
    return LABELS if cell.cell.set_labels else ("chosen", "first")


@cache
def loaded_cells(out: Path) -> tuple[CellAnswers, ...]:
    """Load the cells once in each process."""
    return tuple(load_cells(out, CELLS))


def forecasts_of(out: Path, name: str, n: int, label: str) -> dict[str, Forecast]:
    """Return the forecasts within a cell, from their file if they are there."""
    cell = next(cell for cell in loaded_cells(out) if cell.name == name).scored(n)

    def make() -> dict[str, Floats]:
        return {method: np.stack(one) for method, one in forecast_within(cell, label).items()}

    stored = _stored(out / "forecasts" / f"{name}-{n}-{label}.npz", make)
    return {method: Forecast(*parts) for method, parts in stored.items()}


def zero_shot_of(out: Path, name: str, label: str, method: str) -> ZeroShot:
    """Return the forecasts for a cell from all others, from their file if they are there."""
    others, target = split_cells(out, name, label)

    def make() -> dict[str, Floats]:
        shot = forecast_zero_shot(
            lambda cell: ROWS_OF[method](cell, label), others, target, target.label(label)
        )
        drawn = {str(n): draws for n, draws in shot.recalibrated.items()}
        return {
            "p": shot.probability, "wide": shot.widened, "base": np.array(shot.base_rate), **drawn
        }  # fmt: skip

    stored = _stored(out / "zero-shot" / f"{name}-{label}-{method}.npz", make)
    recalibrated = {int(key): draws for key, draws in stored.items() if key.isdecimal()}
    return ZeroShot(stored["p"], stored["wide"], float(stored["base"]), recalibrated)


def _stored(file: Path, make: Callable[[], Mapping[str, Floats]]) -> dict[str, Floats]:
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(".draft.npz")
        np.savez_compressed(draft, **make())
        draft.replace(file)
    with np.load(file, allow_pickle=False) as content:
        return dict(content)


def _run_all(due: Iterable[Callable[[], object]]) -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(available_cores(), context, initializer=_use_one_thread) as pool:
        running = [pool.submit(task) for task in due]
        for number, future in enumerate(running, 1):
            future.result()
            print(f"forecasts {number} of {len(running)}", flush=True)


def _use_one_thread() -> None:
    import torch

    torch.set_num_threads(1)
