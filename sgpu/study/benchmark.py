"""The study file: which models, data sets and methods, with every setting typed and defaulted.

Unknown keys are refused, so that a typo cannot silently fall back to a default.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from sgpu.methods.base import METHODS
from sgpu.probes.base import ProbeMethod
from sgpu.registry import unknown_name
from sgpu.storage.store import Partition
from sgpu.study.data_specs import (
    LOCAL_MAX_TOKENS,
    SERVED_MAX_TOKENS,
    DatasetSpec,
    JudgeSpec,
    QuestionsSpec,
    ResponsesSpec,
    SamplingSpec,
    with_study_sampling,
)
from sgpu.study.file import read_tree, validated
from sgpu.study.models import engine_name
from sgpu.study.specs import (
    BoundsSpec,
    BudgetSpec,
    ClassifierSpec,
    EncoderSpec,
    EntailmentSpec,
    EvaluationSpec,
    HiddenSpec,
    KeepSpec,
    ModelSpec,
    Name,
    ResourceSpec,
    SensitivitySpec,
    Strict,
    TrackingSpec,
    path_safe,
)


@dataclass(frozen=True)
class Cell:
    """One model on one data set."""

    model: str
    dataset: str

    def __str__(self) -> str:
        return f"{self.model}/{self.dataset}"

    def partition(self, **more: str) -> Partition:
        """Where a table has the rows of this cell, by further keys where it has some."""
        return Partition.of(model=self.model, dataset=self.dataset, **more)


# Data sets that are one file, by which they are named.
FILE_KINDS = ("responses", "jsonl", "parquet")
DEFAULT_METHODS = [
    "sgpu",
    "spectral_entropy",
    "largest_eigenvalue",
    "predictive_entropy",
    "log_perplexity",
    "self_consistency",
]


class Study(Strict):
    """A set of cells (model x data set) with all settings."""

    name: Name = "study"
    seed: int = Field(default=0, ge=0)
    models: list[ModelSpec] = Field(default_factory=list)
    datasets: list[DatasetSpec] = Field(min_length=1)
    methods: list[str] = Field(default_factory=lambda: list(DEFAULT_METHODS), min_length=1)
    method_settings: dict[str, dict[str, Any]] = Field(default_factory=dict)  # by method, where not default
    sampling: SamplingSpec = Field(default_factory=SamplingSpec)
    judge: JudgeSpec = Field(default_factory=JudgeSpec)
    encoder: EncoderSpec = Field(default_factory=EncoderSpec)
    hidden: HiddenSpec = Field(default_factory=HiddenSpec)
    entailment: EntailmentSpec = Field(default_factory=EntailmentSpec)
    classifier: ClassifierSpec = Field(default_factory=ClassifierSpec)
    evaluation: EvaluationSpec = Field(default_factory=EvaluationSpec)
    sensitivity: SensitivitySpec = Field(default_factory=SensitivitySpec)
    resources: ResourceSpec = Field(default_factory=ResourceSpec)
    bounds: BoundsSpec = Field(default_factory=BoundsSpec)
    budget: BudgetSpec | None = None
    keep: KeepSpec = Field(default_factory=KeepSpec)
    tracking: TrackingSpec = Field(default_factory=TrackingSpec)

    _name = field_validator("name")(path_safe)

    @model_validator(mode="before")
    @classmethod
    def _sampling_of_each_data_set(cls, tree: Any) -> Any:
        if not isinstance(tree, dict):
            return tree
        return {**tree, "datasets": with_study_sampling(tree.get("datasets"), tree.get("sampling"))}

    @field_validator("models", mode="before")
    @classmethod
    def _plain_names(cls, models: Any) -> Any:
        if isinstance(models, list):
            return [{"name": model} if isinstance(model, str) else model for model in models]
        return models

    @model_validator(mode="after")
    def _consistent(self) -> Study:
        names = [dataset.name for dataset in self.datasets]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"data set name(s) {', '.join(twice)} stand twice; give each its own `name`")
        if any(isinstance(d, QuestionsSpec) for d in self.datasets) and not self.models:
            raise ValueError("`models` is empty, but a data set without answers needs a model to sample them")
        for name in self.methods:
            # What it needs, a method declares itself; a name that is none is refused before the work begins.
            method = METHODS.get(name) if name in METHODS else None
            if isinstance(method, ProbeMethod):
                position = self.probe_position(method)
                if position not in self.hidden.positions:
                    raise ValueError(
                        f"method {name!r} reads position {position!r}: add it to `hidden.positions`"
                    )
        free = [model.name for model in self.models if model.engine == "openai" and model.price is None]
        if self.budget and self.budget.usd is not None and free:
            raise ValueError(f"`budget.usd` needs the `price` of model {', '.join(free)}")
        if unasked := sorted(set(self.method_settings) - set(self.methods)):
            raise ValueError(f"`method_settings` names {', '.join(unasked)}, but `methods` does not")
        cells = [str(cell) for cell in self.cells()]
        for name in dict.fromkeys(name for named in self.sensitivity.cells.values() for name in named):
            if name not in cells:
                raise ValueError(f"`sensitivity.cells`: {unknown_name('cell', name, cells)}")
        return self

    @property
    def primary_method(self) -> str:
        """The method that the others are compared with and whose probability the report draws."""
        return "sgpu" if "sgpu" in self.methods else self.methods[0]

    def cells(self) -> list[Cell]:
        """Every model x data set pair; a data set of given responses belongs to its own model only."""
        cells = []
        for dataset in self.datasets:
            if isinstance(dataset, ResponsesSpec):
                cells.append(Cell(dataset.model, dataset.name))
            else:
                cells.extend(Cell(model.name, dataset.name) for model in self.models)
        return cells

    def dataset(self, name: str) -> DatasetSpec:
        return next(d for d in self.datasets if d.name == name)

    def sampling_of(self, cell: Cell) -> SamplingSpec:
        """Return how a cell's answers are drawn; the study's setting if they were sampled elsewhere."""
        spec = self.dataset(cell.dataset)
        if not isinstance(spec, QuestionsSpec):
            return self.sampling
        if spec.sampling.max_tokens is not None:
            return spec.sampling
        served = engine_name(self.model(cell.model)) == "openai"
        bound = SERVED_MAX_TOKENS if served else LOCAL_MAX_TOKENS
        return spec.sampling.model_copy(update={"max_tokens": bound})

    def sensitivity_of(self, cell: Cell) -> SensitivitySpec:
        """Return what is varied in a cell: everything but the settings whose `cells` do not name it."""
        default, asked = SensitivitySpec(), self.sensitivity
        elsewhere = [name for name, cells in asked.cells.items() if str(cell) not in cells]
        return asked.model_copy(update={"cells": {}, **{name: getattr(default, name) for name in elsewhere}})

    def smaller_sizes(self, n: int) -> list[int]:
        """The numbers of answers below ``n`` whose spectra something in this study asks for."""
        pooled = {"sgpu", "global_sgpu"} & set(self.methods) and self.classifier.other_n != "none"
        sizes = {*self.sensitivity.n_answers, *(self.classifier.sizes if pooled else [])}
        return sorted(size for size in sizes if size < n)

    def probe_position(self, method: ProbeMethod) -> str:
        """Which token of the first answer a probe reads in this study (see `sgpu.probes.states`)."""
        chosen = getattr(self.hidden, method.position_setting) if method.position_setting else method.position
        return str(chosen)

    def judge_of(self, dataset: str) -> JudgeSpec:
        """Who judges a data set: its own judge, or the study's."""
        return self.dataset(dataset).judge or self.judge

    def model(self, name: str) -> ModelSpec:
        return next(m for m in self.models if m.name == name)


def load_study(path: Path, overrides: Sequence[str] = ()) -> Study:
    """Read a study file and apply ``a.b=value`` overrides; UsageError names the key and what is allowed."""
    tree = read_tree(path, overrides)
    tree.setdefault("name", path.stem)
    for dataset in tree.get("datasets") or []:
        # A relative path means: beside the study file.
        if isinstance(dataset, dict) and dataset.get("path"):
            dataset["path"] = str((path.parent / Path(str(dataset["path"])).expanduser()).resolve())
            if dataset.get("kind") in FILE_KINDS:
                dataset.setdefault("name", _name_from(Path(dataset["path"])))
    return validated(Study, tree, path)


def _name_from(path: Path) -> str:
    stem = path.name.split(".")[0]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.") or "responses"
