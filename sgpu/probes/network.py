"""The 256-128-64 network of SAPLMA as plain weight arrays: trained with torch, applied with NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, linear, relu
from torch.nn.init import xavier_uniform_

from sgpu.errors import TrainingError
from sgpu.probes.states import Floats, Singles

HIDDEN = (256, 128, 64)
Network = dict[str, Floats]  # "weight0" (256, D), "bias0" (256,), ... "weight3" (1, 64), "bias3" (1,)


@dataclass(frozen=True)
class Training:
    """The settings of one training run."""

    epochs: int
    batch: int
    learning_rate: float
    standardise: bool
    seed: int


def train(features: Singles, labels: Floats, settings: Training) -> Network:
    """Fit the network to (M, D) features and (M,) labels in {0, 1}; TrainingError if it diverges."""
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


def logits(network: Mapping[str, Floats], features: Singles) -> Floats:
    """(M,) log-odds of label 1 for (M, D) features."""
    values = features.astype(np.float64)
    for i in range(len(HIDDEN)):
        values = np.maximum(values @ network[f"weight{i}"].T + network[f"bias{i}"], 0.0)
    last = len(HIDDEN)
    odds: Floats = (values @ network[f"weight{last}"].T + network[f"bias{last}"])[:, 0]
    return odds


def _forward(x: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        x = relu(linear(x, weight, bias))
    return linear(x, weights[-1], biases[-1])[:, 0]


def _initial(features: int, generator: torch.Generator) -> tuple[list[Tensor], list[Tensor]]:
    """Glorot uniform weights and zero biases, the defaults of the library that the authors used."""
    widths = (features, *HIDDEN, 1)
    weights = [torch.empty(after, before) for before, after in pairwise(widths)]
    for weight in weights:
        xavier_uniform_(weight, generator=generator).requires_grad_()
    return weights, [torch.zeros(width, requires_grad=True) for width in widths[1:]]


def _scaling(features: Singles) -> tuple[Floats, Floats]:
    """Mean and standard deviation (D,) of the features; 1 for a feature that is constant."""
    deviation = features.std(axis=0, dtype=np.float64)
    return features.mean(axis=0, dtype=np.float64), np.where(deviation > 0, deviation, 1.0)
