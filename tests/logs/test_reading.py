"""Reading a split: every kind of file gives the same items; each bad line is one row of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgpu.errors import UsageError
from sgpu.logs.formats.sgpu import ResponseSets
from sgpu.logs.reading import SplitEnd, read_split
from sgpu.logs.records import BatchPrompt, Item, LogRecord, Rejected
from sgpu.logs.snapshot import splits_of
from sgpu.storage.location import Location
from tests.scoring.log_fixtures import FILES, FOLDER, fixture_rows
from tests.scoring.log_folders import DAY, ids, items, json_lines, read, row, snapshot_of, told, write

KINDS = [".jsonl", ".ndjson", ".json", ".jsonl.gz", ".jsonl.zst", ".jsonl.zstd", ".JSONL"]


@pytest.mark.parametrize("ending", KINDS)
def test_every_kind_of_file_gives_the_same_items(tmp_path: Path, ending: str) -> None:
    rows = [row(i) for i in range(50)]
    plain = read(write(tmp_path / "plain.jsonl", rows))
    path = tmp_path / f"a{ending}"
    if ending.endswith(".zstd"):
        write(tmp_path / "a.jsonl.zst", rows).rename(path)
    else:
        write(path, rows)
    assert read(path) == plain
    assert ids(plain) == [f"r-{i}" for i in range(50)]


def test_parquet_gives_the_items_of_json_lines(tmp_path: Path) -> None:
    rows = [row(i, label=i % 2, route="bot", prompt="?", metadata={"a": "b"}) for i in range(20)]
    plain = read(write(tmp_path / "a.jsonl", rows), keep_prompts=True)
    assert read(write(tmp_path / "a.parquet", rows), keep_prompts=True) == plain


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_parquet_times_and_maps_are_read(tmp_path: Path, unit: str) -> None:
    moment = datetime(2026, 11, 20, 12)
    rows = [row(i, timestamp=moment, metadata=[("route", "bot")]) for i in range(3)]
    schema = pa.schema(
        [
            ("request_id", pa.large_string()),
            ("timestamp", pa.timestamp(unit)),
            ("model", pa.dictionary(pa.int32(), pa.string())),
            ("samples", pa.list_(pa.struct([("index", pa.int8()), ("text", pa.string())]))),
            ("metadata", pa.map_(pa.string(), pa.string())),
        ]
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet")
    assert ids(found) == ["r-0", "r-1", "r-2"]
    assert {one.timestamp for one in items(found) if isinstance(one, LogRecord)} == {1_795_176_000_000_000}
    assert {one.route for one in items(found) if isinstance(one, LogRecord)} == {"bot"}


def test_a_folder_of_all_formats_is_read_with_auto(tmp_path: Path) -> None:
    for name in FILES:
        write(tmp_path / "dt=2026-11-20" / f"{name}.jsonl", (FOLDER / f"{name}.jsonl").read_bytes())
    pinned = snapshot_of(tmp_path)
    counted: dict[str, int] = {}
    for split in splits_of(pinned, 2**30):
        *_, end = read_split(Location.of(tmp_path), pinned, split)
        assert isinstance(end, SplitEnd)
        name = Path(pinned.files[split.file].path).stem
        assert end.lines == len(fixture_rows(name))
        assert dict(end.formats) == {FILES[name]: end.lines}
        counted[name] = end.lines
    assert set(counted) == set(FILES)
    assert "unknown_format" not in dict(told(read(tmp_path))).values()


def test_bad_lines_are_refused_one_by_one_and_the_others_are_read(tmp_path: Path) -> None:
    text = b"".join(
        [
            b"\xef\xbb\xbf" + json_lines([row(1)]),
            b"\n",
            b"  \r\n",
            b'{"request_id": \n',
            b'{"request_id": "caf\xe9"}\n',
            json_lines([row(2)])[:-1] + b"\r\n",
            b"[1, 2]\n",
            b"17\n",
            b"null\n",
            b"\x00\x00\x00\n",
            json_lines([row(3, samples=[{"text": "a"}, {"text": "\ud800"}])]),
            b'{"a": 1, "a": 2}\n',
            b"[" * 200_000 + b"\n",
            json_lines([row(4, samples=[{"text": "a\x00b"}, {"text": "\u202e"}])]),
            json_lines([{"unknown": 1}]),
            json_lines([row(5)])[:-1],
        ]
    )
    found = read(write(tmp_path / "a.jsonl", text))
    assert ids(found) == ["r-1", "r-2", "r-4", "r-5"]
    assert told(found) == [
        (2, "empty_line"),
        (3, "empty_line"),
        (4, "not_json"),
        (5, "bad_encoding"),
        (7, "unknown_format"),
        (8, "unknown_format"),
        (9, "unknown_format"),
        (10, "not_json"),
        (11, "bad_encoding"),
        (12, "bad_value"),
        (13, "bad_value"),
        (15, "unknown_format"),
    ]
    assert [line for line, _ in found] == list(range(1, 17))


def test_a_line_above_the_bound_is_passed_over_without_holding_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgpu.storage.json_lines.MAX_LINE_BYTES", 1000)
    for module in ("sgpu.storage.json_lines", "sgpu.logs.pinned_file"):
        monkeypatch.setattr(f"{module}.CHUNK", 64)
    long = json_lines([row(1, prompt="x" * 5_000)])
    for ending in (".jsonl", ".jsonl.gz", ".jsonl.zst"):
        path = write(tmp_path / f"a{ending}", json_lines([row(0)]) + long + json_lines([row(2)]) + long[:-1])
        for split_bytes in (2**30, 700, 1):
            found = read(path, split_bytes=split_bytes)
            assert ids(found) == ["r-0", "r-2"]
            assert told(found) == [(2, "oversize_text"), (4, "oversize_text")]


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_an_adapter_that_raises_costs_one_row_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    read_row = ResponseSets.items

    def items_of(self: ResponseSets, record: dict[str, Any]) -> Iterator[Item]:
        if record["request_id"] == "r-1":
            raise KeyError("a value that nobody foresaw")
        yield from read_row(self, record)

    monkeypatch.setattr(ResponseSets, "items", items_of)
    found = read(write(tmp_path / f"a{ending}", [row(i) for i in range(3)]))
    assert ids(found) == ["r-0", "r-2"] and told(found) == [(2, "bad_value")]
    (refused,) = (one for one in items(found) if isinstance(one, Rejected))
    assert refused.detail == "unexpected KeyError in an adapter"


def test_an_empty_file_is_counted(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d.parquet"):
        (tmp_path / name).touch()
    assert told(read(tmp_path)) == [(None, "empty_file")] * 4


def test_a_file_of_another_kind_is_one_fault(tmp_path: Path) -> None:
    write(tmp_path / "notes.txt", b"{}\n{}\n")
    ((line, fault),) = read(tmp_path)
    assert line is None and isinstance(fault, Rejected)
    assert fault.reason == "unknown_format" and ".jsonl" in fault.detail


def test_a_format_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [row(1)])
    with pytest.raises(UsageError, match="unknown log format"):
        read(tmp_path, format="nope")


def test_a_named_format_reads_the_rows_of_no_other(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", fixture_rows("openai")[:1])
    (refused,) = items(read(tmp_path, format="sgpu"))
    assert isinstance(refused, Rejected) and refused.reason == "missing_field"


def test_prompts_are_kept_only_where_they_are_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [row(1, prompt="?"), *fixture_rows("openai_batch_input")])

    def kept(found: list[Any]) -> set[bool]:
        return {one.prompt is not None for one in found if isinstance(one, LogRecord | BatchPrompt)}

    assert kept(items(read(tmp_path))) == {False}
    assert True in kept(items(read(tmp_path, keep_prompts=True)))


TIMES = {
    "1969": -1_000_000_000,
    "2014": "2014-12-31T23:59:59Z",
    "2015": "2015-01-01T00:00:00Z",
    "yesterday": "2026-11-19T23:59:59Z",
    "today": "2026-11-20T00:00:00Z",
    "2101": "2101-01-01T00:00:00Z",
}


def test_without_day_folders_a_clock_that_cannot_be_right_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [row(0, request_id=name, timestamp=time) for name, time in TIMES.items()])
    found = read(tmp_path)
    assert ids(found) == ["2015", "yesterday", "today"]
    clocks = [one for one in items(found) if isinstance(one, Rejected)]
    assert [(one.request_id, one.reason) for one in clocks] == [
        ("1969", "clock_out_of_range"), ("2014", "clock_out_of_range"), ("2101", "clock_out_of_range"),
    ]  # fmt: skip
    assert {one.timestamp for one in clocks} == {None}


def test_a_time_after_the_file_was_written_is_refused_but_not_on_the_day_that_is_scored(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "a.jsonl", [row(0, timestamp="2035-05-05T00:00:00Z")])
    assert told(read(path)) == [(1, "clock_out_of_range")]
    for day in (date(2035, 5, 4), date(2035, 5, 5), date(2036, 1, 1)):
        assert ids(read(path, snapshot_of(path, day))) == ["r-0"]


def test_in_a_day_folder_the_rows_own_time_is_kept_whatever_it_is(tmp_path: Path) -> None:
    rows = [row(0, request_id=name, timestamp=time) for name, time in TIMES.items()]
    write(tmp_path / "dt=2026-11-20" / "a.jsonl", rows)
    assert ids(read(tmp_path)) == list(TIMES)


def test_of_a_file_beside_day_folders_only_rows_of_the_day_are_taken(tmp_path: Path) -> None:
    write(tmp_path / "dt=2026-11-20" / "a.jsonl", [row(1, timestamp="2026-11-19T00:00:00Z")])
    bad = row(4, timestamp="2026-11-19T00:00:00Z", samples=[])
    write(tmp_path / "b.jsonl", [row(2), row(3, timestamp="2026-11-19T00:00:00Z"), bad, row(5, samples=[])])
    found = read(tmp_path)
    assert ids(found) == ["r-2", "r-1"] or ids(found) == ["r-1", "r-2"]
    assert sorted(kind for _, kind in told(found)) == [
        "other_day_beside_folders", "other_day_beside_folders", "too_few_answers",
    ]  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=2_000), st.integers(1, 200))
def test_no_bytes_make_the_reader_raise_and_every_line_is_told(
    tmp_path: Path, text: bytes, split_bytes: int
) -> None:
    found = read(write(tmp_path / "a.jsonl", text), split_bytes=split_bytes)
    lines_in = text.count(b"\n") + (not text.endswith(b"\n")) if text else 0
    assert {line for line, _ in found if line is not None} == set(range(1, lines_in + 1))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=500), st.sampled_from(["a.jsonl.gz", "a.jsonl.zst", "a.parquet"]), st.data())
def test_no_broken_compressed_or_parquet_file_makes_the_reader_raise(
    tmp_path: Path, noise: bytes, name: str, data: st.DataObject
) -> None:
    whole = write(tmp_path / name, [row(i) for i in range(30)]).read_bytes()
    at = data.draw(st.integers(0, len(whole)))
    cut = data.draw(st.sampled_from([whole[:at], whole[:at] + noise, whole[:at] + noise + whole[at:], noise]))
    (tmp_path / name).write_bytes(cut)
    found = read(tmp_path / name)
    assert set(ids(found)) <= {f"r-{i}" for i in range(30)}
    assert found or cut == whole


def test_the_day_is_written_as_text_so_that_a_plan_can_be_saved(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [row(1)])
    assert snapshot_of(tmp_path).day == DAY.isoformat()
    json.dumps(snapshot_of(tmp_path).day)


def test_a_line_of_seventeen_megabytes_of_json_is_not_parsed(tmp_path: Path) -> None:
    long = b"[" + b"[]," * (17 * 2**20 // 3) + b"[]]\n"
    found = read(write(tmp_path / "a.jsonl", long + json_lines([row(0)])))
    assert told(found) == [(1, "oversize_text")] and ids(found) == ["r-0"]
