"""The page in a real browser: nothing reaches over the edge of a phone or a desktop window."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu.report.study.data import ReportData
from sgpu.report.study.page import render_study
from sgpu.report.study.study_tables import table_views
from tests.browser import chromium, needs_browser

MEASURE = "<script>document.title = document.scrollingElement.scrollWidth</script>"


def scroll_width(page: str, width: int, folder: Path) -> int:
    """The width that a frame ``width`` pixels wide needs; the copy may run one script, the page none."""
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    inner = html.escape(free.replace("</body>", MEASURE + "</body>"))
    report = "document.body.dataset.width = this.contentDocument.title"
    frame = f'<body><iframe style="width:{width}px;height:900px;border:0" onload="{report}" srcdoc="{inner}">'
    outer = folder / f"frame-{width}.html"
    outer.write_text(f"<!DOCTYPE html><meta charset=utf-8>{frame}</iframe>", "utf-8", "backslashreplace")
    dom = chromium(outer, "--dump-dom")
    found = re.search(r'data-width="(\d+)"', dom)
    assert found, dom[:500]
    return int(found[1])


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("full", [False, True])
def test_page_does_not_scroll_sideways(
    width: int, full: bool, tmp_path: Path, make_data: Callable[..., ReportData], full_data: ReportData
) -> None:
    data = full_data if full else make_data()
    assert scroll_width(render_study(data, tables=table_views(data)), width, tmp_path) <= width


@needs_browser
def test_measure_sees_a_page_that_is_too_wide(tmp_path: Path) -> None:
    wide = "<!DOCTYPE html><body style='margin:0'><div style='width:700px'>x</div></body>"
    assert scroll_width(wide, 390, tmp_path) == 700
