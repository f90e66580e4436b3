"""One night: what is scored, what is not, and what is told about it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sgpu.errors import DataError, HeldError, StageError, UsageError
from sgpu.logs.snapshot import Snapshot
from sgpu.report.daily import PAGE, update_daily_page
from sgpu.runtime.lock import run_lock
from sgpu.scoring import day as day_module
from sgpu.scoring.day import score_days
from sgpu.scoring.outcome import exit_code
from sgpu.scoring.sets.ingest import Reader
from sgpu.storage.location import Location
from tests.scoring.nights import nights
from tests.scoring.nights.nights import (
    DAY,
    SCORER,
    arrow,
    night,
    quarantine,
    reasons,
    row,
    rows,
    scores,
    write,
)


def test_every_request_is_scored_and_every_other_row_is_somewhere(place: Path) -> None:
    lines = [
        *rows(range(40)), *rows(range(3)), "{not json", "", row("c", ["x", "x"]), row("c", ["x", "y"]),
        row("one", ["x"]), row("seven", list("aaabbbc")), row("broken", ["RAISE", "b"]),
    ]  # fmt: skip
    write(place / "logs", "a.jsonl", lines)
    write(place / "logs", "b.jsonl", rows(range(40, 60)))
    result = night(place)
    found = result.accounting
    assert found is not None and found.rows_in == len(lines) + 20
    assert (found.scored_rows, found.duplicates, found.no_answer, found.quarantined) == (60, 3, 1, 6)
    assert scores(place)["request_id"].to_list() == sorted(f"q{i:05d}" for i in range(60))
    assert reasons(place) == {
        "not_json": 1, "conflicting_duplicate": 2, "too_few_answers": 1, "no_classifier_for_n": 1,
        "scoring_failed": 1,
    }  # fmt: skip


def test_a_score_is_that_of_its_answers(place: Path) -> None:
    write(place / "logs", "a.jsonl", [row("x", ["a", "b", "a", "a"], label=1), row("y", ["a", ""])])
    write(place / "logs", "b.jsonl", [row("z", ["a", "b", ""])])
    night(place)
    x, z = scores(place).to_dicts()
    assert (x["spectrum"], x["n_used"], x["n_distinct"], x["probability"]) == (
        [3.0, 1.0, 0.0, 0.0],
        4,
        2,
        0.75,
    )
    assert (x["status"], z["status"], x["model"], x["route"]) == ("ok", "partial", "m", "r")
    assert x["timestamp"].isoformat() == "2026-11-20T10:00:00+00:00"
    assert x["run_key"] == json.loads((place / "out/days/2026-11-20/summary.json").read_bytes())["run_key"]


def test_no_text_of_an_answer_is_in_any_table(place: Path) -> None:
    secret = "the-secret-answer"
    lines = [
        row("a", [secret, secret]),
        row("b", [secret]),
        row("c", [f"RAISE {secret}", "x"]),
        secret,
        f'{{"{secret}',
    ]
    write(place / "logs", "a.jsonl", lines)
    night(place)
    for file in (place / "out").rglob("*"):
        if file.suffix == ".json" or file.suffix == ".prom":
            assert secret not in file.read_text()
    for table in ("scores", "quarantine"):
        assert secret not in json.dumps(arrow(place, table).to_pylist(), default=str)


def test_quarantined_rows_name_file_and_line_of_any_split(place: Path) -> None:
    lines: list[nights.Row | str] = [*rows(range(300))]
    lines[7] = lines[150] = lines[299] = "{broken"
    write(place / "logs", "a.jsonl", lines)
    write(place / "logs", "b.jsonl", ["{broken", *rows(range(300, 305))])
    night(place, split_mb=0.01)
    found = quarantine(place).select("file", "line").rows()
    assert found == [("dt=2026-11-20/a.jsonl", n) for n in (8, 151, 300)] + [("dt=2026-11-20/b.jsonl", 1)]


def test_a_second_run_changes_nothing_and_starts_no_worker(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(place / "logs", "a.jsonl", rows(range(20)))
    first = night(place)
    before, files = nights.versions(place), nights.files(place)
    monkeypatch.setattr("sgpu.scoring.parts.StepRun.done", None)
    second = night(place)
    assert (first.status, second.status) == ("committed", "unchanged")
    assert (nights.versions(place), nights.files(place)) == (before, files)
    assert (second.accounting, second.level) == (first.accounting, first.level)


def test_the_newest_days_metrics_stand_beside_the_table(place: Path) -> None:
    for back in (0, 1):
        day = DAY - timedelta(days=back)
        write(place / "logs", "a.jsonl", rows(range(5 * back, 5 * back + 5 + back), day), day)
        night(place, day)
    days, newest = place / "out" / "days", (place / "out" / "metrics.prom").read_bytes()
    assert newest == (days / str(DAY) / "metrics.prom").read_bytes()
    assert newest != (days / str(DAY - timedelta(days=1)) / "metrics.prom").read_bytes()


def test_polars_reads_the_table_by_its_hive_folders(place: Path) -> None:
    write(place / "logs", "a.jsonl", rows(range(20)))
    night(place)
    glob = pl.scan_parquet(str(place / "out/scores/date=*/*/*.parquet"), hive_partitioning=True)
    assert glob.filter(pl.col("date") == DAY).collect().height == 20
    assert (
        pl.scan_delta(str(place / "out/scores")).filter(pl.col("date") == "2026-11-20").collect().height == 20
    )


def test_the_log_of_the_table_tells_rows_and_ids_of_each_file(place: Path) -> None:
    from deltalake import DeltaTable

    write(place / "logs", "a.jsonl", rows(range(20)))
    night(place)
    told = pl.DataFrame(DeltaTable(str(place / "out/scores")).get_add_actions(flatten=True))
    assert told["num_records"].sum() == 20
    assert (told["min.request_id"].min(), told["max.request_id"].max()) == ("q00000", "q00019")


def test_work_is_removed_after_the_commit(place: Path) -> None:
    write(place / "logs", "a.jsonl", rows(range(20)))
    night(place)
    assert {entry.name for entry in (place / "out" / "work").iterdir() if any(entry.iterdir())} == {
        "models",
        "locks",
    }


def test_another_run_of_the_day_is_told_to_wait(place: Path) -> None:
    write(place / "logs", "a.jsonl", rows(range(2)))
    folder = place / "out" / "work" / "locks" / DAY.isoformat()
    folder.mkdir(parents=True)
    with (
        run_lock(Location.of(folder), folder),
        pytest.raises(HeldError, match="another run is scoring 2026-11-20") as held,
    ):
        night(place)
    assert held.value.exit_code == 1 and not isinstance(held.value, UsageError)
    assert night(place).status == "committed"


def test_a_file_that_cannot_be_read_is_a_fault_of_the_file_and_no_row(place: Path) -> None:
    write(place / "logs", "a.jsonl", rows(range(10)))
    write(place / "logs", "b.parquet", ["no parquet"])
    result = night(place)
    assert result.accounting is not None
    assert (result.accounting.rows_in, result.accounting.quarantined) == (10, 0)
    assert dict(result.accounting.file_faults) == {"file_unreadable": 1}
    assert result.exit_code == 3
    assert quarantine(place).select("file", "line").rows() == [("dt=2026-11-20/b.parquet", None)]


def test_a_file_that_is_not_a_log_is_in_quarantine_and_leaves_the_day_as_it_is(place: Path) -> None:
    write(place / "logs", "a.jsonl", rows(range(61)))
    write(place / "logs", "make.py", ["import this"])
    result = night(place)
    assert (result.exit_code, result.too_bad, result.level) == (0, False, "grey")
    assert quarantine(place).select("file", "reason").rows() == [(f"dt={DAY}/make.py", "not_a_log")]


def test_without_folders_of_days_the_time_of_a_row_decides(place: Path) -> None:
    logs = place / "logs"
    write(logs, "a.jsonl", [*rows(range(5)), *rows(range(5, 8), DAY - timedelta(days=1))])
    (logs / f"dt={DAY}").rename(logs / "flat")
    result = night(place)
    assert result.accounting is not None and (result.accounting.scored_rows, result.accounting.other_day) == (
        5,
        3,
    )


def flat(place: Path, lines: list[Any]) -> None:
    (place / "logs").mkdir()
    (place / "logs" / "all.jsonl").write_text("".join(f"{one}\n" for one in map(json.dumps, lines)))


def test_the_first_night_of_flat_logs_is_not_red_for_the_days_before_them(place: Path) -> None:
    flat(place, [*rows(range(12)), "no record"])
    results = score_days(nights.settings(place, max_bad=1), scorer=SCORER)
    assert [one.status for one in results] == ["no logs", "no logs", "committed"]
    assert exit_code(results, DAY) == 0
    assert [one.name for one in (place / "out" / "days").iterdir()] == [str(DAY)]
    assert quarantine(place).height == 1  # a row without a time is told with the day that there is


def test_flat_logs_in_which_no_row_has_a_time_are_told(place: Path) -> None:
    flat(place, ["no record"] * 3)
    [result] = score_days(nights.settings(place, late_days=0), scorer=SCORER)
    assert (result.status, result.level, result.too_bad) == ("committed", "red", True)


@contextmanager
def as_nobody() -> Iterator[None]:
    """The superuser may write everywhere, and for this is somebody else."""
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(mine)


def test_an_output_that_cannot_be_written_is_told_in_one_line_before_any_work(place: Path) -> None:
    write(place / "logs", "a.jsonl", rows(range(5)))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        with as_nobody(), pytest.raises(StageError) as refused:
            score_days(nights.settings(place, out=f"{folder}/scores"), scorer=SCORER)
        Path(folder).chmod(0o755)
    assert refused.value.exit_code == 1 and "\n" not in str(refused.value)
    assert f"cannot write to {folder}/scores: {folder} is read-only" in str(refused.value)


def test_a_run_of_several_days_skips_those_without_logs(place: Path) -> None:
    write(place / "logs", "a.jsonl", rows(range(5)))
    write(place / "logs", "a.jsonl", rows(range(5, 9), DAY - timedelta(days=2)), DAY - timedelta(days=2))
    results = score_days(nights.settings(place, max_bad=1), scorer=SCORER)
    assert [one.status for one in results] == ["committed", "no logs", "committed"]
    assert [one.day for one in results] == [date(2026, 11, day) for day in (18, 19, 20)]
    assert exit_code(results, DAY) == 0


@pytest.mark.parametrize("back", [0, 1])
def test_the_days_beside_one_that_failed_are_scored_with_a_page_and_the_end_names_it(
    place: Path, monkeypatch: pytest.MonkeyPatch, back: int
) -> None:
    failing, kept = DAY - timedelta(days=back), DAY - timedelta(days=1 - back)
    numbers = range(4)
    for day in (failing, kept):
        write(place / "logs", "a.jsonl", rows(numbers if day == kept else range(10, 14), day), day)
    taken = day_module.take_snapshot

    def snapshot(logs: Location, day: date) -> Snapshot:
        if day == failing:
            raise OSError("the mount is gone")
        return taken(logs, day)

    monkeypatch.setattr(day_module, "take_snapshot", snapshot)
    with pytest.raises(StageError, match=f"{failing} was not scored: .*the mount is gone") as stopped:
        score_days(nights.settings(place, late_days=1), scorer=SCORER, on_summary=update_daily_page)
    assert (place / "out" / "days" / str(kept) / PAGE).is_file()
    assert stopped.value.exit_code == 1 and str(kept) not in str(stopped.value)
    assert scores(place)["request_id"].to_list() == [f"q{i:05d}" for i in numbers]


def test_a_day_without_logs_is_an_error_with_a_remedy(place: Path) -> None:
    write(place / "logs", "a.jsonl", rows(range(5)), DAY - timedelta(days=1))
    with pytest.raises(DataError, match="no logs of 2026-11-20"):
        score_days(nights.settings(place), scorer=SCORER)


def test_an_unknown_format_is_refused_before_any_work(place: Path) -> None:
    write(place / "logs", "a.jsonl", rows(range(5)))
    with pytest.raises(UsageError, match="unknown log format"):
        score_days(nights.settings(place, format="sgpuu"), scorer=SCORER)
    assert not (place / "out").exists()


def test_a_full_disk_is_told_and_nothing_is_visible(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(place / "logs", "a.jsonl", rows(range(30)))
    original = Location.write_bytes

    def full(self: Location, payload: bytes) -> None:
        if "/scores/" in self.path:
            raise OSError(28, "No space left on device")
        original(self, payload)

    with monkeypatch.context() as patched:
        patched.setattr(Location, "write_bytes", full)
        with pytest.raises(StageError, match="no space left in "):
            night(place)
    assert not (place / "out" / "scores" / "_delta_log").exists()
    assert night(place).status == "committed" and scores(place).height == 30


def own_answers(place: Path) -> dict[str, Any]:
    """Write 40 rows for a fit, which have no time; return the settings that name their day."""
    file = place / "answers.jsonl"
    lines = ({"question_id": f"q{i}", "question": "?", "answers": ["a", "b"]} for i in range(40))
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return {"logs": str(file), "undated": True, "max_bad": 1}


def test_records_without_a_time_count_for_the_day_that_was_named_and_for_no_other(place: Path) -> None:
    results = score_days(nights.settings(place, **own_answers(place)), scorer=SCORER)
    assert [result.status for result in results] == ["no logs", "no logs", "committed"]
    assert scores(place)["date"].to_list() == [str(DAY)] * 40


def test_records_without_a_time_are_scored_once_also_for_another_day_nearby(place: Path) -> None:
    given = own_answers(place)
    for day in (DAY, DAY, DAY + timedelta(days=1)):
        score_days(nights.settings(place, date=day, **given), scorer=SCORER)
    assert len(scores(place)) == 40
    score_days(nights.settings(place, date=DAY + timedelta(days=9), **given), scorer=SCORER)
    assert len(scores(place)) == 80  # further away than `late_days` they are other requests


def test_without_a_named_day_records_without_a_time_stay_in_quarantine(place: Path) -> None:
    result = night(place, **own_answers(place) | {"undated": False})
    assert result.accounting is not None and dict(result.accounting.by_reason) == {"missing_field": 40}
    assert "name the day with --date" in quarantine(place)["detail"][0]


def test_rows_of_other_days_do_not_hide_that_those_of_the_day_are_bad(place: Path) -> None:
    others = [line for back in range(1, 11) for line in rows(range(100), DAY - timedelta(days=back))]
    for number, line in enumerate(others):
        line["request_id"] = f"o{number}"
    broken = [{**row(f"b{i}", ["a", "b"]), "samples": "none"} for i in range(18)]
    flat(place, [*others, *broken, *rows(range(2))])
    result = night(place)
    assert result.accounting is not None and result.accounting.bad_share == 0.9 and result.too_bad


def test_a_file_that_is_gone_is_one_fault_however_many_parts_it_has(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(place / "logs", "a.jsonl", rows(range(200)))
    write(place / "logs", "b.jsonl", rows(range(200, 300)))
    read = Reader.work

    def removed_first(reader: Reader, *given: Any) -> Any:
        (place / "logs" / f"dt={DAY}" / "a.jsonl").unlink(missing_ok=True)
        return read(reader, *given)

    monkeypatch.setattr(Reader, "work", removed_first)
    result = night(place, split_mb=0.002)
    assert result.accounting is not None
    assert (result.accounting.file_faults, result.accounting.bad_file_share) == ({"file_missing": 1}, 0.5)
