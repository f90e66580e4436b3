"""Sample the cells, forecast, write page and model: `make study-plus`; a repeated command goes on."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from bench.study_plus.base import write_base
from bench.study_plus.cells import CELLS, QUESTIONS, sample_cells, sample_images
from bench.study_plus.collect import collect_results
from bench.study_plus.page import render
from sgpu.fitted.model import READY


def main() -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(prog="study-plus", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/study-plus"))
    parser.add_argument("--page", type=Path, default=Path("docs/studies/sgpu_plus_results.md"))
    parser.add_argument("--model", type=Path, default=Path("sgpu/fitted") / READY)
    parser.add_argument("--card", type=Path, default=Path("docs/studies/sgpu_base.md"))
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="of each cell; fewer for a trial")
    given = parser.parse_args()
    sample_cells(given.out, CELLS, given.questions)
    sample_images(given.out, given.questions)
    results = collect_results(given.out)
    given.page.write_text(render(results), encoding="utf-8")
    write_base(results, given.model, given.card)
    Console().print(f"{given.page}\n{given.card}\n{given.model}")


if __name__ == "__main__":
    main()
