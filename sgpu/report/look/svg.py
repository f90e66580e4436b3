"""The look of all figures, and their markup inside a page: small, themed, reproducible."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

MAX_SVG_BYTES = 300_000
_SVG = "http://www.w3.org/2000/svg"
_XLINK_HREF = "{http://www.w3.org/1999/xlink}href"
_FONT_FAMILY = re.compile(r"font-family:[^;\"]*;?\s*")
# Text stays text (the page's font, selectable), and ids depend on the drawing alone.
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "sgpu-report", "hatch.linewidth": 1.2}
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}

# Figures are drawn in these colours; in the page each becomes a CSS variable, so that they follow the
# colour scheme of the reader. Every value must differ from the others.
PALETTE = {
    "ink": "#1c2127",
    "muted": "#5b6570",
    "rule": "#d5dae0",
    "surface": "#fffffe",
    "accent": "#1f5fbf",
    "unsafe": "#b3470e",
    "series-1": "#0b7a75",
    "series-2": "#a3326f",
    "series-3": "#8a6100",
    "series-4": "#6a4bc4",
    "series-5": "#3f7d20",
    "series-6": "#b03a2e",
    "series-7": "#456882",
}

SERIES = [name for name in PALETTE if name.startswith("series-")]
WIDTH = 3.75  # inches: 270 points, so that 9-point text is readable on a phone


def blank(height: float = 3.1, width: float = WIDTH, **margins: float) -> Figure:
    """Without plots yet, in inches; by default of the size and margins of all that stand side by side."""
    figure = Figure(figsize=(width, height))
    figure.subplots_adjust(**{"left": 0.155, "right": 0.97, "top": 0.97, "bottom": 0.155, **margins})
    return figure


def canvas(
    x_label: str = "", y_label: str = "", *, grid: Literal["x", "y"] = "y", **size: float
) -> tuple[Figure, Axes]:
    """A figure, `blank` of this size, with one plot."""
    figure = blank(**size)
    axes = figure.subplots()
    dress(axes, x_label, y_label, grid=grid)
    return figure, axes


def dress(axes: Axes, x_label: str = "", y_label: str = "", *, grid: Literal["x", "y"] = "y") -> None:
    """Names of the axes, no frame, and a quiet grid behind what is drawn."""
    axes.set_xlabel(x_label, fontsize=9, color=PALETTE["ink"])
    axes.set_ylabel(y_label, fontsize=9, color=PALETTE["ink"])
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(PALETTE["muted"])
    axes.tick_params(length=0, labelsize=8, labelcolor=PALETTE["muted"], pad=4)
    axes.grid(axis=grid, color=PALETTE["rule"], linewidth=0.7)
    axes.set_axisbelow(True)


def inline(figure: Figure, name: str, title: str) -> Markup:
    """The figure as inline SVG, or as a base64 PNG where the SVG is above MAX_SVG_BYTES.

    ``name`` prefixes every id, so that figures of one page do not share ids; ``title`` is read aloud
    in place of the figure.
    """
    buffer = io.BytesIO()
    with matplotlib.rc_context(_SETTINGS):
        figure.savefig(buffer, format="svg", metadata=_NO_METADATA, transparent=True)
        if buffer.tell() > MAX_SVG_BYTES:
            return _png(figure, title)
    return Markup(_themed(_rewrite(buffer.getvalue(), name, title)))


@dataclass(frozen=True)
class Picture:
    """A figure for a page, or None and ``why``; ``name`` and ``spoken`` are those of `inline`."""

    figure: Figure | None
    name: str
    spoken: str
    why: str = ""

    @cached_property
    def markup(self) -> Markup | None:
        """The figure inside a page."""
        return None if self.figure is None else inline(self.figure, self.name, self.spoken)


def save(figure: Figure, stem: Path) -> None:
    """Write ``stem.svg`` and ``stem.png``; the same figure gives the same bytes."""
    with matplotlib.rc_context(_SETTINGS):
        figure.savefig(f"{stem}.svg", metadata=_NO_METADATA)
    figure.savefig(f"{stem}.png", dpi=200, metadata={"Software": None}, facecolor=PALETTE["surface"])


def _png(figure: Figure, title: str) -> Markup:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=200, metadata={"Software": None}, facecolor=PALETTE["surface"])
    data = base64.b64encode(buffer.getvalue()).decode()
    return Markup('<img class="plot" alt="{}" src="data:image/png;base64,{}">').format(title, data)


def _rewrite(svg: bytes, name: str, title: str) -> str:
    """Prefix ids, drop what only a stand-alone file needs, and add the accessible name."""
    referenced = {match.decode() for match in re.findall(rb'(?:url\(|href=")#([^")]+)', svg)}
    root = ElementTree.fromstring(svg)
    for parent in root.iter():
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{_SVG}}}")
        if href := element.attrib.pop(_XLINK_HREF, None):
            element.set("href", href.replace("#", f"#{name}-"))
        for key, value in element.attrib.items():
            element.set(key, _FONT_FAMILY.sub("", value).replace("url(#", f"url(#{name}-"))
        if (identity := element.attrib.pop("id", None)) in referenced:
            element.set("id", f"{name}-{identity}")
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.attrib |= {"class": "plot", "role": "img", "aria-label": title}
    ElementTree.SubElement(root, "title").text = title
    return ElementTree.tostring(root, encoding="unicode")


def _themed(svg: str) -> str:
    for variable, colour in PALETTE.items():
        svg = svg.replace(colour, f"var(--{variable})")
    return svg
