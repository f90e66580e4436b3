"""The fuzzer's target: real lines pass it, and a reader that breaks a rule does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sgpu.logs.formats import FormatReader
from sgpu.logs.records import Item, Reason, Rejected
from tests.chaos.fuzz_logs import LogTarget, write_seeds, write_words
from tests.scoring.log_folders import json_lines, row


def test_every_seed_passes_and_is_kept(tmp_path: Path) -> None:
    write_seeds(tmp_path)
    seeds = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    with (tmp_path / "kept").open("wb") as keep:
        target = LogTarget(tmp_path, keep)
        for seed in [b"", *seeds]:
            target(seed)
    assert len(seeds) > 30
    assert (tmp_path / "kept").read_bytes() == b"\n" + b"".join(seed[1:] + b"\n" for seed in seeds)


def test_the_words_are_those_of_the_formats(tmp_path: Path) -> None:
    write_words(tmp_path / "words")
    assert {'"resourceSpans"', '"custom_id"', '"samples"'} < set((tmp_path / "words").read_text().split())


@pytest.mark.parametrize(
    "broken", [[], [Rejected(Reason.BAD_VALUE, "unexpected KeyError")], [Rejected(Reason.BAD_VALUE, "é")]]
)
def test_a_reader_that_loses_a_line_or_shows_its_text_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: list[Item]
) -> None:
    def items(self: Any, record: dict[str, Any]) -> Iterator[Item]:
        yield from broken

    target, data = LogTarget(tmp_path), b"\x00" + json_lines([row(1)])
    target(data)
    monkeypatch.setattr(FormatReader, "items", items)
    with pytest.raises(AssertionError):
        target(data)
