"""Transfer stage: every classifier that a transfer study asks for, and what it says of its target.

Finished cells are read; nothing is sampled, judged or encoded, and no language model is loaded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain, groupby
from typing import Any

import numpy as np
import polars as pl

from sgpu.evaluation.inputs import Floats
from sgpu.gp.kernels import KERNELS
from sgpu.hashing import derived_seed
from sgpu.provenance import code_version
from sgpu.stages.cell_frame import aligned, floats
from sgpu.stages.run import as_settings
from sgpu.stages.transfer_fits import Due, fit_all, forecast, losses_of
from sgpu.stages.transfer_sources import TransferRun
from sgpu.storage.parquet_files import opened
from sgpu.storage.store import Partition, Published, fingerprint
from sgpu.study.benchmark import Cell
from sgpu.study.transfer import CurveSpec
from sgpu.transfer.designs import (
    IN_DOMAIN,
    Gap,
    Plan,
    TrainingPool,
    admit,
    first_cells,
    first_rows,
    fold_of,
    held_out_cells,
    plans,
    pool_of,
)
from sgpu.transfer.guard import rule_for
from sgpu.transfer.measure import CURVE, FORECASTS, Forecast, forecast_rows
from sgpu.transfer.selection import Candidate, Choice, candidates, carried_over

VERSION = 3
PLAN_COLUMNS = ["model", "dataset", "method", "axis", "size", "seed"]  # of the table of forecasts
VALUES = ["question_id", "probability", "fit_id"]
MakePool = Callable[[Plan], TrainingPool]
Draw = Callable[[TrainingPool, int, int], TrainingPool]


def publish_forecasts(run: TransferRun) -> list[Published]:
    """Publish the forecasts of every design, unless they were made from the same cells and settings.

    Raises LeakageError, before anything is published, if a row of a target reached a fit for it.
    """
    content = _content(run)
    key = fingerprint(content)
    designs = _designs(run)
    tables = [run.store.unchanged(FORECASTS.name, Partition.of(design=design), key) for design in designs]
    current = [table for table in tables if table is not None]
    if len(current) == len(designs):
        run.progress.say(f"transfer {len(designs)} designs, unchanged, not run again")
        return current
    began = time.perf_counter()
    made, gaps = forecasts(run)
    manifest = {
        **content,
        "records": [
            {"target": str(f.plan.target), "method": f.plan.method, "axis": f.plan.axis, **f.record}
            for f in made
        ],
        "gaps": [[gap.design, gap.target.model, gap.target.dataset, gap.why] for gap in gaps],
        "code_version": code_version(),
    }
    published = [_write(run, design, made, key, manifest) for design in designs]
    run.progress.say(f"transfer {len(made)} forecasts in {time.perf_counter() - began:.1f} s")
    return published


def forecasts(run: TransferRun) -> tuple[list[Forecast], list[Gap]]:
    """Return those of all designs and then those of the learning curves, and what could not be had."""
    requested, gaps = _plans(run)
    pool = _guarded_pools(run)
    choices = selection(run, requested, pool)
    due = [Due(plan, partial(pool, plan), [choices[plan].candidate]) for plan in requested]
    whole, lost = _fitted(run, due, choices)
    drawn: list[Forecast] = []
    if spec := run.study.curve:
        points = [
            _curve(spec, run.study.seed, f.plan, pool, choices[f.plan].candidate)
            for f in whole
            if f.plan.design == spec.design
        ]
        drawn, _ = _fitted(run, [*chain(*points)], {})  # a pool too small to be fitted is no point of a curve
    return [*whole, *drawn], [*gaps, *lost]


def _guarded_pools(run: TransferRun) -> MakePool:
    """Return what makes and guards the pool of a plan; only the last one is kept, for its folds and draws."""

    @lru_cache(maxsize=1)
    def make(plan: Plan) -> TrainingPool:
        return admit(pool_of(plan, run.cells), rule_for(plan.design, plan.target, run.cells))

    return make


def _plans(run: TransferRun) -> tuple[list[Plan], list[Gap]]:
    """Return the classifiers that the study asks for, and the targets that a design cannot be tried on."""
    return plans({cell: source.modality for cell, source in run.cells.items()}, run.study.designs)


def _designs(run: TransferRun) -> list[str]:
    """Return the designs that have a table of forecasts."""
    designs = [plan.design for plan in _plans(run)[0]]
    return [*dict.fromkeys(designs), *([CURVE] if run.study.curve else [])]


def selection(run: TransferRun, requested: Sequence[Plan], pool: MakePool) -> dict[Plan, Choice]:
    """Choose the settings of each plan on validation rows of its sources, one plan after the other.

    A candidate that a fold cannot be fitted with is out, unless it is so with all of them.
    """
    spec = run.study.selection
    every = candidates(spec.kernels, spec.representations, spec.inducing)
    tried = {
        plan: every if len(plan.sources) > 1 or plan.design == IN_DOMAIN else carried_over(every)
        for plan in requested
    }
    folds = [
        Due(plan, partial(_fold, plan, pool, held_out), tried[plan])
        for plan in requested
        if len(tried[plan]) > 1
        for held_out in held_out_cells(pool(plan), spec.folds, derived_seed(run.study.seed, str(plan.target)))
    ]
    choices = {plan: Choice.of({tried[plan][0]: np.empty(0)}) for plan in requested}
    for plan, fitted in groupby(fit_all(run, folds), lambda pair: pair[0].plan):
        parts = [losses_of(run, due, fits) for due, fits in fitted if not isinstance(fits, Gap)]
        choices[plan] = Choice.of(_together(parts, tried[plan]))
    return choices


def _fold(plan: Plan, pool: MakePool, held_out: Sequence[str]) -> TrainingPool:
    return fold_of(pool(plan), held_out)


def _together(
    parts: Sequence[Mapping[Candidate, Floats]], tried: Sequence[Candidate]
) -> dict[Candidate, Floats]:
    """Return the losses of all folds for the candidates that every fold has."""
    whole = [candidate for candidate in tried if parts and all(candidate in part for part in parts)]
    losses = {candidate: np.concatenate([part[candidate] for part in parts]) for candidate in whole}
    return losses or {tried[0]: np.empty(0)}


def _fitted(
    run: TransferRun, due: Sequence[Due], choices: Mapping[Plan, Choice]
) -> tuple[list[Forecast], list[Gap]]:
    results = [
        fits if isinstance(fits, Gap) else forecast(run, item, fits, choices.get(item.plan))
        for item, fits in fit_all(run, due)
    ]
    gaps = [item for item in results if isinstance(item, Gap)]
    return [item for item in results if isinstance(item, Forecast)], gaps


def _curve(spec: CurveSpec, study_seed: int, plan: Plan, pool: MakePool, chosen: Candidate) -> list[Due]:
    """List smaller pools of one plan with the setting that its whole pool has chosen, and the whole pool."""
    rows, due = pool(plan).training, []
    axes = {
        "cells": (first_cells, spec.cells, rows.cells.n_unique()),
        "rows": (first_rows, spec.rows, len(rows)),
    }
    for axis, (draw, sizes, whole) in axes.items():
        for size in sorted({*(size for size in sizes if size < whole), whole}):
            for i in range(spec.seeds if size < whole else 1):
                seed = derived_seed(study_seed, str(plan.target), axis, i)
                point = replace(plan, axis=axis, size=size, seed=i)
                due.append(Due(point, partial(_drawn, plan, pool, draw, size, seed), [chosen]))
    return due


def _drawn(plan: Plan, pool: MakePool, draw: Draw, size: int, seed: int) -> TrainingPool:
    return draw(pool(plan), size, seed)


def _content(run: TransferRun) -> dict[str, Any]:
    ignored = {"runs", "tracking", "fitters", "bootstrap", "calibration"}
    return {
        "stage": "transfer",
        "stage_version": VERSION,
        "inputs": {str(source.cell): source.versions for source in run.finished},
        "modality": {str(cell): rows.modality for cell, rows in run.cells.items()},
        "n": run.n,
        "settings": {name: value for name, value in as_settings(run.study).items() if name not in ignored},
        **KERNELS.plugins(*run.study.selection.kernels),
    }


def _write(
    run: TransferRun, design: str, results: Sequence[Forecast], key: str, manifest: Mapping[str, Any]
) -> Published:
    """Publish the forecasts of a design, each as one row group, so that no process holds the rows of all."""
    chosen = [f for f in results if (CURVE if f.plan.axis else f.plan.design) == design]
    rows = (forecast_rows(run.cells[f.plan.target], f).to_arrow().cast(FORECASTS.schema) for f in chosen)
    partition = Partition.of(design=design)
    files = run.store.write_shards(
        FORECASTS, partition, rows if chosen else [FORECASTS.schema.empty_table()], key
    )
    run.store.publish(FORECASTS, partition, key, {"rows": sum(files.values()), **manifest}, files)
    return run.store.require(FORECASTS.name, partition)


def _by_forecast(published: Published) -> Iterator[pl.DataFrame]:
    """Yield the rows of each forecast, which are one row group."""
    for file in published.files:
        with opened(file) as parquet:
            for group in range(parquet.num_row_groups):
                rows = parquet.read_row_group(group, columns=[*PLAN_COLUMNS, *VALUES])
                if rows.num_rows:
                    yield pl.DataFrame(pl.from_arrow(rows))


def published_forecasts(run: TransferRun) -> tuple[list[Forecast], list[Gap]]:
    """Return the published forecasts, aligned with the rows of the cells; StageError if there are none."""
    plan_of = {(plan.target, plan.method): plan for plan in _plans(run)[0]}
    results: list[Forecast] = []
    for design in _designs(run):
        published = run.store.require(FORECASTS.name, Partition.of(design=design))
        records = {
            (record["target"], record["method"]): record
            for record in published.manifest["records"]
            if record["axis"] is None
        }
        for part in _by_forecast(published):
            model, dataset, method, axis, size, seed = part.select(PLAN_COLUMNS).row(0)
            plan = replace(plan_of[Cell(model, dataset), method], axis=axis, size=size, seed=seed)
            ids = run.cells[plan.target].rows.keys["question_id"]
            probability = floats(aligned(ids, part)["probability"])
            record = {} if axis else records[str(plan.target), method]
            results.append(Forecast(plan, probability, part["fit_id"][0], record))
    gaps = [Gap(d, Cell(m, s), why) for d, m, s, why in published.manifest["gaps"]]
    order = {key: i for i, key in enumerate(plan_of)}
    results.sort(
        key=lambda f: (
            order[f.plan.target, f.plan.method], f.plan.axis or "", f.plan.size or 0, f.plan.seed or 0
        )
    )  # fmt: skip
    return results, gaps
