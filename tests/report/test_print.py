"""Printed, every page keeps its columns: what a screen lets one scroll to stands on the paper."""

from __future__ import annotations

import re
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pypdf import PdfReader

import sgpu
from sgpu.report.aggregate.page import build_aggregate_report
from sgpu.report.daily.page import daily_page
from sgpu.report.study.data import ReportData
from sgpu.report.study.page import render_study
from sgpu.report.study.study_tables import table_views
from sgpu.report.transfer.grids import TransferData
from sgpu.report.transfer.page import build_transfer_report
from tests.browser import chromium, needs_browser
from tests.report.daily.made_days import TODAY, past_days, profile, summary
from tests.report.transfer.test_build import data as data
from tests.watch.made_scores import sketch


class Columns(HTMLParser):
    """The headings of columns and sections, without what is folded away or for screen readers alone."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.titles: list[str] = []
        self._open: list[tuple[str, bool]] = []
        self._into: list[str] | None = None
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"meta", "link", "br", "img", "path", "rect", "circle", "line", "col", "input"}:
            return
        unseen = tag == "details" or "unseen" in (dict(attrs).get("class") or "")
        self._open.append((tag, unseen))
        tags = [name for name, _ in self._open]
        if not any(hidden for _, hidden in self._open):
            if tag == "th" and "thead" in tags:
                self.headings.append("")
                self._into = self.headings
            elif tag in {"h2", "h3"}:
                self.titles.append("")
                self._into = self.titles

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass
        if tag in {"th", "h2", "h3"}:
            self._into = None

    def handle_data(self, data: str) -> None:
        if self._into is not None and not any(hidden for _, hidden in self._open):
            self._into[-1] += data


def letters(text: str) -> str:
    """The text without what a printer may change: ligatures, spaces, ends of lines and hyphens."""
    return re.sub(r"[\s\u00ad\u2010-]+", "", unicodedata.normalize("NFKC", text))


@pytest.fixture(params=["report", "aggregate", "transfer", "daily"])
def page(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A page of each kind, as large as its tests make it."""
    if request.param == "report":
        whole: ReportData = request.getfixturevalue("full_data")
        path = tmp_path / "report.html"
        path.write_text(render_study(whole, tables=table_views(whole)), "utf-8", "backslashreplace")
        return path
    if request.param == "daily":
        trail = past_days(12, labelled=0.3, challenger_noise=0.7)
        today = sketch(1600, 1, shift=-1.5, labelled=0.3, challenger_noise=0.7, cut=0.6)
        path = tmp_path / "daily.html"
        path.write_text(daily_page(summary(TODAY, today, trail, profile()), trail))
        return path
    if request.param == "transfer":
        transfer: TransferData = request.getfixturevalue("data")
        return build_transfer_report(tmp_path, transfer)
    published = Path(sgpu.__file__).parent / "report" / "published"
    build_aggregate_report(published / "summary.csv", tmp_path, published / "transfer_text.csv")
    return next(tmp_path.rglob("index.html"))


def printed(page: Path) -> PdfReader:
    file = page.with_suffix(".pdf")
    chromium(page, f"--print-to-pdf={file}", "--no-pdf-header-footer")
    return PdfReader(file)


@needs_browser
def test_every_column_is_on_the_paper_and_no_heading_ends_a_page(page: Path) -> None:
    columns = Columns(page.read_text())
    assert len(columns.headings) > 8
    pages = [sheet.extract_text() for sheet in printed(page).pages]
    whole = letters("".join(pages))
    assert [name for name in columns.headings if letters(name) not in whole] == []
    ends = [letters(text.strip().splitlines()[-1]) for text in pages if text.strip()]
    assert [end for end in ends if end in {letters(title) for title in columns.titles}] == []
