"""`python -m tests.golden [--write] [CASE ...]` runs the cases and compares their results with stored ones.

A case is one file in `cases/`: a `TOLERANCE` for floats, and `produce(run)`, which calls `sgpu` and writes
to `run.out` what is compared with `data/CASE/expected/`. What it starts from is in `data/CASE/given/`. Cases
use the command line and the files that it writes, and no module of `sgpu`: those may be moved and renamed.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.golden import cases
from tests.golden.case_run import DATA, CaseRun, NotAsExpected
from tests.golden.compare import Difference, differences

SHOWN = 20  # differences of one file


def main() -> int:
    names = [module.name for module in pkgutil.iter_modules(cases.__path__)]
    parser = argparse.ArgumentParser(
        prog="python -m tests.golden", description="Compare with the golden data."
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"Default: all. {', '.join(names)}")
    parser.add_argument("--write", action="store_true", help="Store what came out, where it differs.")
    asked = parser.parse_args()
    if unknown := sorted(set(asked.cases) - set(names)):
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(names)}")
    different, failed = [], []
    for name in asked.cases or names:
        try:
            if not _same(name, asked.write):
                different.append(name)
        except NotAsExpected as why:
            print(f"{name}: {why}", flush=True)
            failed.append(name)
    if different:
        print(f"golden: {', '.join(different)}: {'written' if asked.write else 'not as expected'}")
    if failed:
        print(f"golden: {', '.join(failed)}: failed, not compared")
    return 1 if failed or (different and not asked.write) else 0


def _same(name: str, write: bool) -> bool:
    case = importlib.import_module(f"{cases.__name__}.{name}")
    expected, began = DATA / name / "expected", time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"golden-{name}-") as folder:
        run = CaseRun(DATA / name / "given", Path(folder, "work"), Path(folder, "out"))
        run.work.mkdir()
        run.out.mkdir()
        case.produce(run)
        different = differences(expected, run.out, case.TOLERANCE)
        files = sum(1 for file in run.out.rglob("*") if file.is_file())
        result = f"{len(different)} differences" if different else "no difference"
        print(f"{name}: {files} files, {result}, {time.monotonic() - began:.0f} s", flush=True)
        _show(different)
        if write:
            _store({one.file for one in different}, run.out, expected)
    return not different


def _show(different: list[Difference]) -> None:
    for file in dict.fromkeys(difference.file for difference in different):
        of_file = [difference for difference in different if difference.file == file]
        for difference in of_file[:SHOWN]:
            print(f"  {difference}")
        if len(of_file) > SHOWN:
            print(f"  {file}: {len(of_file) - SHOWN} more")


def _store(files: set[str], out: Path, expected: Path) -> None:
    """Only files that differ: what lies within the tolerance stays as it was first written."""
    for file in files:
        if (out / file).is_file():
            (expected / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(out / file, expected / file)
        else:
            (expected / file).unlink()


if __name__ == "__main__":
    sys.exit(main())
