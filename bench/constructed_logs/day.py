"""Writes one day of logs, a request after the other."""

from __future__ import annotations

from collections import Counter, deque
from contextlib import ExitStack, closing
from datetime import date
from pathlib import Path
from random import Random

from bench.constructed_logs.faults import NOT_IN_PARQUET, Fate, Planted, choices, faults_of
from bench.constructed_logs.files import BatchFiles, LineFile, ParquetFile, Sink
from bench.constructed_logs.rendering import Row, rows_of
from bench.constructed_logs.settings import FORMAT_WEIGHTS, Format, LogSettings
from bench.constructed_logs.traffic import Traffic, conflicting, with_own_question
from bench.constructed_logs.truth import PlantedFile, Truth

# The files of each format. A row goes to one of them by the number of its request.
FILES: dict[str, tuple[str, ...]] = {
    "sgpu": ("sgpu-0.jsonl", "sgpu-1.jsonl", "sgpu-2.jsonl.gz", "sgpu-3.jsonl.zst", "sgpu-4.parquet"),
    "openai": ("chat-0.jsonl", "chat-1.jsonl.gz"),
    "otel": ("spans-0.jsonl", "spans-1.jsonl.zst"),
    "mlflow": ("traces-0.jsonl",),
    "single": ("single-0.jsonl", "single-1.jsonl.gz"),
}
ONE_ROW: tuple[Format, ...] = ("sgpu", "openai", "mlflow")
REMEMBERED = 50  # good requests of a format from which second deliveries are taken


def write_day(settings: LogSettings, day: date, logs: Path, planted: PlantedFile) -> Truth:
    """Write ``logs``/dt=DAY and return what is in it."""
    folder = logs / f"dt={day}"
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        writing = _Day(settings, day, folder, planted, stack)
        writing.write()
    written = sorted(folder.iterdir())
    writing.truth.files, writing.truth.bytes = len(written), sum(file.stat().st_size for file in written)
    return writing.truth


class _Day:
    def __init__(
        self, settings: LogSettings, day: date, folder: Path, planted: PlantedFile, stack: ExitStack
    ) -> None:
        self._settings, self._day, self._folder = settings, day, folder
        self._planted, self._stack = planted, stack
        self._traffic = Traffic(settings, day)
        self._sinks: dict[str, Sink] = {}
        self._faults: Counter[str] = Counter()
        self._recent: dict[str, deque[tuple[int, bool]]] = {}
        self.truth = Truth()

    def write(self) -> None:
        """Requests until the day has its rows; the last ones have one row each, so that the number is met."""
        number = 0
        while self.truth.rows < self._settings.rows:
            draw = Random(f"{self._settings.seed}\x1f{self._day}\x1ffate\x1f{number}")
            names = self._settings.formats
            name = draw.choices(names, [FORMAT_WEIGHTS[one] for one in names])[0]
            room = self._settings.rows - self.truth.rows
            if room < 3 * self._settings.answers:
                one_row = [one for one in ONE_ROW if one in names]
                if not one_row:
                    return
                self._request(number, one_row[0], None, partial=False)
            else:
                self._drawn(number, name, draw)
            number += 1

    def _drawn(self, number: int, name: Format, draw: Random) -> None:
        settings, recent = self._settings, self._recent.setdefault(name, deque(maxlen=REMEMBERED))
        chance, partial = draw.random(), draw.random() < settings.partial
        if chance < settings.bad:
            known = faults_of(name)
            fault = known[self._faults[name] % len(known)]
            self._faults[name] += 1
            self._request(number, name, fault, partial=False)
        elif chance < settings.bad + settings.one_answer:
            self._request(number, name, "one_answer", partial=False)
        elif recent and draw.random() < settings.duplicates:
            again, was_partial = draw.choice(recent)
            self._request(again, name, None, partial=was_partial, fate="duplicate")
        else:
            recent.append((number, partial))
            self._request(number, name, None, partial=partial)

    def _request(
        self, number: int, name: Format, fault: str | None, *, partial: bool, fate: Fate | None = None
    ) -> None:
        request = self._traffic.request(number)
        if name == "single" or fault == "one_answer":
            request = with_own_question(request)
        partial = partial and len(request.answers) >= 4 and name != "single"
        rows = rows_of(name, request, choices(request, fault, partial), fault, fate)
        if fault == "conflict":
            other = conflicting(request)
            rows += rows_of(name, other, choices(other, fault, partial), fault)
        if fault or fate == "duplicate":
            self.truth.faults[fault or "duplicate"] += 1
        for place, row in enumerate(rows):
            # Second deliveries come in another file than the first.
            self._put(
                name, row, number + (place if fault == "conflict" else 0) + (fate == "duplicate"), fault
            )
        self._count(name, rows, partial, request.label)

    def _put(self, name: Format, row: Row, number: int, fault: str | None) -> None:
        if name == "openai_batch":
            if "batch" not in self._sinks:
                order = Random(f"{self._settings.seed}\x1f{self._day}\x1fbatches")
                self._open("batch", BatchFiles(self._folder, self._note, order))
            self._sinks["batch"].add(row)
            return
        files = FILES[name]
        file = files[number % len(files)]
        if file.endswith(".parquet") and fault in NOT_IN_PARQUET:
            file = files[0]
        if file not in self._sinks:
            kind = ParquetFile if file.endswith(".parquet") else LineFile
            self._open(file, kind(self._folder / file, self._note))
        self._sinks[file].add(row)

    def _open(self, name: str, sink: Sink) -> None:
        self._sinks[name] = sink
        self._stack.enter_context(closing(sink))

    def _note(self, path: Path, line: int, planted: tuple[Planted, ...]) -> None:
        self._planted.write(f"{self._folder.name}/{path.name}", line, planted)

    def _count(self, name: Format, rows: list[Row], partial: bool, label: int | None) -> None:
        for row in rows:
            self.truth.lines[name] += 1
            for one in row.planted:
                self.truth.row(one)
        scored = [one for row in rows for one in row.planted if one.fate == "scored"]
        if scored:
            status = "grouped" if name == "single" else "partial" if partial else "ok"
            # Neither a response nor a single answer says whether it was right.
            told = label if name in ("sgpu", "mlflow") else None
            self.truth.request(scored[0].request_id, status, told)
