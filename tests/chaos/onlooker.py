"""A reader of the newest table beneath a folder, in a process of its own, while runs are killed.

`python -m tests.chaos.onlooker FOLDER REPORT [ROWS ...]` looks until its standard input ends, and writes to
REPORT how often it looked and what it should not have seen: a request twice, fewer rows than before, or a
number of rows that is none of ROWS (if any are given).
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAUSE_S = 0.1


@contextmanager
def looked_at(folder: Path, rows: Sequence[int] = ()) -> Iterator[dict[str, Any]]:
    """Have the tables beneath ``folder`` read meanwhile; the dict is filled with the report at the end."""
    report: dict[str, Any] = {}
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "onlooker.json"
    command = [sys.executable, "-m", "tests.chaos.onlooker", str(folder), str(file), *map(str, rows)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        yield report
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=60)
        finally:
            process.kill()
    report.update(json.loads(file.read_text()))


class Onlooker:
    """``seen``: number of rows -> how often so many were seen."""

    def __init__(self, folder: Path, rows: Collection[int]) -> None:
        self._folder = folder
        self._rows = {0, *rows} if rows else None
        self._before: tuple[Path, int] = (folder, 0)
        self.seen: Counter[int] = Counter()
        self.problems: list[str] = []

    def look(self) -> None:
        try:
            logs = self._folder.glob("**/scores/_delta_log")
            tables = sorted(logs, key=lambda path: path.stat().st_mtime_ns)
        except FileNotFoundError:  # a folder of work was removed on the way
            return
        if not tables:
            return
        table = tables[-1].parent
        ids = self._ids(table)
        if ids is None:
            return
        self.seen[len(ids)] += 1
        if len(set(ids)) != len(ids):
            self.problems.append(f"{table}: {len(ids)} rows of {len(set(ids))} requests")
        if self._rows is not None and len(ids) not in self._rows:
            self.problems.append(f"{table}: {len(ids)} rows, a part of a day")
        last, before = self._before
        if last == table and len(ids) < before:
            self.problems.append(f"{table}: {len(ids)} rows where {before} were")
        self._before = (table, len(ids))

    def _ids(self, table: Path) -> list[str] | None:
        """None while there is no table yet."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            delta = DeltaTable(str(table))
        except TableNotFoundError:
            return None
        try:
            return delta.to_pyarrow_table(columns=["request_id"])["request_id"].to_pylist()
        except Exception as error:  # a reader must never meet a version that it cannot read
            self.problems.append(f"{table}: {type(error).__name__}: {str(error)[:200]}")
            return None


def main(folder: str, report: str, *rows: str) -> None:
    onlooker = Onlooker(Path(folder), [int(one) for one in rows])
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    while not over.is_set():
        try:
            onlooker.look()
        except Exception as error:  # the look itself failed; it goes on, and the test fails with the reason
            onlooker.problems.append(f"{folder}: {type(error).__name__}: {str(error)[:300]}")
        time.sleep(PAUSE_S)
    seen = {str(n): times for n, times in sorted(onlooker.seen.items())}
    looks = onlooker.seen.total()
    content = {"looks": looks, "seen": seen, "problems": onlooker.problems}
    Path(report).write_text(json.dumps(content))


if __name__ == "__main__":
    main(*sys.argv[1:])
