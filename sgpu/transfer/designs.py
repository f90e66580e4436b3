"""Which source cells train for which target, and what of the target each design leaves out.

The rows of one fit are what the sources have, without what the target forbids.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from sgpu.study.benchmark import Cell
from sgpu.transfer.guard import Rule, check, rule_of
from sgpu.transfer.rows import Modality, SourceCell, TransferRows, joined

IN_DOMAIN = "in_domain"


@dataclass(frozen=True)
class _Design:
    """What of its target a design keeps from a classifier, and why no source may be left.

    With ``shared`` each source that has this of the target trains a classifier of its own: a matrix.
    Otherwise there is one classifier for a target from all the sources that the design leaves it.
    """

    kept_out: frozenset[str]
    why_none: str
    shared: str | None = None
    other_modality: bool = False


_MODEL, _DATASET = frozenset({"model"}), frozenset({"dataset"})
_DESIGNS = {
    "model_matrix": _Design(_MODEL, "no other model has this data set", shared="dataset"),
    "dataset_matrix": _Design(_DATASET, "this model has no other data set", shared="model"),
    "leave_one_model_out": _Design(_MODEL, "all cells are of this model"),
    "leave_one_dataset_out": _Design(_DATASET, "all cells are of this data set"),
    "leave_both_out": _Design(_MODEL | _DATASET, "every cell is of this model or of this data set"),
    "modality": _Design(
        _MODEL | _DATASET,
        "no cell of another model and data set has the other modality",
        other_modality=True,
    ),
}
DESIGNS = tuple(_DESIGNS)
POOLED = tuple(name for name, design in _DESIGNS.items() if design.shared is None)


@dataclass(frozen=True)
class Plan:
    """One classifier for one target: ``method`` names it in tables, where a target has each name once.

    No row of the target's "model" or "dataset" may reach it where ``kept_out`` has that word; the rows that
    it is measured on never may. A point of a learning curve has the ``axis`` along which its pool was drawn
    ("cells" or "rows"), the ``size`` of the draw and its ``seed``.
    """

    design: str
    method: str
    target: Cell
    sources: tuple[Cell, ...]
    kept_out: frozenset[str] = frozenset()
    axis: str | None = None
    size: int | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Gap:
    """A target that a design cannot be tried on, and why."""

    design: str
    target: Cell
    why: str


def plans(modalities: Mapping[Cell, Modality], designs: Collection[str]) -> tuple[list[Plan], list[Gap]]:
    """Every classifier that the designs ask for, the in-domain one of each target first."""
    made: list[Plan] = []
    gaps: list[Gap] = []
    for target in modalities:
        made.append(Plan(IN_DOMAIN, IN_DOMAIN, target, (target,)))
        for name, design in _DESIGNS.items():
            if name in designs:
                planned = _plans(name, design, target, modalities)
                made += planned
                if not planned:
                    gaps.append(Gap(name, target, design.why_none))
    return made, gaps


def _plans(name: str, design: _Design, target: Cell, modalities: Mapping[Cell, Modality]) -> list[Plan]:
    sources = tuple(
        cell
        for cell, modality in modalities.items()
        if all(getattr(cell, part) != getattr(target, part) for part in design.kept_out)
        and (design.shared is None or getattr(cell, design.shared) == getattr(target, design.shared))
        and not (design.other_modality and modality == modalities[target])
    )
    if design.shared:
        (part,) = design.kept_out
        return [
            Plan(name, f"from {part} {getattr(source, part)}", target, (source,), design.kept_out)
            for source in sources
        ]
    other = "text" if modalities[target] == "vision" else "vision"
    method = f"from {other} cells" if design.other_modality else name
    return [Plan(name, method, target, sources, design.kept_out)] if sources else []


@dataclass(frozen=True)
class TrainingPool:
    """The usable rows of a plan's sources, and how many were left out as questions of the target."""

    training: TransferRows
    validation: TransferRows
    left_out: int


def pool_of(plan: Plan, cells: Mapping[Cell, SourceCell]) -> TrainingPool:
    """Return what a plan takes of its sources' training and validation questions that have all they need.

    Questions of the target that its sources repeat are left out; see `sgpu.transfer.guard.rule_of`.
    """
    rule = rule_of(plan.target, plan.kept_out, cells)
    left_out, parts = 0, []
    for split in ("train", "validation"):
        rows = joined(cells[source].part(split) for source in plan.sources)
        rows = rows.take(rows.usable)
        allowed = rule.allows(rows.keys)
        left_out += int((~allowed).sum())
        parts.append(rows.take(allowed))
    training, validation = parts
    return TrainingPool(training, validation, left_out)


def admit(pool: TrainingPool, rule: Rule) -> TrainingPool:
    """Return the pool; LeakageError if a row of the target is in it.

    Standardisation and inducing points come from the training rows, the choice of settings from the others.
    Folds and draws of an admitted pool hold no other rows.
    """
    check("training", pool.training, rule)
    check("selection", pool.validation, rule)
    return pool


def first_cells(pool: TrainingPool, count: int, seed: int) -> TrainingPool:
    """Take the training rows of ``count`` source cells; smaller draws are part of larger ones."""
    chosen = pool.training.cells.is_in(_shuffled_cells(pool, seed)[:count])
    return replace(pool, training=pool.training.take(chosen.to_numpy()))


def first_rows(pool: TrainingPool, count: int, seed: int) -> TrainingPool:
    """Take ``count`` training rows, likewise."""
    order = np.random.default_rng(seed).permutation(len(pool.training))
    return replace(pool, training=pool.training.take(np.sort(order[:count])))


def held_out_cells(pool: TrainingPool, most: int, seed: int) -> list[list[str]]:
    """Return the source cells that validate, for each of ``most`` folds of the selection; the others train.

    What wins where the validation questions are of the training cells need not be what carries over to
    another cell. With one source there is nothing else: one fold without such cells.
    """
    names = _shuffled_cells(pool, seed)
    return [names[k::most] for k in range(min(most, len(names)))] if len(names) > 1 else [[]]


def fold_of(pool: TrainingPool, held_out: Collection[str]) -> TrainingPool:
    """Return the training rows of all but some source cells and the validation rows of these."""
    if not held_out:
        return pool
    trained, validated = pool.training.cells, pool.validation.cells
    return replace(
        pool,
        training=pool.training.take(~trained.is_in(held_out).to_numpy()),
        validation=pool.validation.take(validated.is_in(held_out).to_numpy()),
    )


def _shuffled_cells(pool: TrainingPool, seed: int) -> list[str]:
    names = sorted(set(pool.training.cells.to_list()))
    return [names[i] for i in np.random.default_rng(seed).permutation(len(names))]
