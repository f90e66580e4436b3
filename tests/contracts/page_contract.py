"""What every page must hold. Inherit it and give the fixture `source`, the text of a page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

LOADING = ("src", "href", "srcset", "data", "action", "poster", "xlink:href")
SHOWN = ("title", "aria-label", "content")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class Page(HTMLParser):
    """Every element with its attributes, and the visible text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._words: list[str] = []
        self._in_style = False
        self.feed(source)
        self.text = " ".join(" ".join(self._words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._in_style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if not self._in_style:
            self._words.append(data)


class PageContract:
    scopes = ("row", "col")

    @pytest.fixture
    def source(self) -> str:
        raise NotImplementedError

    def test_nothing_runs(self, source: str) -> None:
        elements = Page(source).elements
        running = {"script", "img", "iframe", "object", "embed", "form", "base"}
        assert not running & {tag for tag, _ in elements}
        assert not [name for _, attributes in elements for name in attributes if name.startswith("on")]

    def test_it_refers_to_nothing_outside_itself(self, source: str) -> None:
        styles = re.findall(r"<style.*?</style>", source, flags=re.S)
        for tag, attributes in Page(source).elements:
            for name in LOADING:
                value = attributes.get(name) or "#"
                assert value.startswith(("#", "data:")), f"<{tag} {name}={value}>"
            styles += [value or "" for name, value in attributes.items() if name not in SHOWN]
        assert not re.search(r"@import|url\((?!#)", " ".join(styles))

    def test_the_content_policy_comes_before_any_style_and_forbids_all_else(self, source: str) -> None:
        policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        assert source.index(policy) < source.index("<style>")

    def test_ids_are_unique_and_every_inner_link_has_its_target(self, source: str) -> None:
        elements = Page(source).elements
        ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
        assert len(ids) == len(set(ids))
        targets = {href[1:] for _, a in elements if (href := a.get("href") or "").startswith("#")}
        targets |= set(re.findall(r"url\(#([^)]+)\)", source))
        targets |= {label for _, a in elements if (label := a.get("aria-labelledby"))}
        assert targets <= set(ids)

    def test_every_figure_has_a_name_and_every_header_a_scope(self, source: str) -> None:
        for tag, attributes in Page(source).elements:
            if tag == "svg":
                assert attributes.get("aria-label") or attributes.get("aria-hidden") == "true"
            if tag == "th":
                assert attributes.get("scope") in self.scopes

    def test_figures_hold_no_fixed_colour_of_text_or_lines(self, source: str) -> None:
        """A fixed colour would vanish against one of the two backgrounds."""
        for drawing in re.findall(r"<svg .*?</svg>", source, flags=re.S):
            assert not re.search(r"#[0-9a-f]{6}\b", drawing)
