"""Figures of the tree are counted from the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.count import count_code_lines, count_tree, main, starts_with_verb

MODULE = '''"""A module."""

# A comment.
def read_rows(path: str) -> str:
    """Return the rows.

    In order.
    """
    return """
two lines
"""


@dataclass
class Table:
    @property
    def rows(self) -> int:
        return 1
'''


def test_docstrings_comments_and_blank_lines_are_no_code() -> None:
    assert count_code_lines(MODULE) == 9


@pytest.mark.parametrize(
    ("words", "verb"),
    [("read_rows", True), ("rows", False), ("Return the rows.", True), ("The rows.", False), ("", False)],
)
def test_a_verb_is_told_from_a_noun(words: str, verb: bool) -> None:
    assert starts_with_verb(words) is verb


def test_the_figures_of_a_small_tree(tmp_path: Path) -> None:
    for module in ("sgpu/a.py", "sgpu/b.py", "tests/test_a.py"):
        (tmp_path / module).parent.mkdir(exist_ok=True)
        (tmp_path / module).write_text(MODULE)
    figures = dict(count_tree(tmp_path))
    assert figures["code lines of the product"] == 18
    assert figures["physical lines of tests"] == 18
    assert figures["definitions per 1,000 code lines"] == 333
    assert figures["data classes"] == 2
    assert figures["public function names in two modules"] == 1
    assert figures["functions named by a verb"] == figures["docstrings that begin with a verb"] == "100.0%"


def test_the_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    assert "code lines of the product" in capsys.readouterr().out
