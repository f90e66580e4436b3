"""Constructed logs are what they say: read back by the adapters, row for row."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from collections import Counter, defaultdict
from datetime import date
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from sklearn.metrics import roc_auc_score

from bench.constructed_logs import files
from bench.constructed_logs.__main__ import main, write_logs
from bench.constructed_logs.faults import FAULTS, faults_of
from bench.constructed_logs.settings import FORMAT_WEIGHTS, LogSettings
from bench.constructed_logs.traffic import Request, Traffic
from bench.constructed_logs.truth import ids_sha256
from sgpu.datasets.response_files import OPTIONAL, REQUIRED, RowFile, parse_row
from sgpu.logs.reading import SplitEnd, read_split
from sgpu.logs.records import BatchPrompt, Item, LogRecord, NoAnswer, Rejected
from sgpu.logs.snapshot import splits_of, take_snapshot
from sgpu.storage.location import Location

DAY = date(2026, 11, 20)
# A reader sees one row at a time: these are found where rows meet.
FOUND_LATER = ("conflict", "no_output", "one_answer")


def settings(rows: int = 1500, **changes: Any) -> LogSettings:
    return LogSettings(rows=rows, days=(DAY,), **changes)


@pytest.fixture(scope="module")
def bad_day(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("logs")
    return out, write_logs(settings(6000, bad=0.4, seed=3), out)["days"][str(DAY)]


def read(out: Path) -> list[tuple[str, int | None, Item]]:
    """File, line and item of every row, as the readers see them."""
    logs = Location.of(out / "logs")
    snapshot = take_snapshot(logs, DAY)
    return [
        (snapshot.files[split.file].path, *found)
        for split in splits_of(snapshot, 2**40)
        for found in read_split(logs, snapshot, split)
        if not isinstance(found, SplitEnd)
    ]


def planted(out: Path) -> dict[tuple[str, int], dict[str, Any]]:
    rows = map(json.loads, (out / "planted.jsonl").read_text().splitlines())
    return {(row["file"], row["line"]): row for row in rows}


def content(out: Path) -> dict[str, str]:
    found = sorted(path for path in out.rglob("*") if path.is_file())
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def test_the_same_settings_give_the_same_bytes_in_every_file(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_logs(settings(bad=0.1), tmp_path / name)
    assert content(tmp_path / "one") == content(tmp_path / "two")
    assert len(content(tmp_path / "one")) == 16


def test_another_seed_gives_other_requests(tmp_path: Path) -> None:
    hashes = {
        write_logs(settings(seed=seed), tmp_path / str(seed))["days"][str(DAY)]["request_ids_sha256"]
        for seed in (0, 1)
    }
    assert len(hashes) == 2


def test_a_day_has_exactly_the_rows_that_were_asked_for(bad_day: tuple[Path, dict[str, Any]]) -> None:
    out, truth = bad_day
    assert truth["rows_in"] == 6000 == len(read(out))


def test_every_row_has_one_fate(bad_day: tuple[Path, dict[str, Any]]) -> None:
    _, truth = bad_day
    fates = ("scored_rows", "quarantined", "duplicates", "no_answer", "prompts")
    assert sum(truth[name] for name in fates) == truth["rows_in"]
    assert sum(truth["by_reason"].values()) == truth["quarantined"]


@pytest.mark.parametrize("format", FORMAT_WEIGHTS)
def test_every_fault_of_a_format_is_planted(format: Any, tmp_path: Path) -> None:
    write_logs(settings(bad=0.5, formats=(format,)), tmp_path)
    found = {row["fault"] for row in planted(tmp_path).values()} - {None}
    assert found == set(faults_of(format))


def test_every_format_can_be_written_alone_and_is_read_as_itself(tmp_path: Path) -> None:
    logs = Location.of(tmp_path / "logs")
    for name in FORMAT_WEIGHTS:
        write_logs(settings(200, bad=0, formats=(name,)), tmp_path / name)
        logs = Location.of(tmp_path / name / "logs")
        snapshot = take_snapshot(logs, DAY)
        taken: Counter[str] = Counter()
        for split in splits_of(snapshot, 2**40):
            *_, end = read_split(logs, snapshot, split)
            assert isinstance(end, SplitEnd)
            taken.update(end.formats)
        assert set(taken) == {name}


def test_the_readers_find_every_bad_row_at_its_line_with_its_reason(
    bad_day: tuple[Path, dict[str, Any]],
) -> None:
    out, _ = bad_day
    known = {
        place: row["reason"]
        for place, row in planted(out).items()
        if row["fate"] == "quarantined" and row["fault"] not in FOUND_LATER and row["reason"] != "no_output"
    }
    rejected = {
        (file, line): str(item.reason)
        for file, line, item in read(out)
        if isinstance(item, Rejected) and line is not None and item.reason != "too_few_answers"
    }
    assert rejected == known
    assert set(known.values()) == {str(reason) for reason, _ in FAULTS.values()} - {
        "too_few_answers", "conflicting_duplicate", "no_output",
    }  # fmt: skip


def test_the_readers_find_the_requests_that_can_be_scored(bad_day: tuple[Path, dict[str, Any]]) -> None:
    out, truth = bad_day
    places = planted(out)
    sets: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    singles = Counter()
    for file, line, item in read(out):
        if isinstance(item, LogRecord) and item.group_key is not None:
            singles[item.group_key] += (file, line) not in places or places[file, line]["fate"] == "scored"
        elif isinstance(item, LogRecord) and len(item.samples) > 1:
            sets[item.request_id].add(tuple(sample.text for sample in item.samples))
    ids = [one for one, contents in sets.items() if len(contents) == 1]
    assert ids_sha256(ids) == truth["request_ids_sha256"]
    grouped = sum(1 for members in singles.values() if members > 1)
    assert len(ids) + grouped == truth["requests_scored"]


def test_prompts_and_spans_of_other_kinds_are_counted(bad_day: tuple[Path, dict[str, Any]]) -> None:
    out, truth = bad_day
    items = [item for _, _, item in read(out)]
    lost = truth["by_reason"]["no_output"]
    assert sum(isinstance(item, BatchPrompt) for item in items) == truth["prompts"] + lost
    assert sum(isinstance(item, NoAnswer) for item in items) == truth["no_answer"] > 0


def test_a_second_delivery_is_the_first_one_again_in_another_file(tmp_path: Path) -> None:
    truth = write_logs(settings(bad=0, duplicates=0.2, formats=("openai",)), tmp_path)["days"][str(DAY)]
    lines: dict[str, list[str]] = defaultdict(list)
    for file, _, item in read(tmp_path):
        assert isinstance(item, LogRecord)
        lines[f"{item.request_id}{item.samples}"].append(file)
    assert sum(len(files) - 1 for files in lines.values()) == truth["duplicates"] > 100
    assert all(len(set(files)) == 2 for files in lines.values() if len(files) == 2)


def test_outputs_of_a_batch_come_in_another_order_than_its_inputs(tmp_path: Path) -> None:
    write_logs(settings(400, bad=0, formats=("openai_batch",)), tmp_path)
    folder = tmp_path / "logs" / f"dt={DAY}"
    asked, answered = (
        [json.loads(line)["custom_id"] for line in (folder / f"batch-0000-{side}.jsonl").open()]
        for side in ("input", "output")
    )
    assert asked != answered
    assert set(asked) == set(answered)


def agreement(request: Request) -> float:
    """Share of the most frequent answer."""
    return Counter(request.answers).most_common(1)[0][1] / len(request.answers)


def test_answers_that_agree_are_right_more_often() -> None:
    traffic = Traffic(settings(labelled=1.0), DAY)
    requests = [traffic.request(number) for number in range(1500)]
    auroc = roc_auc_score([one.label for one in requests], [agreement(one) for one in requests])
    assert 0.65 < auroc < 0.95


def test_models_differ_in_how_often_they_are_right() -> None:
    traffic = Traffic(settings(labelled=1.0), DAY)
    right = defaultdict(list)
    for number in range(3000):
        request = traffic.request(number)
        right[request.model].append(request.label)
    assert mean(right["atlas-large-2026-10"]) > mean(right["atlas-mini-2026-08"]) + 0.1


def test_questions_follow_zipfs_law() -> None:
    traffic = Traffic(settings(), DAY)
    asked = Counter(traffic.request(number).question for number in range(2000)).most_common()
    assert asked[0][1] > 4 * asked[9][1]
    assert len(asked) > 200


def test_incoherent_answers_agree_less() -> None:
    def usual(share: float) -> float:
        traffic = Traffic(settings(incoherent=share), DAY)
        return mean(agreement(traffic.request(number)) for number in range(300))

    assert usual(0.9) < usual(0.0) - 0.2


def test_memory_does_not_grow_with_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PARQUET_ROWS", 50)
    monkeypatch.setattr(files, "BATCH_ROWS", 50)

    def peak(rows: int) -> int:
        tracemalloc.start()
        write_logs(settings(rows, formats=("sgpu", "openai_batch")), tmp_path / str(rows))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    peak(300)  # loads the facts
    assert peak(6000) < 1.25 * peak(1500)


def test_labelled_sets_are_what_a_model_is_fitted_on(tmp_path: Path) -> None:
    arguments = ["--rows", "50", "--days", "2026-11-20", "--labelled-sets", "40", "--answers", "8"]
    assert main(["--out", str(tmp_path), *arguments]) == 0
    file = RowFile(tmp_path / "labelled.jsonl", (*REQUIRED, *OPTIONAL))
    rows = [parse_row(row.values) for row in file]
    assert {len(row.answers) for row in rows} == {8}
    assert {row.label for row in rows} == {0, 1}


def test_a_range_of_days_is_one_folder_each(tmp_path: Path) -> None:
    arguments = ["--rows", "30", "--days", "2026-11-19..2026-11-21", "--formats", "sgpu"]
    assert main(["--out", str(tmp_path), *arguments]) == 0
    days = [f"2026-11-{day}" for day in (19, 20, 21)]
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [f"dt={day}" for day in days]
    assert sorted(json.loads((tmp_path / "truth.json").read_text())["days"]) == days


def test_logs_that_are_there_are_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    with pytest.raises(SystemExit) as caught:
        main(["--out", str(tmp_path), "--days", "2026-11-20"])
    assert caught.value.code == 2
