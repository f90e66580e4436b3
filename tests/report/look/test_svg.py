from __future__ import annotations

import base64
import re

import pytest
from matplotlib.figure import Figure

from sgpu.report.look import svg


def drawing() -> Figure:
    figure = Figure(figsize=(2, 2))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=svg.PALETTE["accent"])
    axes.bar([0.5], [0.5], hatch="//", edgecolor=svg.PALETTE["unsafe"])
    return figure


def test_colours_of_the_palette_become_variables() -> None:
    markup = svg.inline(drawing(), "a", "A line")
    assert "stroke: var(--accent)" in markup
    assert svg.PALETTE["accent"] not in markup


def test_palette_colours_differ() -> None:
    assert len(set(svg.PALETTE.values())) == len(svg.PALETTE)


def test_title_is_escaped() -> None:
    markup = svg.inline(drawing(), "a", "<script>&")
    assert "<script>" not in markup
    assert "<title>&lt;script&gt;&amp;</title>" in markup


def test_every_id_that_is_used_is_defined_and_carries_the_name_of_the_figure() -> None:
    markup = svg.inline(drawing(), "cell-1", "A line")
    ids = set(re.findall(r' id="([^"]+)"', markup))
    used = set(re.findall(r"url\(#([^)]+)\)", markup)) | set(re.findall(r'href="#([^"]+)"', markup))
    assert used == ids
    assert all(identity.startswith("cell-1-") for identity in ids)


def test_drawing_twice_gives_the_same_markup() -> None:
    assert svg.inline(drawing(), "a", "A line") == svg.inline(drawing(), "a", "A line")


def test_figure_above_the_limit_is_an_embedded_png(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svg, "MAX_SVG_BYTES", 100)
    markup = svg.inline(drawing(), "a", 'A "line"')
    data = re.fullmatch(r'<img class="plot" alt="A &#34;line&#34;" src="data:image/png;base64,(.+)">', markup)
    assert data
    assert base64.b64decode(data[1]).startswith(b"\x89PNG")
