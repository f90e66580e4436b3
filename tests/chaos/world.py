"""The day that the suite disturbs: its logs, what is true of it, and the tables of the undisturbed run."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.constructed_logs.truth import ids_sha256
from tests.chaos.night import Night, construct
from tests.chaos.outcome import COUNTED, Tables, Wanted, summary


@dataclass(frozen=True)
class World:
    """``folder`` holds logs/, truth.json, planted.jsonl and out/, the table of the undisturbed run."""

    folder: Path
    night: Night
    truth: dict[str, Any]
    wanted: Wanted

    @property
    def logs(self) -> Path:
        return self.folder / "logs"


def made(folder: Path, model: Path, **settings: Any) -> World:
    """Construct a day and score it without trouble."""
    truth = construct(folder, **settings)
    night = Night(str(folder / "logs"), str(model))
    night.score(folder / "out")
    wanted = Wanted.of(folder / "out", truth)
    checked_against_truth(folder, wanted.tables, summary(folder / "out"), truth)
    return World(folder, night, truth, wanted)


def checked_against_truth(folder: Path, tables: Tables, told: dict[str, Any], truth: dict[str, Any]) -> None:
    """The undisturbed run against what was written down while the logs were made, row by row."""
    found = told["accounting"]
    assert {name: found[name] for name in COUNTED} == {name: truth[name] for name in COUNTED}
    own = [one["request_id"] for one in tables.scores.to_dicts() if one["status"] != "grouped"]
    assert ids_sha256(own) == truth["request_ids_sha256"] and max(tables.ids.values()) == 1
    assert Counter(tables.scores["status"].to_list()) == Counter(truth["by_status"])
    planted = map(json.loads, (folder / "planted.jsonl").read_text().splitlines())
    bad = Counter(
        (one["file"], one["line"], one["reason"]) for one in planted if one["fate"] == "quarantined"
    )
    assert Counter(tables.quarantine.select("file", "line", "reason").rows()) == bad
