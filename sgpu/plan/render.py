"""A plan for a person (tables in a terminal, aligned text elsewhere) and for a program (JSON)."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from sgpu.plan.plan import Plan
from sgpu.plan.tables import DERIVED, GUESS, Section, origin, sections

LEGEND = (
    "Every number is measured, published, derived (arithmetic on known numbers), a guess, or given by you; "
    "what is derived from a guess is a guess."
)


def show_plan(plan: Plan, console: Console | None = None, verbose: bool = True) -> None:
    """Print a plan, the totals first; plain text where the console is no terminal.

    Without ``verbose`` the totals alone, no wider than the console.
    """
    console = console or Console(highlight=False)
    if console.is_terminal:
        console.print(f"Plan of study {plan.study.name}", style="bold", markup=False)
        console.print(LEGEND, markup=False)
        for section in sections(plan, verbose):
            console.print(_table(section))
            for note in section.notes:
                console.print(note, style="dim", markup=False)
    elif verbose:
        console.file.write(plain_text(plan))
    else:
        lines = plain_text(plan, verbose).splitlines()
        console.file.write("".join(f"{textwrap.fill(line, console.width) or ''}\n" for line in lines))
    if not verbose:
        console.print("--verbose shows what this is made of: data, cells, stages, placement and rates.")


def _table(section: Section) -> Table:
    table = Table(title=section.title, title_justify="left", box=None, pad_edge=False, title_style="bold")
    for place, head in enumerate(section.heads):
        table.add_column(head, justify="right" if _is_number(section, place) else "left")
    for row in section.rows:
        table.add_row(*(cell.replace("[", r"\[") for cell in row))
    return table


def _is_number(section: Section, place: int) -> bool:
    """Whether a column is set flush right: all its entries begin like a number."""
    entries = [row[place] for row in section.rows]
    return place >= section.n_names and all(entry[:1].isdigit() or entry[:1] in "$-?" for entry in entries)


def plain_text(plan: Plan, verbose: bool = True) -> str:
    """The tables as aligned text without colours or frames."""
    lines = [f"Plan of study {plan.study.name}", LEGEND, ""]
    for section in sections(plan, verbose):
        columns = list(zip(section.heads, *section.rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        right = [_is_number(section, place) for place in range(len(widths))]
        lines.append(section.title.upper())
        for row in (section.heads, *section.rows):
            padded = (
                cell.rjust(width) if flush else cell.ljust(width)
                for cell, width, flush in zip(row, widths, right, strict=True)
            )
            lines.append("  ".join(padded).rstrip())
        lines += [*section.notes, ""]
    return "\n".join(lines)


def as_json(plan: Plan) -> str:
    """Everything that the tables show, unrounded, each time with its origin."""
    cells = [asdict(cell) for cell in plan.study.cells]
    work = [{**asdict(one), "is": origin(plan.rates, one.rates) if one.rates else None} for one in plan.work]
    rates: dict[str, Any] = {name: rate.model_dump() for name, rate in plan.rates.named()}
    content = {
        "study": plan.study.name,
        "gpus": plan.gpus,
        "cells": cells,
        "granted_is": DERIVED,
        "work": work,
        "placement": [asdict(placed) for placed in plan.placements],
        "scenarios": [
            {"assumption": title, "gpu_hours": hours, "is": GUESS} for title, hours in plan.scenarios
        ],
        "total": {
            "gpu_hours": plan.gpu_hours,
            "start_gpu_hours": plan.start_gpu_hours,
            "cpu_hours": plan.cpu_hours,
            "wall_hours": plan.wall_hours,
            "usd": plan.usd,
            "is": GUESS,
        },
        "rates": rates,
    }
    return json.dumps(content, indent=2)
