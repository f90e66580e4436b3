"""Attacks on a judge by the answer that it judges, and harmless answers that look a little like them."""

from __future__ import annotations

import json
from pathlib import Path

from sgpu.judges.base import Item

HERE = Path(__file__).parent


def attacks() -> list[str]:
    """Answers, or parts of answers, that want to be judged right."""
    return [json.loads(line)["attack"] for line in (HERE / "attacks.jsonl").read_text().splitlines()]


def harmless() -> list[Item]:
    """Answers about tags, verdicts, orders and labels that speak to nobody."""
    rows = [json.loads(line) for line in (HERE / "harmless.jsonl").read_text().splitlines()]
    return [Item(row["question"], tuple(row["references"]), row["answer"]) for row in rows]
