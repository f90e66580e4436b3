"""What an uncertainty method must do: give every response set of a cell one confidence."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgpu.agreement import ContentAgreement, find_agreement
from sgpu.errors import DataError, UsageError
from sgpu.registry import Registry, unknown_name

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Hidden = NDArray[np.floating[Any]]  # float16 as stored: float64 copies of a cell would be too large
Need = Literal[
    "answers",
    "content",
    "token_logprobs",
    "eigenvalues",
    "similarities",
    "entail",
    "contradict",
    "clusters",
    "last_hidden",
    "middle_hidden",
    "layer_hidden",
]


@dataclass(frozen=True)
class CellFeatures:
    """What is known of the Q response sets of one cell, rows aligned; None where a cell lacks it."""

    question_ids: list[str]
    answers: list[list[str | None]]  # Q x N, None where the engine withheld an answer
    questions: list[str] | None = None  # Q
    choices: list[list[str]] | None = None  # Q lists of options that the data set gives; most are empty
    token_logprobs: list[list[list[float]]] | None = None  # Q x N x T (ragged)
    eigenvalues: Floats | None = None  # (Q, N), descending, sum N
    similarities: Floats | None = None  # (Q, N, N) cosines of the embeddings, 1 on the diagonal
    # (Q, N, N), [q, i, j] the probability that answer i entails answer j; NaN in the row and the column of a
    # missing answer. Its diagonal entry says that it is missing: those of other answers are not NaN.
    entail: Floats | None = None
    contradict: Floats | None = None  # (Q, N, N), likewise
    # (Q, N), equal numbers mean the same, from 0 in order of first appearance; -1 where an answer is missing
    clusters: Ints | None = None
    last_hidden: Hidden | None = None  # (Q, N, D), last layer, last token of the answer
    middle_hidden: Hidden | None = None  # (Q, N, D), middle layer, last token of the answer
    layer_hidden: Hidden | None = None  # (Q, L, D), L layers of one answer, one token: sgpu.probes.states

    @cached_property
    def content(self) -> list[ContentAgreement | None] | None:
        """Agreement on content (Q); None without questions, or of a question where it says nothing."""
        if self.questions is None:
            return None
        choices = self.choices or [[] for _ in self.questions]
        asked = zip(self.answers, self.questions, choices, strict=True)
        return [find_agreement(*of_one) for of_one in asked]

    def lacks(self, needs: frozenset[Need]) -> list[Need]:
        """The needed inputs that this cell does not have."""
        return sorted(need for need in needs if getattr(self, need) is None)


@dataclass(frozen=True)
class Method:
    """A training-free method: a pure function from features to its published quantity.

    ``sign`` is "uncertainty" where higher means less trustworthy; the registry negates those once.
    """

    name: str
    title: str
    needs: frozenset[Need]
    sign: Literal["uncertainty", "confidence"]
    compute: Callable[[CellFeatures], Floats]
    reference: str = ""
    settings: dict[str, object] = field(default_factory=dict)
    # The method with settings chosen on validation rows, which carry no labels. None: nothing to choose.
    tune: Callable[[CellFeatures], Method] | None = None

    def confidence(self, features: CellFeatures) -> Floats:
        """(Q,) confidence, higher = more trustworthy; NaN where a row cannot be scored.

        Raises DataError where the cell lacks what the method needs.
        """
        if lacking := features.lacks(self.needs):
            raise DataError(
                f"method {self.name!r} needs {', '.join(lacking)}, which this cell does not have. "
                "Run the stage that makes it, or leave the method out of the study."
            )
        value = np.asarray(self.compute(features), dtype=np.float64)
        return -value if self.sign == "uncertainty" else value


@dataclass(frozen=True)
class TrainedMethod:
    """A method that is fitted by the training job and applied by its fit.

    ``gives`` says what its confidence is, ``learns`` from what.
    """

    name: str
    title: str
    needs: frozenset[Need]
    reference: str = ""
    gives: str = "probability of being right"
    learns: str = "labelled response sets"


# The paper's classifier of spectra; where it is global, of the spectra of all cells of a study.
SGPU = TrainedMethod(
    name="sgpu",
    title="SGPU",
    needs=frozenset({"eigenvalues"}),
    reference="SGPU paper",
)
SGPU_PLUS = TrainedMethod(
    name="sgpu_plus",
    title="SGPU+",
    needs=frozenset({"content"}),
    reference="agreement on content, ours; see sgpu.gp.content",
)
GLOBAL_SGPU = replace(SGPU, name="global_sgpu", title="Global-SGPU")


def of_all(need: Need, function: Callable[[Any], Floats]) -> Callable[[CellFeatures], Floats]:
    """What a method computes whose ``function`` takes one input of all questions at once."""
    return lambda features: function(getattr(features, need))


def of_each(need: Need, function: Callable[[Any], ArrayLike]) -> Callable[[CellFeatures], Floats]:
    """What a method computes whose ``function`` takes one input of one question.

    So are hidden states read: the float64 copies of a whole cell would not fit beside the cell.
    """
    return lambda features: np.array([function(value) for value in getattr(features, need)], dtype=np.float64)


METHODS = Registry(
    "method",
    {
        "log_perplexity": "sgpu.methods.likelihood:LOG_PERPLEXITY",
        "predictive_entropy": "sgpu.methods.likelihood:PREDICTIVE_ENTROPY",
        "semantic_entropy": "sgpu.methods.semantic_entropy:METHOD",
        "discrete_semantic_entropy": "sgpu.methods.discrete_semantic_entropy:METHOD",
        "kernel_language_entropy": "sgpu.methods.kernel_language_entropy:METHOD",
        "normalised_semantic_entropy": "sgpu.methods.semantic_entropy:NORMALISED",
        "content_overlap": "sgpu.methods.content:CONTENT_OVERLAP",
        "shared_word": "sgpu.methods.content:SHARED_WORD",
        "degree_matrix": "sgpu.methods.degree_matrix:METHOD",
        "snne": "sgpu.methods.snne:METHOD",
        "largest_eigenvalue": "sgpu.methods.spectral:LARGEST_EIGENVALUE",
        "spectral_entropy": "sgpu.methods.spectral:SPECTRAL_ENTROPY",
        "self_consistency": "sgpu.methods.self_consistency:METHOD",
        "cov_eigenscore": "sgpu.methods.cov_eigenscore:METHOD",
        "cos_eigenscore": "sgpu.methods.cos_eigenscore:METHOD",
        "umpire": "sgpu.methods.umpire:METHOD",
        "saplma": "sgpu.probes.saplma:METHOD",
        "sep": "sgpu.probes.sep:METHOD",
        "sgpu": "sgpu.methods.base:SGPU",
        "global_sgpu": "sgpu.methods.base:GLOBAL_SGPU",
        "sgpu_plus": "sgpu.methods.base:SGPU_PLUS",
    },
    group="sgpu.methods",
)


def configured_method(name: str, settings: Mapping[str, Any]) -> Method | TrainedMethod:
    """Return a registered method with the settings of a study.

    Module ``x`` of such a method has a function ``configure_x``. Raises UsageError for settings that it does
    not take; those of a trained method go to its trainer.
    """
    method: Method | TrainedMethod = METHODS.get(name)
    if not settings or isinstance(method, TrainedMethod):
        return method
    module = METHODS.entry(name).path.partition(":")[0]
    configure = getattr(sys.modules[module], f"configure_{module.rpartition('.')[2]}", None)
    accepted = list(inspect.signature(configure).parameters) if configure else []
    for setting in settings:
        if setting not in accepted:
            raise UsageError(unknown_name(f"setting of method {name!r}:", setting, accepted))
    assert configure is not None
    method_with_settings: Method = configure(**settings)
    return method_with_settings


def all_methods() -> dict[str, Method | TrainedMethod]:
    """Every registered method by name, imported."""
    return {name: METHODS.get(name) for name in METHODS.names()}
