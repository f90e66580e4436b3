"""SAPLMA: a small network that reads off one hidden state whether the answer is right.

The 256-128-64 network is plain weight arrays: trained with torch, applied with NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sgpu.errors import DataError, TrainingError, UsageError
from sgpu.probes.base import Probe, ProbeMethod, ProbeReport, Weights
from sgpu.probes.states import Floats, ProbeRows, Singles, best_layers, validation_auroc

if TYPE_CHECKING:
    from torch import Generator, Tensor

HIDDEN = (256, 128, 64)
Network = dict[str, Floats]  # "weight0" (256, D), "bias0" (256,), ... "weight3" (1, 64), "bias3" (1,)


def train(features: Singles, labels: Floats, settings: Saplma) -> Network:
    """Fit the network to (M, D) features and (M,) labels in {0, 1}; TrainingError if it diverges."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits

    width = features.shape[1]
    mean, scale = _scaling(features) if settings.standardise else (np.zeros(width), np.ones(width))
    x = torch.from_numpy(((features - mean) / scale).astype(np.float32))
    y = torch.from_numpy(labels.astype(np.float32))
    generator = torch.Generator().manual_seed(settings.seed)
    weights, biases = _initial(width, generator)
    optimizer = torch.optim.Adam([*weights, *biases], lr=settings.learning_rate)
    with torch.enable_grad():
        for _ in range(settings.epochs):
            for rows in torch.randperm(len(x), generator=generator).split(settings.batch):
                optimizer.zero_grad()
                binary_cross_entropy_with_logits(_forward(x[rows], weights, biases), y[rows]).backward()
                optimizer.step()
    network = {f"weight{i}": weight.detach().double().numpy() for i, weight in enumerate(weights)}
    network |= {f"bias{i}": bias.detach().double().numpy() for i, bias in enumerate(biases)}
    # Standardising is linear, so the first layer can do it and nothing else has to know. In float64: a mean
    # that is large beside its deviation would cancel badly in float32.
    network["weight0"] = network["weight0"] / scale
    network["bias0"] = network["bias0"] - network["weight0"] @ mean
    if not all(np.isfinite(value).all() for value in network.values()):
        raise TrainingError(
            f"the network of {len(x)} rows diverged; try standardise=True or a learning rate below "
            f"{settings.learning_rate}"
        )
    return network


def logits(network: Mapping[str, NDArray[Any]], features: Singles) -> Floats:
    """(M,) log-odds of label 1 for (M, D) features."""
    values = features.astype(np.float64)
    for i in range(len(HIDDEN)):
        values = np.maximum(values @ network[f"weight{i}"].T + network[f"bias{i}"], 0.0)
    last = len(HIDDEN)
    odds: Floats = (values @ network[f"weight{last}"].T + network[f"bias{last}"])[:, 0]
    return odds


def _forward(x: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
    from torch.nn.functional import linear, relu

    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        x = relu(linear(x, weight, bias))
    return linear(x, weights[-1], biases[-1])[:, 0]


def _initial(features: int, generator: Generator) -> tuple[list[Tensor], list[Tensor]]:
    """Glorot uniform weights and zero biases, the defaults of the library that the authors used."""
    import torch
    from torch.nn.init import xavier_uniform_

    widths = (features, *HIDDEN, 1)
    weights = [torch.empty(after, before) for before, after in pairwise(widths)]
    for weight in weights:
        xavier_uniform_(weight, generator=generator).requires_grad_()
    return weights, [torch.zeros(width, requires_grad=True) for width in widths[1:]]


def _scaling(features: Singles) -> tuple[Floats, Floats]:
    """Mean and standard deviation (D,) of the features; 1 for a feature that is constant."""
    deviation = features.std(axis=0, dtype=np.float64)
    return features.mean(axis=0, dtype=np.float64), np.where(deviation > 0, deviation, 1.0)


@dataclass(frozen=True, kw_only=True)
class SaplmaReport(ProbeReport):
    """What a fit did. ``layer`` is the one that was chosen."""

    layer: int


@dataclass
class Saplma(Probe[SaplmaReport]):
    """Network 256-128-64 on the state of one token, one layer of L, chosen by validation AUROC.

    The targets are labels, 1 right, 0 wrong. Where the validation rows have one class only, the middle layer
    is taken; where the training rows have, or training diverges, that is a TrainingError.

    ``standardise`` scales each feature by its training mean and deviation first; the authors do not. Equal
    arguments and rows give equal fits on one machine; no global generator is used. Raises UsageError for
    settings that cannot be.

    Source: Azaria and Mitchell 2023 and the authors' code: Adam, binary cross-entropy, 5 epochs of 32 rows.
    """

    name, described, report_type = "saplma", "a SAPLMA probe", SaplmaReport

    epochs: int = 5
    batch: int = 32
    learning_rate: float = 1e-3
    standardise: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or not self.learning_rate > 0:
            raise UsageError(
                f"epochs is {self.epochs}, batch {self.batch}, learning_rate {self.learning_rate}; "
                "at least 1, at least 1 and above 0 are needed"
            )
        super().__init__(self)

    @property
    def layers(self) -> range:
        return range(self.report.layer, self.report.layer + 1)

    def learnt(self, training: ProbeRows, validation: ProbeRows) -> tuple[SaplmaReport, Weights]:
        """A network for each layer, of which the best on the validation rows is kept."""
        _check_labels(training.target, validation.target)
        layers = training.shape[0]
        networks = [
            train(training.layers(layer, layer + 1), training.target, self) for layer in range(layers)
        ]
        aurocs = [
            validation_auroc(logits(network, validation.layers(layer, layer + 1)), validation.target)
            for layer, network in enumerate(networks)
        ]
        layer, _ = best_layers(aurocs, at_least=1)
        return SaplmaReport.of(training, validation, aurocs, layer=layer), networks[layer]

    def log_odds(self, features: Singles) -> Floats:
        """(M,) log-odds that the answer is right."""
        return logits(self._weights, features)


METHOD = ProbeMethod(
    name="saplma",
    title="SAPLMA",
    reference="Azaria and Mitchell 2023",
    probe=Saplma,
    gives_probability=True,
)


def _check_labels(training: Floats, validation: Floats) -> None:
    for side, labels in (("training", training), ("validation", validation)):
        if (bad := labels[~np.isin(labels, (0.0, 1.0))]).size:
            raise DataError(f"a {side} label is {bad[0]}; labels are 0 or 1, or NaN where there is none")
    if len(np.unique(training)) < 2:
        raise TrainingError(
            f"all {len(training)} training labels are the same; a probe needs both classes. "
            "Use other questions or check the judge."
        )
