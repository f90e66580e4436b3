"""A night whose Parquet logs were made to end it is scored all the same, and tells the files by name."""

from __future__ import annotations

from pathlib import Path

from tests.scoring.hostile_parquet import bomb, deep, forged_counts
from tests.scoring.nights.nights import DAY, model_folder, night, quarantine, rows, scores, write


def test_files_that_end_their_reader_go_to_quarantine_and_the_night_goes_on(tmp_path: Path) -> None:
    model_folder(tmp_path / "model")
    folder = write(tmp_path / "logs", "a.jsonl", rows(range(10))).parent
    forged_counts(folder / "counts.parquet", 2**62)
    deep(folder / "deep.parquet", 20_000)
    bomb(folder / "dictionary.parquet", 256, 20, "text")
    result = night(tmp_path)
    assert result.exit_code == 3 and len(scores(tmp_path)) == 10
    found = quarantine(tmp_path).select("file", "line", "reason").rows()
    names = ["counts", "deep", "dictionary"]
    assert found == [(f"dt={DAY}/{name}.parquet", None, "file_unreadable") for name in names]
