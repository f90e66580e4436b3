"""The file of a transfer study: which finished cells, which designs, and what is chosen in the sources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, field_validator, model_validator

from sgpu.study.file import read_tree, validated
from sgpu.study.specs import Kernel, Name, Strict, TrackingSpec, path_safe

Pooled = Literal["leave_one_model_out", "leave_one_dataset_out", "leave_both_out", "modality"]
Design = Literal["model_matrix", "dataset_matrix"] | Pooled
Count = Annotated[int, Field(ge=1)]
# As text: a path would make one slash of the two in s3://bucket/prefix.
RunPath = Annotated[str, BeforeValidator(str)]


class FinishedRun(Strict):
    """What `sgpu benchmark` left in a folder or in s3://bucket/prefix.

    ``cells`` are model/dataset names, default all. ``modality`` is seen from the questions: those with images
    are vision. Say it where answers were sampled elsewhere and the images are not known.
    """

    path: RunPath
    cells: list[str] = Field(default_factory=list)
    modality: Literal["text", "vision"] | None = None


class SelectionSpec(Strict):
    """What is chosen by log loss on validation questions of the sources, never on the target.

    With several sources the questions are of cells that the fit has not seen, in ``folds`` groups of cells;
    one source chooses kernel and inducing points only, and the first representation stands.
    The first of each list stands unless another is better by more than a standard error.
    """

    kernels: list[Kernel] = Field(default=["matern15", "rbf"], min_length=1)
    representations: list[Literal["raw", "log", "scaled"]] = Field(default=["raw", "log"], min_length=1)
    inducing: list[Annotated[int, Field(ge=2)]] = Field(default=[128], min_length=1)
    folds: int = Field(default=5, ge=2)
    hyper_rows: int = Field(default=3000, ge=10)


class CurveSpec(Strict):
    """Learning curves of the pool of ``design``: by its source cells and by its rows, nested by seed."""

    design: Pooled = "leave_both_out"
    cells: list[Count] = Field(default=[1, 2, 4, 8, 16])
    rows: list[Count] = Field(default=[50, 100, 200, 500, 1000, 2000])
    seeds: int = Field(default=3, ge=1)


class CalibrationSpec(Strict):
    """Recalibration of the pool of ``design`` with a few labels of the target; see `sgpu.transfer`."""

    design: Pooled = "leave_both_out"
    labels: list[Annotated[int, Field(ge=0)]] = Field(default=[0, 25, 50, 100, 200], min_length=1)
    maps: list[Literal["shift", "platt"]] = Field(default=["shift", "platt"], min_length=1)
    seeds: int = Field(default=5, ge=1)

    @field_validator("labels")
    @classmethod
    def _with_none(cls, labels: list[int]) -> list[int]:
        return sorted({0, *labels})


class TransferStudy(Strict):
    """Finished cells, and what of the transfer between them is asked."""

    name: Name = "transfer"
    seed: int = Field(default=0, ge=0)
    runs: list[FinishedRun] = Field(min_length=1)
    n: int | None = Field(default=None, ge=2)  # answers that spectra are made of; default: the smallest N
    designs: list[Design] = Field(default=["model_matrix", "dataset_matrix", *get_args(Pooled)], min_length=1)
    # How the cells of a pool weigh: by their rows, or each the same.
    pool: Literal["by_row", "by_cell"] = "by_row"
    selection: SelectionSpec = Field(default_factory=SelectionSpec)
    curve: CurveSpec | None = Field(default_factory=CurveSpec)
    calibration: CalibrationSpec | None = Field(default_factory=CalibrationSpec)
    bootstrap: int = Field(default=2000, ge=100)
    fitters: int | None = Field(default=None, ge=0)  # as in `resources` of a study
    tracking: TrackingSpec = Field(default_factory=TrackingSpec)

    _name = field_validator("name")(path_safe)

    @model_validator(mode="after")
    def _asked_designs(self) -> TransferStudy:
        for section, spec in (("curve", self.curve), ("calibration", self.calibration)):
            if spec and spec.design not in self.designs:
                raise ValueError(
                    f"`{section}.design` is {spec.design!r}, which `designs` does not name: add it there, "
                    f"or set `{section}: null`"
                )
        paths = [run.path for run in self.runs]
        if twice := sorted({path for path in paths if paths.count(path) > 1}):
            raise ValueError(f"`runs` names {', '.join(twice)} twice; list its cells in one entry")
        return self


def load_transfer_study(path: Path, overrides: Sequence[str] = ()) -> TransferStudy:
    """Read a transfer study and apply overrides; UsageError names the key and what is allowed."""
    tree = read_tree(path, overrides)
    tree.setdefault("name", path.stem)
    runs = tree.get("runs")
    for run in runs if isinstance(runs, list) else []:
        # A relative path means: beside the study file.
        if isinstance(run, dict) and run.get("path") and "://" not in str(run["path"]):
            run["path"] = str((path.parent / Path(str(run["path"])).expanduser()).resolve())
    return validated(TransferStudy, tree, path)
