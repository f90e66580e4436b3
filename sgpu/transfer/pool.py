"""The rows of one fit: what the sources have, without what the target forbids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import polars as pl

from sgpu.study.benchmark import Cell
from sgpu.transfer.designs import Plan
from sgpu.transfer.guard import Rule, check
from sgpu.transfer.rows import Rows, SourceCell, joined


@dataclass(frozen=True)
class Pool:
    """The usable rows of a plan's sources, and how many were left out as questions of the target."""

    training: Rows
    validation: Rows
    left_out: int

    @property
    def cells(self) -> pl.Series:
        """(M,) the source cell of each training row."""
        return cells_of(self.training)


@dataclass(frozen=True)
class Uses:
    """The rows that each part of one fit sees."""

    training: Rows
    standardisation: Rows
    inducing_points: Rows
    selection: Rows


def pool_of(plan: Plan, cells: Mapping[Cell, SourceCell]) -> Pool:
    """What a plan takes of its sources' training and validation questions that have all they need.

    Where the target's data set is left out, none of its questions is taken, as they can stand in another data
    set too; otherwise no test question of the target.
    """
    if plan.datasets:
        shut = [cell.rows.keys for cell in cells.values() if cell.cell.dataset in plan.datasets]
    else:
        shut = [cells[plan.target].part("test").keys]
    rule = Rule(plan.target, plan.models, plan.datasets, pl.concat(shut))
    left_out, parts = 0, []
    for split in ("train", "validation"):
        rows = joined(cells[source].part(split) for source in plan.sources)
        rows = rows.take(rows.usable)
        allowed = rule.allows(rows.keys)
        left_out += int((~allowed).sum())
        parts.append(rows.take(allowed))
    training, validation = parts
    return Pool(training, validation, left_out)


def uses_of(pool: Pool) -> Uses:
    """Training rows everywhere, validation rows for the selection alone."""
    return Uses(pool.training, pool.training, pool.training, pool.validation)


def guarded(uses: Uses, rule: Rule) -> Uses:
    """The same uses; LeakageError if a row of the target is in any of them."""
    for use in fields(uses):
        check(use.name.replace("_", " "), getattr(uses, use.name), rule)
    return uses


def first_cells(pool: Pool, count: int, seed: int) -> Pool:
    """The training rows of ``count`` source cells, drawn so that smaller draws are part of larger ones."""
    names = sorted(set(pool.cells.to_list()))
    order = np.random.default_rng(seed).permutation(len(names))
    chosen = [names[i] for i in order[:count]]
    return Pool(pool.training.take(pool.cells.is_in(chosen).to_numpy()), pool.validation, pool.left_out)


def first_rows(pool: Pool, count: int, seed: int) -> Pool:
    """``count`` training rows, likewise."""
    order = np.random.default_rng(seed).permutation(len(pool.training))
    return Pool(pool.training.take(np.sort(order[:count])), pool.validation, pool.left_out)


def folds_of(pool: Pool, most: int, seed: int) -> list[Pool]:
    """For the selection: training rows of some source cells, validation rows of the others, ``most`` times.

    What wins where the validation questions are of the training cells need not be what carries over to
    another cell. With one source there is nothing else: its own validation rows.
    """
    names = sorted(set(pool.cells.to_list()))
    if len(names) < 2:
        return [pool]
    order = np.random.default_rng(seed).permutation(len(names))
    groups = [[names[i] for i in order[k::most]] for k in range(min(most, len(names)))]
    validated = cells_of(pool.validation)
    return [
        Pool(
            pool.training.take(~pool.cells.is_in(group).to_numpy()),
            pool.validation.take(validated.is_in(group).to_numpy()),
            pool.left_out,
        )
        for group in groups
    ]


def cells_of(rows: Rows) -> pl.Series:
    """(M,) the name of each row's cell."""
    return rows.keys.select(pl.format("{}/{}", "model", "dataset")).to_series()
