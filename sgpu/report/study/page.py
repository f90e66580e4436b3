"""Render the page: model text is data, escaped by Jinja2 wherever it is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import yaml

from sgpu.evaluation.metrics import BINS
from sgpu.report.look import numbers
from sgpu.report.look.glossary import method_notes
from sgpu.report.study.cells import CellView, cell_view
from sgpu.report.study.data import ReportData
from sgpu.report.study.figures import strokes
from sgpu.report.study.headline import sentence, tiles
from sgpu.report.study.leaderboard import COLUMNS, overview
from sgpu.report.study.responses import answer_groups
from sgpu.report.study.table_views import TableView
from sgpu.visible import visible

QUARANTINE_SHOWN = 50
GROUPS_SHOWN = 6  # groups of identical answers before the fold
TEMPLATES = Path(__file__).parent.parent / "templates"


def cell_views(data: ReportData) -> list[CellView]:
    """The sections of the page."""
    style = strokes(_methods(data), data.primary)
    return [
        cell_view(data, model, dataset, f"cell-{number}", style)
        for number, (model, dataset) in enumerate(data.cells(), start=1)
    ]


def _methods(data: ReportData) -> set[str]:
    methods = {*data.metrics["method"].to_list(), *data.predictions["method"].to_list()}
    return methods | {entry["method"] for entry in data.unavailable}


def render(
    data: ReportData, cells: Sequence[CellView] | None = None, tables: Sequence[TableView] = ()
) -> str:
    """The whole page as one string of HTML without scripts or outside resources.

    ``cells`` are those of `cell_views`, made here if they are not given.
    """
    cells = cell_views(data) if cells is None else cells
    methods = _methods(data)
    notes = method_notes(methods)
    style = strokes(methods, data.primary)
    table = overview({(cell.model, cell.dataset): cell.board for cell in cells}) if cells else ([], [])
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=str(data.study.get("name", "study")),
            summary=sentence(cells, table, notes),
            tiles=tiles(cells, table),
            cells=cells,
            overview=table if len(cells) > 1 else None,
            tables=[(view, view.table.scores()) for view in tables],
            columns=COLUMNS,
            bins=BINS,
            notes=notes,
            style=style,
            primary=data.primary,
            data=data,
            spans={cell.anchor: _auroc_span(cell) for cell in cells},
            quarantine_shown=QUARANTINE_SHOWN,
            groups_shown=GROUPS_SHOWN,
            settings=_as_yaml(data.study),
            run_info=_flat(data.run_info),
        )
    )


def environment_of(*folders: Path) -> jinja2.Environment:
    """Templates that escape what they are given, and fail for what they are not."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _environment() -> jinja2.Environment:
    environment = environment_of(TEMPLATES)
    environment.filters.update(
        decimals=numbers.decimals,
        interval=numbers.interval,
        percent=numbers.percent,
        p_value=numbers.probability,
        count=numbers.count,
        seconds=numbers.seconds,
        visible=visible,
        answer_groups=answer_groups,
    )
    environment.globals["zip"] = zip
    return environment


def _auroc_span(cell: CellView) -> tuple[float, float]:
    """The range that the interval marks of a cell share: every AUROC, every interval, and one half."""
    scores = [row.auroc for row in cell.board if row.scores]
    ends = [end for score in scores for end in (score.value, score.lo, score.hi) if numbers.known(end)]
    known = [end for end in ends if end is not None]
    return min([0.5, *known]), max([0.5, *known, 0.501])


def _as_yaml(study: Mapping[str, Any]) -> str:
    plain = json.loads(json.dumps(dict(study), default=str))
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100)


def _flat(info: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Run information as (name, text) lines; nested mappings become `name: key`."""
    lines = []
    for key, value in info.items():
        named = [(key, value)]
        if isinstance(value, Mapping):
            named = [(f"{key}: {name}", item) for name, item in sorted(value.items())]
        lines += [
            (name, item if isinstance(item, str) else json.dumps(item, default=str)) for name, item in named
        ]
    return lines
