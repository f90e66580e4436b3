"""`python -m bench [NAME ...]`: run the benchmarks, print them, write bench-results/bench.json.

A benchmark is a module of this folder with `run() -> list[Row]`. Exit codes: 0 every bound holds, 1 one is
missed or a benchmark failed, 2 an unknown name.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

from rich.console import Console
from rich.markup import escape
from rich.table import Table

BENCHMARKS = (
    "spectrum",
    "pooled_fit",
    "encoding",
    "bootstrap",
    "posthoc",
    "sampling",
    "engine_choice",
    "sampling_stage",
    "scoring",
)
# Run where it is named: it takes minutes and holds no bound.
ON_REQUEST = ("gpu",)
RESULTS = Path("bench-results")


class Row(TypedDict):
    """One measured quantity. ``ratio`` says how many times better than ``baseline`` we are, higher is better;
    ``bound`` is the least acceptable ratio, None where there is nothing to hold."""

    name: str
    ours: float
    baseline: float | None
    ratio: float | None
    bound: float | None
    unit: str
    note: str


def main(arguments: Sequence[str]) -> int:
    console = Console()
    known = (*BENCHMARKS, *ON_REQUEST)
    if unknown := sorted(set(arguments) - set(known)):
        console.print(f"unknown benchmark {', '.join(unknown)}. Known: {', '.join(known)}.", markup=False)
        return 2
    # Before torch is loaded by a benchmark: one thread each, so that ratios do not depend on the cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    rows = [row for name in arguments or BENCHMARKS for row in measured(name, console)]
    console.print(as_table(rows))
    console.print(f"written to {write(rows, RESULTS)}", markup=False)
    return int(any(missed(row) for row in rows))


def measured(name: str, console: Console) -> list[Row]:
    """The rows of one benchmark; importing it is part of running it, so that the others load nothing."""
    console.print(f"{name} ...", markup=False)
    run: Callable[[], list[Row]] = importlib.import_module(f"bench.{name}").run
    return run()


def missed(row: Row) -> bool:
    """Whether the row has a bound that its ratio does not reach; an unknown ratio reaches none."""
    if row["bound"] is None:
        return False
    return row["ratio"] is None or not row["ratio"] >= row["bound"]


def as_table(rows: Sequence[Row]) -> Table:
    table = Table("benchmark", title="benchmarks", title_justify="left")
    for heading in ("ours", "baseline", "ratio", "bound", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        what = f"{escape(row['name'])}\n[dim]{escape(row['unit'])}; {escape(row['note'])}[/dim]"
        held = "[red]missed[/red]" if missed(row) else "[green]held[/green]"
        numbers = [number(value) for value in (row["ours"], row["baseline"], row["ratio"], row["bound"])]
        table.add_row(what, *numbers, "" if row["bound"] is None else held)
    return table


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def write(rows: Sequence[Row], folder: Path) -> Path:
    """Write the rows, with the machine and the versions they were measured on; return the file."""
    from sgpu.provenance import environment, utc_now

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "bench.json"
    content = {"at": utc_now(), "environment": environment(), "rows": list(rows)}
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
