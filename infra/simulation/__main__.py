"""`python -m infra.simulation`: prints the tables of infra/SCALING.md, or writes them into it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from infra.simulation.assumptions import Assumptions
from infra.simulation.render import report, written_into
from sgpu.errors import SgpuError
from sgpu.plan.rates import load_rates


def main() -> None:
    """Exit code 2 for a rates file or a target that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m infra.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--rates", type=Path, metavar="FILE.yaml", help="rates of your own, as of `sgpu plan`"
    )
    parser.add_argument("--write", type=Path, metavar="FILE.md", help="put the tables between its marks")
    given = parser.parse_args()
    try:
        tables = report(load_rates(given.rates), Assumptions(), given.seed)
        if given.write is None:
            print(tables)
        else:
            text = written_into(given.write.read_text(encoding="utf-8"), tables, given.write)
            given.write.write_text(text, encoding="utf-8")
    except SgpuError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
