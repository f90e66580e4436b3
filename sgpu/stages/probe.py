"""Probes on hidden states: their training rows as a file, and how the training job fits them.

The file names the published states and does not repeat them: those of a cell can be half a gigabyte.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sgpu.errors import DataError
from sgpu.gp.persistence import write_json
from sgpu.gp.trainers import Trainer
from sgpu.hidden.reading import probe_states
from sgpu.methods.base import METHODS, Method
from sgpu.probes.persistence import FORMAT
from sgpu.probes.saplma import Saplma
from sgpu.probes.sep import Sep
from sgpu.stages.cell_frame import CellInputs, features, labels
from sgpu.storage.store import Partition, Store
from sgpu.study.benchmark import Study

# What a probe learns to tell: whether the judge found the answers right, or how much they disagree.
LABEL, ENTROPY = "label", "discrete_semantic_entropy"
TARGETS = {"saplma": LABEL, "sep": ENTROPY}
PROBES: Mapping[str, type[Saplma] | type[Sep]] = {"saplma": Saplma, "sep": Sep}
VERSION = 1


def position_of(study: Study, method: str) -> str:
    """Which token of the first answer the probe reads (see `sgpu.probes.positions`)."""
    return study.hidden.sep_position if method == "sep" else "last"


def write_probe_rows(
    path: Path, store: Store, inputs: CellInputs, frame: pl.DataFrame, method: str, position: str
) -> int:
    """Write the training and validation rows of a probe that have a target; returns how many train."""
    assert inputs.hidden is not None
    target = _targets(frame, inputs, TARGETS[method])
    content: dict[str, Any] = {
        "store": _address(store, path.parent),
        "partition": [list(pair) for pair in inputs.hidden.partition.values],
        "fingerprint": inputs.hidden.fingerprint,
        "position": position,
    }
    for split in ("train", "validation"):
        chosen = (frame["split"] == split).to_numpy() & np.isfinite(target)
        ids = frame["question_id"].filter(pl.Series(chosen))
        content[split] = {"question_ids": ids.to_list(), "targets": target[chosen].tolist()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content)
    return len(content["train"]["targets"])


def _address(store: Store, beside: Path) -> str:
    """Relative on this machine, so that a folder can be moved without a new fit."""
    return os.path.relpath(store.root.local, beside) if store.root.is_local else str(store.root)


def _targets(frame: pl.DataFrame, inputs: CellInputs, target: str) -> NDArray[np.float64]:
    """(Q,) what the probe learns; NaN where it is unknown."""
    if target == LABEL:
        return labels(frame)
    method = METHODS.get(target)
    assert isinstance(method, Method)
    return np.asarray(method.compute(features(frame, inputs, method.needs)), dtype=np.float64)


def _read(path: Path) -> tuple[str, list[NDArray[Any]]]:
    """The position, and states and targets for training and for validation."""
    content = json.loads(path.read_text())
    where: str = content["store"]
    store = Store(where if "://" in where else (path.parent / where).resolve())
    hidden = store.require("hidden_states", Partition(tuple((k, v) for k, v in content["partition"])))
    if hidden.fingerprint != content["fingerprint"]:
        raise DataError(f"the hidden states of {hidden.partition} have changed since {path} was written")
    position: str = content["position"]
    arrays: list[NDArray[Any]] = []
    for split in ("train", "validation"):
        arrays += [
            probe_states(hidden, content[split]["question_ids"], position),
            np.asarray(content[split]["targets"], dtype=np.float64),
        ]
    return position, arrays


def _fit_saplma(rows: Path, settings: Mapping[str, Any], seed: int) -> Saplma:
    _, (states, target, validation_states, validation_target) = _read(rows)
    return Saplma(**settings, seed=seed).fit(states, target, validation_states, validation_target)


def _fit_sep(rows: Path, settings: Mapping[str, Any], seed: int) -> Sep:
    # Nothing in it is random, so it takes no seed.
    position, (states, target, validation_states, validation_target) = _read(rows)
    probe = Sep(**{"position": position, **settings})
    return probe.fit(states, target, validation_states, validation_target)


SAPLMA = Trainer(_fit_saplma, "saplma.json", ("saplma", VERSION, FORMAT))
SEP = Trainer(_fit_sep, "sep.json", ("sep", VERSION, FORMAT))
