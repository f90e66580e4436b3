"""Transfer stage: every classifier that a transfer study asks for, and what it says of its target.

Finished cells are read; nothing is sampled, judged or encoded, and no language model is loaded.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from sgpu.evaluation.inputs import Floats
from sgpu.gp.kernels import KERNELS
from sgpu.hashing import derived_seed
from sgpu.provenance import code_version
from sgpu.stages.cell_frame import aligned, floats, rows_of
from sgpu.stages.run import Execution, as_settings
from sgpu.stages.transfer_fits import Due, Fitter
from sgpu.stages.transfer_sources import FinishedCell, common_n, finished_cells, source_cell
from sgpu.storage.store import Partition, Published, fingerprint
from sgpu.study.benchmark import Cell
from sgpu.study.transfer import TransferStudy
from sgpu.transfer.designs import (
    IN_DOMAIN,
    Gap,
    Plan,
    TrainingPool,
    first_cells,
    first_rows,
    folds_of,
    plans,
    pool_of,
)
from sgpu.transfer.measure import CURVE, FORECASTS, Forecast, forecast_rows
from sgpu.transfer.rows import SourceCell
from sgpu.transfer.selection import Candidate, candidates, carried_over, choose

VERSION = 2


@dataclass
class TransferRun(Execution[TransferStudy]):
    """One execution of a transfer study, with the cells that it reads."""

    @cached_property
    def finished(self) -> list[FinishedCell]:
        """The cells of the study as their runs have published them."""
        return finished_cells(self.study)

    @cached_property
    def n(self) -> int:
        """Answers that every spectrum is made of."""
        return common_n(self.study, self.finished)

    @cached_property
    def cells(self) -> dict[Cell, SourceCell]:
        """Their rows."""
        return {source.cell: source_cell(source, self.n) for source in self.finished}

    @property
    def fitter(self) -> Fitter:
        """How its classifiers are made."""
        study = self.study
        hyper_rows = study.selection.hyper_rows
        return Fitter(self.out / "fits", study.fitters, hyper_rows, study.seed, study.pool, self.cells)

    def plans(self) -> tuple[list[Plan], list[Gap]]:
        """The classifiers that the study asks for, and the targets that a design cannot be tried on."""
        return plans({cell: source.modality for cell, source in self.cells.items()}, self.study.designs)


def publish_forecasts(run: TransferRun) -> list[Published]:
    """Publish the forecasts of every design, unless they were made from the same cells and settings.

    Raises LeakageError, before anything is published, if a row of a target reached a fit for it.
    """
    content = _content(run)
    key = fingerprint(content)
    designs = [*dict.fromkeys(plan.design for plan in run.plans()[0]), *([CURVE] if run.study.curve else [])]
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
            {"target": str(f.plan.target), "method": f.plan.method, "axis": f.axis, **f.record} for f in made
        ],
        "gaps": [[gap.design, gap.target.model, gap.target.dataset, gap.why] for gap in gaps],
        "code_version": code_version(),
    }
    published = [_write(run, design, made, key, manifest) for design in designs]
    run.progress.say(f"transfer {len(made)} forecasts in {time.perf_counter() - began:.1f} s")
    return published


def forecasts(run: TransferRun) -> tuple[list[Forecast], list[Gap]]:
    """Those of all designs and then those of the learning curves, and what could not be had."""
    requested, gaps = run.plans()
    pools = {plan: pool_of(plan, run.cells) for plan in requested}
    losses = selection(run, pools)
    fitter = run.fitter
    whole_pools = [fitter.prepare(plan, pool, [choose(losses[plan])]) for plan, pool in pools.items()]
    whole, lost = _fitted(fitter, whole_pools, losses)
    curves: list[Due | Gap] = []
    if run.study.curve:
        for forecast in whole:
            if forecast.plan.design == run.study.curve.design and forecast.chosen:
                curves += _curve(run, forecast.plan, pools[forecast.plan], forecast.chosen)
    drawn, _ = _fitted(fitter, curves)  # a pool too small to be fitted is no point of a curve
    return [*whole, *drawn], [*gaps, *lost]


def selection(run: TransferRun, pools: Mapping[Plan, TrainingPool]) -> dict[Plan, dict[Candidate, Floats]]:
    """The losses of every candidate on validation rows of each plan's sources; none where nothing is tried.

    A candidate that a fold cannot be fitted with is out, unless it is so with all of them.
    """
    spec = run.study.selection
    every = candidates(spec.kernels, spec.representations, spec.inducing)
    tried = {
        plan: every if len(plan.sources) > 1 or plan.design == IN_DOMAIN else carried_over(every)
        for plan in pools
    }
    fold_losses: dict[Plan, list[dict[Candidate, Floats]]] = {plan: [] for plan in pools}
    folds = [
        run.fitter.prepare(plan, fold, tried[plan])
        for plan, pool in pools.items()
        if len(tried[plan]) > 1
        for fold in folds_of(pool, spec.folds, derived_seed(run.study.seed, str(plan.target)))
    ]
    for due, fits in run.fitter.fit([fold for fold in folds if isinstance(fold, Due)]):
        fold_losses[due.plan].append(run.fitter.losses_of(due, fits))
    return {plan: _together(parts, tried[plan]) for plan, parts in fold_losses.items()}


def _together(
    parts: Sequence[Mapping[Candidate, Floats]], tried: Sequence[Candidate]
) -> dict[Candidate, Floats]:
    """The losses of all folds for the candidates that every fold has."""
    whole = [candidate for candidate in tried if all(candidate in part for part in parts)]
    if not parts or not whole:
        return {tried[0]: np.empty(0)}
    return {candidate: np.concatenate([part[candidate] for part in parts]) for candidate in whole}


def _fitted(
    fitter: Fitter,
    prepared: Sequence[Due | Gap],
    losses: Mapping[Plan, Mapping[Candidate, Floats]] | None = None,
) -> tuple[list[Forecast], list[Gap]]:
    due = [item for item in prepared if isinstance(item, Due)]
    results = [fitter.forecast(item, fits, (losses or {}).get(item.plan)) for item, fits in fitter.fit(due)]
    gaps = [item for item in (*prepared, *results) if isinstance(item, Gap)]
    return [item for item in results if isinstance(item, Forecast)], gaps


def _curve(run: TransferRun, plan: Plan, pool: TrainingPool, chosen: Candidate) -> Iterator[Due | Gap]:
    """Smaller pools of one plan with the setting that its whole pool has chosen, and the whole pool."""
    spec = run.study.curve
    assert spec is not None
    wholes = {"cells": len(set(pool.training.cells)), "rows": len(pool.training)}
    draws = {"cells": (first_cells, spec.cells), "rows": (first_rows, spec.rows)}
    for axis, (draw, sizes) in draws.items():
        for size in sorted({*(size for size in sizes if size < wholes[axis]), wholes[axis]}):
            for i in range(spec.seeds if size < wholes[axis] else 1):
                seed = derived_seed(run.study.seed, str(plan.target), axis, i)
                part = draw(pool, size, seed)
                yield run.fitter.prepare(plan, part, [chosen], axis=axis, size=size, draw=i)


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
    chosen = [f for f in results if (CURVE if f.axis else f.plan.design) == design]
    frames = [forecast_rows(run.cells[f.plan.target], f) for f in chosen]
    rows = pl.concat(frames).to_arrow().cast(FORECASTS.schema) if frames else FORECASTS.schema.empty_table()
    return run.store.write(FORECASTS, Partition.of(design=design), rows, key, manifest)


def published_forecasts(run: TransferRun) -> tuple[list[Forecast], list[Gap]]:
    """Return the published forecasts, aligned with the rows of the cells; StageError if there are none."""
    plan_of = {(plan.target, plan.method): plan for plan in run.plans()[0]}
    curve = [CURVE] if run.study.curve else []
    results: list[Forecast] = []
    for design in [*dict.fromkeys(plan.design for plan in plan_of.values()), *curve]:
        published = run.store.require(FORECASTS.name, Partition.of(design=design))
        records = {
            (record["target"], record["method"]): record
            for record in published.manifest["records"]
            if record["axis"] is None
        }
        rows = rows_of(published)
        names = ["model", "dataset", "method", "axis", "size", "seed"]
        for part in rows.partition_by(names, maintain_order=True):
            model, dataset, method, axis, size, seed = part.select(names).row(0)
            plan = plan_of[Cell(model, dataset), method]
            ids = run.cells[plan.target].rows.keys["question_id"]
            probability = floats(aligned(ids, part)["probability"])
            record = {} if axis else records[str(plan.target), method]
            results.append(Forecast(plan, probability, part["fit_id"][0], None, record, axis, size, seed))
    gaps = [Gap(d, Cell(m, s), why) for d, m, s, why in published.manifest["gaps"]]
    order = {plan: i for i, plan in enumerate(plan_of.values())}
    results.sort(key=lambda f: (order[f.plan], f.axis or "", f.size or 0, f.seed or 0))
    return results, gaps
