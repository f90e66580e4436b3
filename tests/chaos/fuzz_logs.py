"""Fuzzes the log readers with atheris (libFuzzer): no bytes may raise, and no line may vanish.

    pip install --target /somewhere atheris        (Linux; not one of our dependencies)
    PYTHONPATH=.:/somewhere python tests/chaos/fuzz_logs.py --keep lines.jsonl -runs=100000 -seed=1

It starts from the lines of the fixtures, and mutates whole files. What a run tried (`--keep`) can then be
given to `sgpu score`: 30,000 runs give about 130,000 lines. All other options are libFuzzer's. An input that
breaks a rule stops the run and is written to the folder of `-artifact_prefix`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import BinaryIO

FIXTURES = Path(__file__).resolve().parent.parent / "scoring" / "fixtures"
DAY = date(2026, 11, 20)
# How the first byte of an input is read: as which file, and in splits of how many bytes.
ENDINGS = (".jsonl", ".jsonl", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
SPLIT_BYTES = (2**30, 64, 1_000, 7)


class LogTarget:
    """One input to libFuzzer: a file of logs, its first byte saying of which kind.

    ``folder`` holds the file; ``keep`` takes the inputs.
    """

    def __init__(self, folder: Path, keep: BinaryIO | None = None) -> None:
        self._folder = folder
        self._keep = keep

    def __call__(self, data: bytes) -> None:
        """Raises AssertionError where a rule is broken, and whatever the reader should not have raised."""
        kind, text = (data[0], data[1:]) if data else (0, b"")
        if self._keep:
            self._keep.write(text + b"\n")
            self._keep.flush()  # libFuzzer ends the process without a word to Python
        ending = ENDINGS[kind % len(ENDINGS)]
        path = self._folder / f"fuzz{ending}"
        path.write_bytes(text)
        lines = self._check(path, SPLIT_BYTES[kind // 8 % len(SPLIT_BYTES)])
        if ending == ".jsonl":
            expected = text.count(b"\n") + (not text.endswith(b"\n")) if text else 0
            assert lines == set(range(1, expected + 1)), "a line without an item, or an item without a line"

    def _check(self, path: Path, split_bytes: int) -> set[int]:
        """The lines that have an item."""
        from sgpu.logs.reading import SplitEnd, read_split
        from sgpu.logs.records import Rejected
        from sgpu.logs.snapshot import splits_of, take_snapshot
        from sgpu.storage.location import Location

        logs = Location.of(path)
        snapshot = take_snapshot(logs, DAY)
        found: set[int] = set()
        before = 0
        for split in splits_of(snapshot, split_bytes):
            *items, end = read_split(logs, snapshot, split)
            assert isinstance(end, SplitEnd)
            for pair in items:
                assert not isinstance(pair, SplitEnd)
                line, item = pair
                found |= set() if line is None else {before + line}
                if isinstance(item, Rejected):
                    assert "unexpected" not in item.detail, item.detail
                    assert item.detail.isascii() and len(item.detail) < 300, (
                        "a detail of a length to hold a text"
                    )
            before += end.lines
        return found


def write_seeds(folder: Path) -> None:
    """Each line of the fixtures as an input."""
    for path in sorted(FIXTURES.glob("*.jsonl")):
        for number, line in enumerate(path.read_bytes().splitlines(keepends=True)):
            (folder / f"{path.stem}-{number}").write_bytes(b"\x00" + line)


def write_words(path: Path) -> None:
    """The keys of the fixtures, as a dictionary for libFuzzer."""
    texts = [one.read_text(encoding="utf-8") for one in sorted(FIXTURES.glob("*.jsonl"))]
    words = {word for text in texts for word in re.findall(r'"([A-Za-z_.]+)"', text)}
    path.write_text("".join(f'"{word}"\n' for word in sorted(words)))


def fuzz(folder: Path, keep: Path | None, options: Sequence[str]) -> None:
    """Run libFuzzer until one of its limits is reached; it ends the process."""
    import atheris

    with atheris.instrument_imports(include=["sgpu.scoring"]):
        import sgpu.logs.reading  # noqa: F401
    (folder / "seeds").mkdir()
    write_seeds(folder / "seeds")
    write_words(folder / "words")
    given = [f"-dict={folder / 'words'}", "-max_len=6000", *options]
    atheris.Setup([sys.argv[0], *given, str(folder / "seeds")], LogTarget(folder, keep and keep.open("wb")))
    atheris.Fuzz()


def main() -> int:
    """Fuzz in a child process, so that its folder is removed however it ends; its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path, help="write every input to this file")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    own, options = parser.parse_known_args()
    if own.folder:
        fuzz(own.folder, own.keep, options)
    with tempfile.TemporaryDirectory(prefix="fuzz-logs-") as folder:
        return subprocess.call([sys.executable, __file__, "--folder", folder, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
