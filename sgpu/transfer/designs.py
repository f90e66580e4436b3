"""Which source cells train for which target, and what of the target each design leaves out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from sgpu.study.benchmark import Cell
from sgpu.transfer.rows import Modality

IN_DOMAIN = "in_domain"
MODEL_MATRIX, DATASET_MATRIX = "model_matrix", "dataset_matrix"
MATRICES = (MODEL_MATRIX, DATASET_MATRIX)
# One classifier for a target from all the sources that a design leaves it.
POOLED = ("leave_one_model_out", "leave_one_dataset_out", "leave_both_out", "modality")
DESIGNS = (*MATRICES, *POOLED)


@dataclass(frozen=True)
class Plan:
    """One classifier for one target: ``method`` names it in tables, where a target has each name once.

    No row of ``models`` or ``datasets`` may reach it; the rows that it is measured on never may.
    """

    design: str
    method: str
    target: Cell
    sources: tuple[Cell, ...]
    models: frozenset[str] = frozenset()
    datasets: frozenset[str] = frozenset()


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
        for design in DESIGNS:
            if design in designs:
                found = _MAKERS[design](target, modalities)
                made += found
                if not found:
                    gaps.append(Gap(design, target, _WHY_NONE[design]))
    return made, gaps


def _single(design: str, target: Cell, sources: Sequence[Cell], attribute: str) -> list[Plan]:
    left_out = frozenset({getattr(target, attribute)})
    models, datasets = (left_out, frozenset[str]()) if attribute == "model" else (frozenset[str](), left_out)
    return [
        Plan(design, f"from {attribute} {getattr(source, attribute)}", target, (source,), models, datasets)
        for source in sources
    ]


def _model_matrix(target: Cell, known: Mapping[Cell, Modality]) -> list[Plan]:
    sources = [cell for cell in known if cell.dataset == target.dataset and cell != target]
    return _single(MODEL_MATRIX, target, sources, "model")


def _dataset_matrix(target: Cell, known: Mapping[Cell, Modality]) -> list[Plan]:
    sources = [cell for cell in known if cell.model == target.model and cell != target]
    return _single(DATASET_MATRIX, target, sources, "dataset")


def _pooled(
    design: str,
    target: Cell,
    known: Collection[Cell],
    *,
    model: bool = False,
    dataset: bool = False,
    method: str | None = None,
) -> list[Plan]:
    sources = tuple(
        cell
        for cell in known
        if not (model and cell.model == target.model) and not (dataset and cell.dataset == target.dataset)
    )
    models = frozenset({target.model} if model else ())
    datasets = frozenset({target.dataset} if dataset else ())
    return [Plan(design, method or design, target, sources, models, datasets)] if sources else []


def _other_modality(target: Cell, known: Mapping[Cell, Modality]) -> list[Plan]:
    sources = [cell for cell, modality in known.items() if modality != known[target]]
    name = f"from {'text' if known[target] == 'vision' else 'vision'} cells"
    return _pooled("modality", target, sources, model=True, dataset=True, method=name)


_MAKERS: Mapping[str, Callable[[Cell, Mapping[Cell, Modality]], list[Plan]]] = {
    MODEL_MATRIX: _model_matrix,
    DATASET_MATRIX: _dataset_matrix,
    "leave_one_model_out": lambda t, known: _pooled("leave_one_model_out", t, known, model=True),
    "leave_one_dataset_out": lambda t, known: _pooled("leave_one_dataset_out", t, known, dataset=True),
    "leave_both_out": lambda t, known: _pooled("leave_both_out", t, known, model=True, dataset=True),
    "modality": _other_modality,
}
_WHY_NONE = {
    MODEL_MATRIX: "no other model has this data set",
    DATASET_MATRIX: "this model has no other data set",
    "leave_one_model_out": "all cells are of this model",
    "leave_one_dataset_out": "all cells are of this data set",
    "leave_both_out": "every cell is of this model or of this data set",
    "modality": "no cell of another model and data set has the other modality",
}
