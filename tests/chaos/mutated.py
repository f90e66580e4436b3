"""Records of every log format with values exchanged, leaf by leaf, and Parquet files with bytes exchanged.

python -m tests.chaos.mutated FOLDER 100000 1000      (records, Parquet files; a day to be scored)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

FIXTURES = Path(__file__).resolve().parent.parent / "scoring" / "fixtures"
DAY = "2026-11-20"
FILE_LINES = 2_000
_DEEP: Any = "x"
for _ in range(300):
    _DEEP = [_DEEP]
# What a leaf becomes: numbers at the ends of their types, texts that are nearly numbers, times or JSON.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**31, 2**63, -(2**63) - 1, 2**64, 10**400, 10**4000, 1e308, -0.0, float("nan"),
    float("inf"), "", " ", "-", "--5", "+5", "1_0", "0x1f", "9" * 19, "9" * 5000, "\u0663", "\ud800",
    "a\x00b", "\u202e", "\ufeff", "1e999", "NaN", "{}", "[]", "[[", '{"a": 1, "a": 2}', '{"n": -1}',
    '[{"text": 7}]', "2026-13-45T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59",
    "A" * 22 + "==", "x" * 600, "x" * 100_001, [], {}, [None], {"": None}, [[]], {"a": {"a": {}}}, _DEEP,
)  # fmt: skip
_IDS = frozenset((
    "request_id", "id", "responseId", "response_id", "requestId", "question_id", "custom_id", "spanId",
    "span_id", "traceId", "trace_id", "parentSpanId", "parent_id",
))  # fmt: skip


def seeds() -> list[list[Any]]:
    """The records of each fixture."""
    files = sorted(FIXTURES.glob("*.jsonl"))
    return [[json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] for file in files]


def mutated(number: int, seed: int) -> Iterator[bytes]:
    """``number`` lines, each a record of its own with one to three of its leaves exchanged."""
    draw, formats = Random(seed), seeds()
    for _ in range(number):
        record = _renamed(draw.choice(draw.choice(formats)), {}, draw)
        for _ in range(draw.randrange(1, 4)):
            record = _exchanged(record, draw)
        yield json.dumps(record).encode()


def _renamed(node: Any, names: dict[str, str], draw: Random) -> Any:
    """A copy whose ids are those of no other record."""
    if isinstance(node, list):
        return [_renamed(one, names, draw) for one in node]
    if not isinstance(node, dict):
        return node
    copy = {}
    for key, value in node.items():
        if key in _IDS and isinstance(value, str) and value:
            names.setdefault(value, f"{draw.getrandbits(64):016x}" * (2 if len(value) > 20 else 1))
            value = names[value]
        copy[key] = _renamed(value, names, draw)
    return copy


def _exchanged(node: Any, draw: Random) -> Any:
    """A copy in which one leaf is another value; JSON within a string is gone into now and then."""
    if isinstance(node, str) and node[:1] in ("{", "[") and draw.random() < 0.5:
        try:
            return json.dumps(_exchanged(json.loads(node), draw))
        except ValueError:
            return draw.choice(VALUES)
    if isinstance(node, dict) and node:
        key = draw.choice(list(node))
        return {**node, key: _exchanged(node[key], draw)}
    if isinstance(node, list) and node:
        place = draw.randrange(len(node))
        return [*node[:place], _exchanged(node[place], draw), *node[place + 1 :]]
    return draw.choice(VALUES)


def mutated_parquet(number: int, seed: int) -> Iterator[bytes]:
    """``number`` Parquet files of sound rows, with some bytes exchanged, put in, left out, or cut off."""
    draw = Random(seed)
    rows = [
        {"request_id": f"p-{i}", "timestamp": f"{DAY}T12:00:00Z", "model": "m",
         "samples": [{"text": f"a{i}"}, {"text": "b"}], "metadata": json.dumps({"route": "r"})}
        for i in range(40)
    ]  # fmt: skip
    wholes = []
    for compression in ("none", "snappy", "zstd"):
        for dictionary in (True, False):
            sink = pa.BufferOutputStream()
            table = pa.Table.from_pylist(rows)
            pq.write_table(table, sink, row_group_size=7, compression=compression, use_dictionary=dictionary)
            wholes.append(sink.getvalue().to_pybytes())
    for _ in range(number):
        yield _damaged(bytearray(draw.choice(wholes)), draw)


def _damaged(file: bytearray, draw: Random) -> bytes:
    for _ in range(draw.randrange(1, 6)):
        # Most of what a reader believes stands in the footer.
        near_end = len(file) - 1 - draw.randrange(min(len(file), 3_000))
        at = near_end if draw.random() < 0.7 else draw.randrange(len(file))
        match draw.randrange(5):
            case 0 | 1:
                file[at] = draw.randrange(256)
            case 2:
                file[at : at + 4] = draw.randbytes(4)
            case 3:
                file[at:at] = draw.randbytes(draw.randrange(1, 9))
            case _:
                del file[at : at + draw.randrange(1, 9)]
    return bytes(file[: draw.randrange(len(file))] if draw.random() < 0.1 else file)


def write_mutated(logs: Path, records: int, files: int, seed: int = 1) -> int:
    """A day of both; the number of lines."""
    folder = logs / f"dt={DAY}"
    folder.mkdir(parents=True)
    lines = list(mutated(records, seed))
    for start in range(0, records, FILE_LINES):
        text = b"".join(line + b"\n" for line in lines[start : start + FILE_LINES])
        (folder / f"lines-{start // FILE_LINES:04d}.jsonl").write_bytes(text)
    for number, file in enumerate(mutated_parquet(files, seed)):
        (folder / f"table-{number:04d}.parquet").write_bytes(file)
    return len(lines)


if __name__ == "__main__":
    print(write_mutated(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
