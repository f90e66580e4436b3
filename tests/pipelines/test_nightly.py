"""What `sgpu score` reads its settings from, and what it leaves alone where there is nothing new."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.nightly import NIGHTLY, score_logs, score_settings
from sgpu.errors import UsageError
from sgpu.report.daily import PAGE
from sgpu.scoring.settings import ScoreSettings
from tests.scoring.nights.nights import DAY, model_folder, night, row, settings, summary, write

AGAIN = """
import sys
from pipelines.nightly import score_logs
code = score_logs(None, {given!r})
large = ("torch", "ray", "mlflow", "dagster", "matplotlib", "sentence_transformers", "scipy.stats")
print(code, *[name for name in large if name in sys.modules])
"""


def test_the_settings_that_come_along_are_valid() -> None:
    settings = score_settings(NIGHTLY, {"date": DAY.isoformat()})
    assert settings.model == "models:/sgpu@champion"


def test_flags_win_over_the_file_and_a_wrong_key_is_named(tmp_path: Path) -> None:
    given = {"date": DAY.isoformat(), "late_days": 5}
    assert score_settings(NIGHTLY, given).late_days == 5
    with pytest.raises(UsageError, match="late_dayz"):
        score_settings(NIGHTLY, {"date": DAY.isoformat(), "late_dayz": 5})


def test_overrides_win_over_flags_with_and_without_a_file(tmp_path: Path) -> None:
    file = tmp_path / "night.yaml"
    file.write_text("{logs: l, model: m, out: o, resample: {base_url: 'http://one/v1', n: 7}}")
    flags = {"date": DAY.isoformat(), "resample": {"base_url": "http://two/v1"}, "workers": 1}
    found = score_settings(file, flags, ["resample.share=0.5", "workers=2"])
    assert found.resample is not None and found.workers == 2
    assert (found.resample.base_url, found.resample.n, found.resample.share) == ("http://two/v1", 7, 0.5)
    alone = {"logs": "l", "model": "m", "out": "o", **flags}
    bare = score_settings(None, alone, ["resample.share=0.5"]).resample
    assert bare is not None and (bare.n, bare.share) == (10, 0.5)


@pytest.mark.parametrize("named", [True, False])
def test_only_a_day_that_is_named_is_that_of_records_without_a_time(
    monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    asked: list[ScoreSettings] = []
    monkeypatch.setattr("pipelines.nightly.score_days", lambda settings, **_: asked.append(settings) or [])
    score_logs(None, {"logs": "l", "model": "m", "out": "o", **({"date": "2026-11-20"} if named else {})})
    assert [settings.undated for settings in asked] == [named]


def test_an_override_that_leads_nowhere_is_named_also_without_a_file() -> None:
    given = {"date": DAY.isoformat(), "logs": "l", "model": "m", "out": "o"}
    with pytest.raises(UsageError, match="buckets_rows"):
        score_settings(None, given, ["buckets_rows=5"])


def test_a_night_that_finds_nothing_new_imports_nothing_large(tmp_path: Path) -> None:
    model_folder(tmp_path / "model")
    write(tmp_path / "logs", "a.jsonl", [row("q1", ["a", "a", "b", "c"])])
    night(tmp_path)
    before = summary(tmp_path)
    given = json.loads(
        settings(tmp_path).model_dump_json(
            include={"logs", "out", "model", "date", "workers", "bucket_rows", "tracking"}
        )
    )
    done = subprocess.run([sys.executable, "-c", AGAIN.format(given=given)], capture_output=True, text=True)
    assert done.stdout.split() == ["0"], done.stdout + done.stderr
    assert summary(tmp_path) == before and (tmp_path / "out" / "days" / str(DAY) / PAGE).is_file()
