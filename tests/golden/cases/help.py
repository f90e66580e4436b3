"""`--help` of every command: the commands of a group are read from its own help."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

from tests.golden.case_run import CaseRun

TOLERANCE = 0.0
COMMANDS = re.compile(r"^╭─ Commands ─.*?^╰", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"^│ ([a-z][a-z-]*)", re.MULTILINE)


def produce(run: CaseRun) -> None:
    """One file a command, `sgpu-data-prepare.txt` for `sgpu data prepare`."""
    level: list[tuple[str, ...]] = [()]
    with ThreadPoolExecutor(2) as pool:
        while level:
            helps = pool.map(lambda words: run.sgpu(*words, "--help"), level)
            level = [
                deeper for words, text in zip(level, helps, strict=True) for deeper in _kept(run, words, text)
            ]


def _kept(run: CaseRun, words: tuple[str, ...], text: str) -> list[tuple[str, ...]]:
    lines = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    (run.out / ("-".join(("sgpu", *words)) + ".txt")).write_text(lines, "utf-8")
    listed = COMMANDS.search(text)
    return [(*words, name) for name in NAME.findall(listed.group())] if listed else []
