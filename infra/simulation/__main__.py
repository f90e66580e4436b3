"""`python -m infra.simulation`: prints the tables of infra/SCALING.md, or writes them into it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from infra.simulation.scaling import (
    GPUS,
    SETS,
    Assumptions,
    Scaled,
    fault_costs,
    grid,
    load_assumptions,
    stage_loads,
)
from sgpu.errors import SgpuError, UsageError
from sgpu.plan.cells import HOUR
from sgpu.plan.rates import Rate, Rates, load_rates

BEGIN, END = "<!-- simulated: begin -->", "<!-- simulated: end -->"
FAULTS_AT = (10**6, 64)  # response sets and GPUs of the table of faults
# Rates of the plan that decide the times here.
USED = (
    "gpu.peak_flops", "gpu.usd_per_gpu_hour", "vllm.flops_share", "vllm.decode_tokens_per_s",
    "vllm.sequences_per_s", "vllm.images_per_s", "vllm.start_minutes", "transformers.flops_share",
    "transformers.start_minutes", "judge.distinct_share", "judge.prefix_hits", "entailment.pairs_per_s",
    "encoding.texts_per_s",
)  # fmt: skip


def report(rates: Rates, assumed: Assumptions, seed: int) -> str:
    """All tables as Markdown, the same for the same seed."""
    sets, gpus = FAULTS_AT
    parts = [
        f"Seed {seed}.",
        _scaling(grid(rates, assumed, seed)),
        f"What faults cost, {_power(sets)} response sets on {gpus} GPUs, stages only:",
        _faults(fault_costs(sets, gpus, rates, assumed, seed)),
        _on_the_cpu(rates, assumed),
        _files(rates, assumed),
        "What the tables rest on:",
        _origins([*((n, r) for n, r in rates.named() if n in USED), *assumed.named()]),
    ]
    return "\n\n".join(parts)


def written_into(text: str, tables: str, file: Path) -> str:
    """``text`` of ``file`` with the tables between its marks; UsageError where the marks are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise UsageError(f"{file} has no marks for the tables: put {BEGIN} and {END} on lines of their own")
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def _on_the_cpu(rates: Rates, assumed: Assumptions) -> str:
    """What the measured rates of single actors give by themselves, without a GPU."""
    sets, answers, tokens = 10**6, 20, 12
    sampling = sets * answers * tokens / rates.cpu.decode_tokens_per_s.value
    encoding = sets * answers / assumed.encoded_answers_per_s.value
    spectra = sets / assumed.spectra_per_s.value
    return (
        f"Single actors as measured on two CPU cores, {_power(sets)} response sets of {answers} answers "
        f"of {tokens} tokens: sampling with SmolLM2-135M {_duration(sampling)}, embedding "
        f"{_duration(encoding)}, spectra {_duration(spectra)}."
    )


def _files(rates: Rates, assumed: Assumptions) -> str:
    """What the number of files costs by itself, at the largest size."""
    sets, wait = max(SETS), assumed.object_store_file_ms
    files = sum(load.blocks for load in stage_loads(sets, max(GPUS), rates, assumed))
    alone, readers = files * wait.value / 1e3, assumed.file_readers.value
    commits = files / assumed.committed_files_per_s.value
    return (
        f"{_power(sets)} response sets leave {files:,} files. The driver opens each once for its check: at "
        f"{wait.value:g} ms in object storage ({wait.origin}) {_duration(alone / readers)} with {readers:g} "
        f"at a time, {_duration(alone)} one by one; the Delta commits themselves take {_duration(commits)} "
        f"({assumed.committed_files_per_s.origin} on a local disk)."
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _scaling(sizes: Sequence[Scaled]) -> str:
    head = (
        "GPUs", "response sets", "wall", "paid GPU-hours", "USD", "sets/s", "GPUs at work", "driver GiB",
        "first bottleneck", "then",
    )  # fmt: skip
    return _table(head, [_row(size) for size in sizes])


def _row(size: Scaled) -> list[str]:
    first, second = (_part(size, name) for name in size.bottlenecks[:2])
    hours = size.paid_seconds * size.gpus / HOUR
    return [
        str(size.gpus), _power(size.sets), _duration(size.wall_seconds), f"{hours:,.0f}", f"{size.usd:,.0f}",
        f"{size.sets_per_s:,.1f}", f"{size.busy:.0%}", f"{size.driver_gib:.1f}", first, second,
    ]  # fmt: skip


def _part(size: Scaled, name: str) -> str:
    return f"{name}, {size.parts[name] / size.wall_seconds:.0%}" if name in size.parts else name


def _faults(rows: Sequence[tuple[str, float, int]]) -> str:
    calm = rows[0][1]
    lines = [
        [title, _duration(seconds), f"{seconds / calm - 1:+.1%}", str(redone)]
        for title, seconds, redone in rows
    ]
    return _table(("case", "wall", "over none", "blocks done twice"), lines)


def _origins(named: Sequence[tuple[str, Rate]]) -> str:
    lines = [[f"`{name}`", f"{rate.value:,.6g}", rate.origin, rate.note] for name, rate in named]
    return _table(("number", "value", "origin", "what"), lines)


def _power(count: int) -> str:
    return f"10^{len(str(count)) - 1}"


def _duration(seconds: float) -> str:
    for unit, size in (("d", 24 * HOUR), ("h", HOUR)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds / 60:.1f} min"


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
        tables = report(load_rates(given.rates), load_assumptions(), given.seed)
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
