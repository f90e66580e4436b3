"""A hundred thousand records with values that nobody meant, and a thousand Parquet files with other bytes.

The command itself, with its encoder, gets SGPU_CHAOS_RECORDS records: a twentieth, unless more are asked for.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sgpu.scoring.day import score_days
from tests.chaos.mutated import write_mutated
from tests.chaos.night import Night
from tests.chaos.outcome import Tables, summary
from tests.scoring.nights.nights import SCORER, model_folder, settings

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(14_400)]

RECORDS, FILES = 100_000, 1_000
BY_COMMAND = int(os.environ.get("SGPU_CHAOS_RECORDS", "5000"))
TIMEOUT_S = 1800 + BY_COMMAND // 10


def accounted(out: Path, lines: int) -> None:
    """Every row stands in one class, and every refused one in the quarantine with its file."""
    counts, tables = summary(out)["accounting"], Tables.of(out)
    classes = ("scored_rows", "quarantined", "duplicates", "already", "other_day", "no_answer", "prompts")
    assert counts["rows_in"] >= lines and sum(counts[name] for name in classes) == counts["rows_in"]
    rows = tables.quarantine.filter(tables.quarantine["line"].is_not_null())
    assert rows.height == counts["quarantined"]
    assert not tables.quarantine["detail"].str.contains("unexpected").any()


def test_mutated_values_and_files_end_no_night(tmp_path: Path) -> None:
    model_folder(tmp_path / "model")
    lines = write_mutated(tmp_path / "logs", RECORDS, FILES)
    results = score_days(settings(tmp_path, late_days=0, bucket_rows=4096), scorer=SCORER)
    assert [one.status for one in results] == ["committed"]
    assert results[0].exit_code in (0, 3, 4, 5)
    accounted(tmp_path / "out", lines)


def test_the_command_itself_ends_with_a_verdict(models: list[Path], tmp_path: Path) -> None:
    lines = write_mutated(tmp_path / "logs", BY_COMMAND, BY_COMMAND * FILES // RECORDS, seed=2)
    changes = {"bucket_rows": 4096, "split_mb": 4, "max_bad": 0.01}
    run = Night(str(tmp_path / "logs"), str(models[0]), changes).start(tmp_path / "out")
    assert run.process.wait(TIMEOUT_S) in (3, 4, 5), run.said
    accounted(tmp_path / "out", lines)
