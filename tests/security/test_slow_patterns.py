"""No text makes a regular expression of the packages slow: each takes time in proportion to the text."""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from sgpu.judges.alias import first_sentence
from sgpu.storage.json_lines import MAX_TEXT
from tests.security.forbidden_code import ROOT, files

HALF, WHOLE = MAX_TEXT // 2, MAX_TEXT
SHORT = MAX_TEXT // 16
# Of seconds of CPU: below it a ratio says nothing. A linear expression takes some 0.002 for WHOLE characters,
# a quadratic one more than this for SHORT ones.
NOTICEABLE = 0.1
# Twice the text may take twice the time; a quadratic expression takes four times as long.
MOST_GROWTH = 3.0

BEFORE = ("", "abc.", "answer is ", "\\boxed{")
REPEATED = (
    " ", "a", "1", "_", "-", ".", "!", ",", "/", "\n", "<", "[", "{", "$", "\\", "*", "é", "1,", "a.", "a ",
)  # fmt: skip
WHOLE_ONLY = {"match", "fullmatch"}
CALLS = {f"re.{name}" for name in ("compile", "match", "fullmatch", "search", "sub", "split", "findall")}


def modules() -> list[str]:
    """Those that use expressions."""
    names = []
    for path in files(ROOT):
        if re.search(r"^\s*import re$", path.read_text(encoding="utf-8"), re.MULTILINE):
            parts = path.relative_to(ROOT).with_suffix("").parts
            names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def expressions(module: str) -> dict[re.Pattern[Any], bool]:
    """Those that the module holds, in whatever container, and those that are written out in its calls.

    With each whether it is searched for; an expression with a name may be matched against whole texts alone.
    """
    path = ROOT / f"{module.replace('.', '/')}.py"
    path = path if path.is_file() else path.with_suffix("") / "__init__.py"
    source = path.read_text(encoding="utf-8")
    found: dict[re.Pattern[Any], bool] = {}
    for name, value in vars(importlib.import_module(module)).items():
        uses = set(re.findall(rf"\b{name}\.(\w+)", source)) if isinstance(value, re.Pattern) else set()
        found |= dict.fromkeys(_held([value]), not uses or not uses <= WHOLE_ONLY)
    for node in ast.walk(ast.parse(source)):
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        written = node.args[0] if isinstance(node, ast.Call) and node.args else None
        if called in CALLS and isinstance(written, ast.Constant) and isinstance(written.value, str | bytes):
            found.setdefault(
                re.compile(written.value), called not in ("re.compile", "re.match", "re.fullmatch")
            )
    return found


def _held(values: Any) -> Iterator[re.Pattern[Any]]:
    for value in values:
        if isinstance(value, re.Pattern):
            yield value
        elif isinstance(value, list | tuple | set | frozenset):
            yield from _held(value)
        elif isinstance(value, dict):
            yield from _held(value.values())


def _seconds(pattern: re.Pattern[Any], text: str, searched: bool) -> float:
    """Of CPU, for all matches in the text and for one of the whole."""
    subject: Any = text if isinstance(pattern.pattern, str) else text.encode()
    start = time.thread_time()
    if searched:
        for _ in pattern.finditer(subject):
            pass
    pattern.fullmatch(subject)
    return time.thread_time() - start


def slow_text(pattern: re.Pattern[Any], searched: bool = True) -> str | None:
    """What of a text makes the expression slow; None where nothing does."""
    for before, repeated in product(BEFORE, REPEATED):

        def taken(size: int, before: str = before, repeated: str = repeated) -> float:
            return _seconds(pattern, f"{before}{repeated * (size // len(repeated))}\x00", searched)

        # A second time where it seems slow: the collector of garbage takes time, too.
        slow = taken(SHORT) > NOTICEABLE and taken(SHORT) > NOTICEABLE
        # A quarter first: what is slow there would take a minute for the whole.
        for size in (WHOLE // 4, WHOLE):
            if not slow and (seconds := taken(size)) > NOTICEABLE:
                slow = min(seconds, taken(size)) > MOST_GROWTH * taken(size // 2)
        if slow:
            return f"{before!r} and {repeated!r} again and again"
    return None


@pytest.mark.timeout(300)
@pytest.mark.parametrize("module", modules())
def test_no_text_makes_an_expression_slow(module: str) -> None:
    found = expressions(module).items()
    slow = {pattern.pattern: text for pattern, searched in found if (text := slow_text(pattern, searched))}
    assert slow == {}


def test_the_expressions_of_the_packages_are_found() -> None:
    found = {
        pattern.pattern
        for name in ("sgpu.judges.alias", "sgpu.final_answer")
        for pattern in expressions(name)
    }
    assert r"[A-Z]{2,4}" in found  # held by a name
    assert r"\w+" in found  # written out in a call
    assert r"\\!" in found  # held by a tuple of tuples


@pytest.mark.parametrize("pattern", [r"\s+$", r"(?<=\w{3}[.!?])\s+(?=\W*[A-Z])", r"\w+@"])
def test_a_slow_expression_would_be_found(pattern: str) -> None:
    assert slow_text(re.compile(pattern)) is not None


def test_the_first_sentence_of_a_long_answer_takes_time_in_proportion() -> None:
    def seconds(size: int) -> float:
        start = time.thread_time()
        first_sentence("abc." + " " * size + "a")
        return time.thread_time() - start

    assert seconds(SHORT) < NOTICEABLE or seconds(SHORT) < NOTICEABLE
    whole = seconds(WHOLE)
    assert whole < NOTICEABLE or whole < MOST_GROWTH * seconds(HALF)
