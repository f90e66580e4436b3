"""What a probe must do to be a trained method, how it declares what it needs, and the files that keep it.

A fitted probe is two files: ``NAME.safetensors`` with the weights, ``NAME.json`` with everything else. No
format that can run code is written or read.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from sgpu.errors import IntegrityError, TrainingError
from sgpu.gp.persistence import read_files, write_files
from sgpu.methods.base import TrainedMethod
from sgpu.probes.states import Floats, ProbeRows, Singles, complete_rows, flat_layers, layer_states

LABEL = "label"  # as a target: whether the judge found the answers right
SET_BY_THE_STUDY = ("seed", "position")  # arguments of a probe that are none of its `method_settings`
Weights = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class ProbeReport:
    """What a fit did; ``validation_auroc`` is None where undefined. Layers count along the L axis."""

    validation_auroc: tuple[float | None, ...]  # (L,)
    rows: int
    rows_left_out: int  # without state or target
    validation_rows: int
    shape: tuple[int, int]  # (L, D)

    @classmethod
    def of(
        cls, training: ProbeRows, validation: ProbeRows, aurocs: Sequence[float | None], **own: Any
    ) -> Self:
        """The report of a fit to these rows; ``own`` are the fields that this kind of probe adds."""
        return cls(
            validation_auroc=tuple(aurocs),
            rows=len(training.target),
            rows_left_out=training.left_out,
            validation_rows=len(validation.target),
            shape=training.shape,
            **own,
        )


Report = TypeVar("Report", bound=ProbeReport)


class Probe(ABC, Generic[Report]):
    """A small classifier of the hidden states of one answer. A trained method declares one in `ProbeMethod`.

    A subclass says what is `learnt` from rows, and turns features into log-odds; rows, predictions and files
    are made here. Its constructor takes what a study may set, and ``seed``
    and ``position`` where it needs them.
    """

    name: ClassVar[str]  # of its files
    described: ClassVar[str]  # in messages
    report_type: type[Report]

    def __init__(self, settings: Any) -> None:
        self.settings = settings  # a dataclass of the constructor's arguments, which the probe itself may be
        self._report: Report | None = None
        self._weights: Weights = {}

    @property
    def report(self) -> Report:
        """What the last fit did; TrainingError before the first."""
        if self._report is None:
            raise TrainingError(
                f"this probe is not fitted; call fit(...) or {type(self).__name__}.load(folder)"
            )
        return self._report

    @property
    @abstractmethod
    def layers(self) -> range:
        """The layers that a fitted probe reads, counted along the L axis."""

    def fit(
        self, hidden: ArrayLike, target: ArrayLike, validation_hidden: ArrayLike, validation_target: ArrayLike
    ) -> Self:
        """Fit to states (M, L, D) and targets (M,), choose by the validation rows; return self.

        Rows with NaN are left out and counted. The class says what the targets are and what the validation
        rows, which are not trained on, choose. Raises DataError for arrays that do not fit, TrainingError
        where the class cannot learn from these targets.
        """
        training = ProbeRows.of(hidden, target)
        validation = ProbeRows.of(validation_hidden, validation_target, training.shape)
        self._report, self._weights = self.learnt(training, validation)
        return self

    def learnt(self, training: ProbeRows, validation: ProbeRows) -> tuple[Report, Weights]:
        """What a fit to these rows gives; for `fit`, where a subclass does not have its own."""
        raise NotImplementedError

    @abstractmethod
    def log_odds(self, features: Singles) -> Floats:
        """(M,) log-odds of a trustworthy answer for the states (M, layers * D) of its layers side by side."""

    def predict_proba(self, hidden: ArrayLike) -> Floats:
        """(Q,) confidences in [0, 1], higher = more trustworthy, of states (Q, L, D); NaN for a row with NaN.

        The class says of what they are the probability. Raises DataError for another L or D than in training,
        TrainingError before a fit.
        """
        states = layer_states(hidden, self.report.shape)
        complete = complete_rows(states)
        probability = np.full(len(states), np.nan)
        probability[complete] = expit(
            self.log_odds(flat_layers(states, complete, self.layers.start, self.layers.stop))
        )
        return probability

    def save(self, folder: Path | str) -> None:
        """Write `NAME.safetensors` and `NAME.json`; equal fits write equal bytes."""
        description = {"settings": asdict(self.settings), "report": asdict(self.report)}
        write_files(Path(folder), self.name, description, self._weights)

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Read what `save` wrote. Raises IntegrityError for a changed, broken or foreign folder."""
        description, weights = read_files(Path(folder), cls.name)
        try:
            probe = cls(**description["settings"])
            probe._report = cls.report_type(**tuples(description["report"]))
        except (KeyError, TypeError) as error:
            raise IntegrityError(
                f"{folder} does not describe {cls.described}: {error}. Fit again."
            ) from error
        probe._weights = weights
        return probe


@dataclass(frozen=True, kw_only=True)
class ProbeMethod(TrainedMethod):
    """A method that is a probe on hidden states, with all that fitting and asking it takes.

    Declare one where a method learns from the states of one answer; it runs wherever `METHODS` names it.
    ``target`` is what it learns: the label, or the quantity of a training-free method by that method's name.
    ``position`` is the token whose states it reads (see `sgpu.probes.states`), unless the study chooses
    it, by the key of its section `hidden` that ``position_setting`` names. ``seconds`` of one thread go into
    a fit for each number of its training states.
    """

    probe: type[Probe[Any]]
    target: str = LABEL
    position: str = "last"
    position_setting: str | None = None
    gives_probability: bool = False  # whether its confidence is the probability of being right
    seconds: float = 1e-6
    version: int = 1  # raised when the code makes another fit of the same rows
    needs: Any = field(default=frozenset({"layer_hidden"}))

    @property
    def settings(self) -> list[str]:
        """The names of what `method_settings` of a study may set."""
        parameters = inspect.signature(self.probe).parameters
        return [name for name in parameters if name not in SET_BY_THE_STUDY]

    def make(self, settings: Mapping[str, Any], seed: int, position: str) -> Probe[Any]:
        """The probe before it is fitted. Raises UsageError for settings that cannot be."""
        parameters = inspect.signature(self.probe).parameters
        by_study = {"seed": seed, "position": position}
        return self.probe(**{name: by_study[name] for name in by_study if name in parameters}, **settings)


def tuples(content: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a report as they were: JSON knows lists only."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
