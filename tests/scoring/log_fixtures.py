"""Log files as the tools write them, and the rows and items that they hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sgpu.logs.formats import adapters
from sgpu.logs.records import Item, LogRecord, Rejected

FOLDER = Path(__file__).parent / "fixtures"
FILES = {
    "sgpu": "sgpu",
    "single": "single",
    "openai": "openai",
    "openai_batch_input": "openai_batch",
    "openai_batch_output": "openai_batch",
    "otel": "otel",
    "mlflow": "mlflow",
    "openinference": "otel",
    "openllmetry_0_40": "otel",
    "openllmetry_events": "otel",
    "openai_v2_events": "otel",
    "wrapped": "wrapped",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "vllm": "vllm",
    "fit": "fit",
}
CITIES = ("Paris", "Paris.", "It is Paris.", "Lyon")
LATE_EVENING = 1_795_219_141_000_000  # 2026-11-20T23:59:01Z


def fixture_rows(name: str) -> list[dict[str, Any]]:
    """The rows of a fixture, parsed."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def items_of(format: str, *rows: dict[str, Any]) -> list[Item]:
    """What an adapter makes of rows."""
    return [item for row in rows for item in adapters()[format].items(row)]


def record_of(format: str, row: dict[str, Any]) -> LogRecord:
    """The one record of a row."""
    (found,) = items_of(format, row)
    assert isinstance(found, LogRecord), found
    return found


def rejected_of(format: str, row: dict[str, Any]) -> Rejected:
    """The one refusal of a row."""
    (found,) = items_of(format, row)
    assert isinstance(found, Rejected), found
    return found


def texts(record: Item) -> tuple[str, ...]:
    assert isinstance(record, LogRecord), record
    return tuple(sample.text for sample in record.samples)
