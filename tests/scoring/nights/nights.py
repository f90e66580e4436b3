"""Days of logs, made of few words, and what the tables hold after they were scored."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable

from sgpu.fitted.model import FittedModel
from sgpu.fitted.spectrum_classifier import SpectrumClassifier
from sgpu.gp import GPClassifier
from sgpu.report.daily import update_daily_page
from sgpu.scoring.day import score_day
from sgpu.scoring.models.pinning import ScorerSource
from sgpu.scoring.outcome import DayResult
from sgpu.scoring.settings import ScoreSettings

DAY = date(2026, 11, 20)
SCORER = "tests.scoring.nights.counting_scorer:open_scorer"
Row = dict[str, Any]


def row(request_id: str, texts: Sequence[str], day: date = DAY, second: int = 0, **other: Any) -> Row:
    """One line of our own schema."""
    return {
        "schema_version": 1,
        "request_id": request_id,
        "timestamp": f"{day}T10:{second // 60:02d}:{second % 60:02d}Z",
        "model": "m",
        "route": "r",
        "samples": [{"index": i, "text": text, "finish_reason": "stop"} for i, text in enumerate(texts)],
        **other,
    }


def rows(numbers: Iterable[int], day: date = DAY) -> list[Row]:
    """Requests q<number>, of which the answers are told by the number."""
    return [row(f"q{i:05d}", [f"a{i}", f"a{i}", f"b{i}", f"c{i % 7}"], day) for i in numbers]


def write(logs: Path, name: str, lines: Sequence[Row | str], day: date = DAY) -> Path:
    """A file of the day; text is written as it is."""
    folder = logs / f"dt={day}"
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def model_folder(place: Path, seed: int = 0) -> Path:
    """A fitted model, another for each seed; its encoder is not opened where the counting scorer is used."""
    counts = [[4, 0, 0, 0], [3, 1, 0, 0], [2, 1, 1, 0], [1, 1, 1, 1]] * (10 + seed)
    labels = [one[0] > 2 for one in counts]
    gp = GPClassifier().fit(counts, labels)
    FittedModel(SpectrumClassifier(gp, "one-hot", "float32", 4, "f00d")).save(place)
    return place


def settings(place: Path, **other: Any) -> ScoreSettings:
    """With logs and table beneath ``place``, in this process, and small buckets."""
    told = {
        "logs": str(place / "logs"), "out": str(place / "out"), "model": str(place / "model"), "date": DAY,
        "workers": 0, "bucket_rows": 8, "tracking": "none", **other,
    }  # fmt: skip
    return ScoreSettings(**told)


def night(place: Path, day: date = DAY, *, lock: bool = True, **other: Any) -> DayResult:
    """Score one day."""
    source = ScorerSource(place / "out" / "work", SCORER)
    return score_day(settings(place, **other), day, source=source, on_summary=update_daily_page, lock=lock)


def scores(place: Path) -> pl.DataFrame:
    return pl.read_delta(str(place / "out" / "scores")).sort("date", "request_id")


def quarantine(place: Path) -> pl.DataFrame:
    return pl.read_delta(str(place / "out" / "quarantine")).sort("file", "line")


def reasons(place: Path) -> Counter[str]:
    return Counter(quarantine(place)["reason"].to_list())


def versions(place: Path) -> int:
    """The number of commits to the score table."""
    return int(DeltaTable(str(place / "out" / "scores")).version())


def files(place: Path, table: str = "scores") -> dict[str, bytes]:
    """The published files by their paths."""
    root = place / "out" / table
    found = DeltaTable(str(root)).file_uris()
    return {str(Path(file).relative_to(root)): Path(file).read_bytes() for file in found}


def labelled(place: Path, day: date = DAY) -> dict[str, int]:
    """What the day's verdict was made with: labelled requests, and those that were right."""
    groups = summary(place, day)["sketch"]["groups"]
    return {name: sum(one["counts"].get(name, 0) for one in groups) for name in ("labelled", "right")}


def labels(place: Path, *lines: Row, name: str = "labels.jsonl") -> str:
    """A file of labels; its address."""
    (place / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return str(place / name)


def label(number: int, value: int, **other: Any) -> Row:
    return {"request_id": f"q{number:05d}", "label": value, **other}


def summary(place: Path, day: date = DAY) -> Any:
    return json.loads((place / "out" / "days" / str(day) / "summary.json").read_bytes())


def everywhere_once(place: Path) -> None:
    """No request stands twice in the table."""
    ids = scores(place)["request_id"]
    assert ids.n_unique() == len(ids)


def arrow(place: Path, table: str = "scores") -> pa.Table:
    return DeltaTable(str(place / "out" / table)).to_pyarrow_table()
