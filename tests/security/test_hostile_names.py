"""Names of models, routes and requests come from logs: on the page they are text, in a browser too."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu.report.daily.page import write_daily_page
from sgpu.storage.location import Location
from tests.browser import chromium, needs_browser
from tests.contracts.page_contract import Page, PageContract
from tests.scoring.nights.nights import DAY, model_folder, night, row, write

CALL = "fetch('{beacon}/ran')"
ATTACKS = (
    "<script>{call}</script>",
    "</title></style></script><script>{call}</script>",
    "<img src={beacon}/loaded onerror={call}>",
    '"><svg onload="{call}">',
    "' onmouseover='{call}' autofocus onfocus='{call}' x='",
    "{{{{ 7 * 7 }}}}{{% for x in y %}}",
    "<style>@import '{beacon}/loaded'</style><link rel=stylesheet href={beacon}/loaded>",
    "<meta http-equiv=refresh content='0;url={beacon}/loaded'>",
    "javascript:{call}",
    "<iframe srcdoc='<script>{call}</script>'>",
    "\x1b[31mred\x07 \u202etxt.exe",
    "=cmd|' /C calc'!A0",
)


@pytest.fixture(scope="module")
def beacon() -> Iterator[tuple[str, list[str]]]:
    """A server that notes whatever asks it for something."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return None

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def attacks(url: str) -> list[str]:
    return [attack.format(call=CALL.format(beacon=url), beacon=url) for attack in ATTACKS]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, beacon: tuple[str, list[str]]) -> Path:
    """A night over logs in which every name and every text is an attack."""
    place = tmp_path_factory.mktemp("night")
    model_folder(place / "model")
    lines = [
        row(f"{number}{attack}", [attack] * 4, model=attack, route=attack)
        for number, attack in enumerate(attacks(beacon[0]) * 4)
    ]
    write(place / "logs", "hostile.jsonl", lines)
    night(place, late_days=0)
    return place


@pytest.fixture(scope="module")
def page(place: Path) -> Path:
    return write_daily_page(Location.of(place / "out"), DAY).local


class TestPage(PageContract):
    @pytest.fixture
    def source(self, page: Path) -> str:
        return page.read_text()

    def test_no_meta_element_came_from_a_name(self, source: str) -> None:
        allowed = {"http-equiv", "name", "charset", "content"}
        assert all(set(a) <= allowed for tag, a in Page(source).elements if tag == "meta")


def visits(source: str, folder: Path) -> str:
    """What Chromium makes of a page, after everything in it that can run has run."""
    file = folder / "page.html"
    file.write_text(source, encoding="utf-8")
    return chromium(file, "--dump-dom")


def test_the_attacks_stand_on_the_page_as_text(page: Path) -> None:
    source = page.read_text()
    assert "&lt;script&gt;" in source
    assert "{{ 7 * 7 }}" in source


@needs_browser
def test_nothing_runs_or_loads_in_a_browser_even_without_the_policy(
    page: Path, beacon: tuple[str, list[str]], tmp_path: Path
) -> None:
    _, asked = beacon
    bare = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    before = len(asked)
    assert "&lt;script&gt;" in visits(bare, tmp_path)
    assert asked[before:] == []


@needs_browser
def test_the_attacks_do_run_where_they_are_not_escaped(beacon: tuple[str, list[str]], tmp_path: Path) -> None:
    url, asked = beacon
    before = len(asked)
    visits(f"<!DOCTYPE html><body>{''.join(attacks(url)[:4])}</body>", tmp_path)
    assert {"/ran", "/loaded"} <= set(asked[before:])


def test_control_characters_stand_in_no_line_of_the_metrics(place: Path) -> None:
    text = (place / "out" / "days" / str(DAY) / "metrics.prom").read_text()
    assert all(
        re.match(r'(#|[a-z_]+(\{([a-z_]+="([^"\\]|\\.)*",?)*\})? \S+$)', line) for line in text.splitlines()
    )
