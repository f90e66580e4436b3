"""The tables of a plan, for a person (terminal or text) and a program (JSON): every number says what it is.

Measured, published, derived, a guess, or given by the reader.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from rich.console import Console
from rich.table import Table

from sgpu.plan.cells import PlanCell, Work, in_pipeline_order
from sgpu.plan.estimate import SERVER, image_cost, prompt_tokens
from sgpu.plan.plan import CostPlan, Placement, served
from sgpu.plan.rates import Rates

WIDEST = 10_000  # of a table as plain text, which is never wrapped
GUESS, DERIVED = "guess", "derived"
JUDGE_PROMPT = ("judge.wording_tokens", "judge.guard_tokens", "judge.reference_tokens")
STARTS = ("vllm.start_minutes", "transformers.start_minutes", "cpu.start_minutes")


@dataclass(frozen=True)
class Section:
    """One table with what is said beneath it; ``n_names`` leading columns hold text."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    n_names: int = 1
    notes: tuple[str, ...] = ()


def sections(plan: CostPlan, verbose: bool = True) -> list[Section]:
    """Every table that has rows, the totals first; these alone where it is not to be ``verbose``."""
    made = [_totals(plan), _needs(plan, verbose)]
    if verbose:
        made += [_data(plan), _cells(plan), _stages(plan), _scenarios(plan), _placement(plan), _rates(plan)]
    return [section for section in made if section.rows]


def origin(rates: Rates, names: Iterable[str]) -> str:
    """What a number is that rests on these rates: a guess if one of them is one, else derived."""
    origins = {rate.origin for name, rate in rates.named() if name in set(names)}
    return GUESS if GUESS in origins else DERIVED


def _data(plan: CostPlan) -> Section:
    rows = [_described(cell) for cell in {cell.dataset: cell for cell in plan.study.cells}.values()]
    notes = [f"{cell.dataset}: not known: {what}." for cell in plan.study.cells for what in cell.unknown]
    heads = ("data set", "train asked", "granted", "test asked", "granted", "image", "answers each",
             "question tokens", "answer tokens")  # fmt: skip
    notes.append(
        "Granted sizes are derived from the rows that a card counts, an upper bound where groups stand at "
        "the cut; image sizes and token counts are typical values of the card: guesses."
    )
    return Section("Data", heads, tuple(rows), notes=tuple(dict.fromkeys(notes)))


def _described(cell: PlanCell) -> tuple[str, ...]:
    """Of its data set: training questions asked for and granted, those of the test, and what all are like."""
    both = (cell.requested, cell.granted)
    sizes = [getattr(of_side, side) if of_side else None for side in ("train", "test") for of_side in both]
    image = f"{cell.image[0]}x{cell.image[1]}" if cell.image else "-"
    lengths = (f"{cell.question_tokens}", f"{cell.answer_tokens:g}")
    lengths = ("?", "?") if cell.sampled_elsewhere else lengths
    return cell.dataset, *map(_count, sizes), image, f"{cell.n}", *lengths


def _cells(plan: CostPlan) -> Section:
    rows = []
    for cell in plan.study.cells:
        own = [
            work for work in plan.work if (work.answered_by, work.dataset) == (cell.model.name, cell.dataset)
        ]
        image, prompt = "-", "?"
        if not cell.sampled_elsewhere:
            image = (_count(image_cost(cell).tokens) if cell.model.image_rule else "?") if cell.image else "-"
            prompt = _count(prompt_tokens(cell, plan.rates))
        sampling = next((_hours([work], digits=3) for work in own if work.stage == "sample"), "-")
        total = sum(work.hours for work in own)
        rows.append(
            (cell.model.name, cell.dataset, _count(cell.questions if cell.granted else None), image, prompt,
             _count(cell.answers if cell.granted else None), sampling, f"{total:.2f}")
        )  # fmt: skip
    heads = (
        "model",
        "data set",
        "prompts",
        "image tokens",
        "prompt tokens",
        "answers",
        "sampling h",
        "all stages h",
    )
    note = (
        f"{len(rows)} {'cell' if len(rows) == 1 else 'cells'}. Hours are of GPUs; of this machine where a "
        "model runs on its CPU. Prompts and answers are derived from granted sizes, image tokens from the "
        "typical size by the model's rule; prompt tokens and hours are guesses."
    )
    return Section("Cells", heads, tuple(rows), n_names=2, notes=(note,))


def _stages(plan: CostPlan) -> Section:
    groups: dict[tuple[str, str, str], list[Work]] = {}
    for work in in_pipeline_order(plan.work):
        groups.setdefault((work.stage, work.model, work.part), []).append(work)
    rows = []
    for (stage, model, part), group in groups.items():
        used = dict.fromkeys(name for work in group for name in work.rates)
        counted = ("before_distinct", "calls", "tokens_in", "tokens_out")
        rows.append(
            (stage, f"{model} ({part})" if part else model,
             *(_short(sum(getattr(work, name) for work in group)) for name in counted), _hours(group),
             ", ".join(dict.fromkeys(work.bound for work in group)),
             origin(plan.rates, used) if used else "-")
        )  # fmt: skip
    heads = ("stage", "model", "before de-dup", "calls", "tokens in", "tokens out", "hours",
             "bound by", "rates are a")  # fmt: skip
    notes = (
        "Calls before de-duplication are derived from granted sizes; calls after it and tokens rest on the "
        "distinct share and the typical lengths of the cards: guesses, and so are the hours.",
        "De-duplicated: equal answers to one question are judged and encoded once, and only pairs of "
        "distinct answers are compared; labels and spectra are the same.",
        "Not counted: reading the data, fits, evaluation and report (minutes on CPUs), failed rows, reruns.",
    )
    return Section("Stages", heads, tuple(rows), n_names=2, notes=notes)


def _hours(group: Sequence[Work], digits: int = 2) -> str:
    hours = sum(work.hours for work in group)
    return f"{hours:.{digits}f}{' CPU' if group[0].on_cpu else ''}" if hours else "-"


def _scenarios(plan: CostPlan) -> Section:
    asks = any(work.stage == "judge" and work.gpus for work in plan.work)
    rows = tuple((title, f"{hours:.1f}", GUESS) for title, hours in plan.scenarios) if asks else ()
    heads = ("sampling and the study's own judges", "GPU-hours", "is a")
    return Section("What judging once saves", heads, rows, notes=("The plan uses the last line.",))


def _placement(plan: CostPlan) -> Section:
    rows = [_placed(placed, plan.rates) for placed in plan.placements]
    notes = [
        f"{placed.stage} {placed.model}: {placed.problem}." for placed in plan.placements if placed.problem
    ]
    heads = ("stage", "model", "engine", "runs", "actors", "GPUs each (TP)", "weights GiB/GPU",
             "cache tokens", "starts h", "wall h")  # fmt: skip
    notes += [
        "Cells and stages run one after the other; a stage starts its actors anew in every cell, so that few "
        "large cells cost fewer starts than many small ones.",
        "Actors are given by the study, GPUs and weights by the cards (published); cache tokens are derived, "
        "hours are guesses.",
    ]
    return Section("Placement", heads, tuple(rows), n_names=3, notes=(*notes, *plan.study.notes))


def _placed(placed: Placement, rates: Rates) -> tuple[str, ...]:
    where = "CPU" if placed.on_cpu else f"{placed.gpus:g} x {rates.gpu.memory_gib.value:g} GiB"
    return (
        placed.stage,
        placed.model,
        placed.engine,
        f"{placed.runs}",
        f"{placed.actors}",
        where,
        f"{placed.weights_gib:.1f}" if placed.weights_gib else "-",
        _short(placed.cache_tokens or 0),
        f"{placed.start_hours:.2f}",
        f"{placed.wall_hours:.2f}" if placed.usable or placed.on_cpu else "cannot run",
    )


def _totals(plan: CostPlan) -> Section:
    rows: dict[str, str] = {}  # all of them guesses
    price = plan.rates.gpu.usd_per_gpu_hour
    if plan.gpu_hours:
        low, high = plan.gpu_hours / 2, plan.gpu_hours * 2
        rows |= {
            "GPU-hours of work": f"{plan.gpu_hours:.1f}",
            "with a factor of 2 either way": f"{low:.1f} to {high:.1f}",
            "GPU-hours of engine starts": f"{plan.start_gpu_hours:.1f}",
            f"cost at ${price.value:g} a GPU-hour ({price.origin})": f"${plan.usd:,.0f}",
            f"wall hours at best, --gpus {plan.gpus}": f"{plan.gpu_hours / plan.gpus:.1f}",
        }
    if plan.cpu_hours:
        rows[f"minutes on {plan.study.cores} cores, starts included"] = f"{plan.cpu_hours * 60:.0f}"
    if plan.gpu_hours:
        rows[f"wall hours with the study's actors, --gpus {plan.gpus}"] = f"{plan.wall_hours:.1f}"
    for model, read, written, usd in served(plan):
        rows[f"tokens that {model} reads and writes"] = f"{_count(read)} and {_count(written)}"
        if usd is not None:
            rows[f"price of {model}, a request for all answers"] = f"${usd:,.2f}"
    untimed = {
        (work.stage, work.model): f"{work.stage} {work.model}: no time is planned ({work.bound})."
        for work in plan.work
        if not work.hours and work.bound.startswith(("unknown", SERVER))
    }
    guesses = tuple((what, value, GUESS) for what, value in rows.items())
    return Section("Total", ("", "", "is a"), guesses, notes=tuple(untimed.values()))


def _needs(plan: CostPlan, verbose: bool) -> Section:
    """Return disk space and what is missing, with what to do about it if ``verbose``."""
    study, width = plan.study, WIDEST if verbose else 140
    rows = {
        "GB of weights": study.weights_gb,
        "GB of hidden states, in the output folder": study.hidden_gb,
        "missing on this machine": len(study.missing),
    }
    notes = tuple(textwrap.shorten(f"Missing: {what}", width) for what in study.missing)
    found = tuple(
        (what, _count(value), DERIVED) for what, value in rows.items() if value is None or value >= 0.5
    )
    return Section("Needs", ("", "", "is"), found, notes=notes)


def _rates(plan: CostPlan) -> Section:
    users: dict[str, list[str]] = {}
    for work in in_pipeline_order(plan.work):
        for name in [*work.rates, *(JUDGE_PROMPT if work.stage == "judge" and work.tokens_in else ())]:
            users.setdefault(name, []).append(work.stage)
    if any(work.stage == "sample" for work in plan.work):
        users |= {name: ["prompts"] for name in ("prompt.chat_tokens", "prompt.characters_per_token")}
    if plan.gpu_hours:
        users |= {"gpu.memory_gib": ["placement"], "gpu.memory_share": ["placement"]}
        users |= {"gpu.usd_per_gpu_hour": ["cost"], **{name: ["starts"] for name in STARTS}}
    rows = tuple(
        (name, f"{rate.value:,g}", rate.origin, ", ".join(dict.fromkeys(users[name])), rate.note)
        for name, rate in plan.rates.named()
        if name in users
    )
    note = (
        "Measure what is a guess with a short probe, and give it with --set rates.NAME=VALUE or --rates FILE."
    )
    return Section("Rates", ("rate", "value", "is", "used by", "note"), rows, notes=(note,))


def _count(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"


def _short(value: float) -> str:
    """Three digits with k, M or G; a dash for nothing."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}" if value else "-"


LEGEND = (
    "Every number is measured, published, derived (arithmetic on known numbers), a guess, or given by you; "
    "what is derived from a guess is a guess."
)


def show_plan(plan: CostPlan, console: Console | None = None, verbose: bool = True) -> None:
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
    title = section.title or None
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, title_style="bold")
    for column, head in enumerate(section.heads):
        table.add_column(head, justify="right" if _is_number(section, column) else "left")
    for row in section.rows:
        table.add_row(*(cell.replace("[", r"\[") for cell in row))
    return table


def _is_number(section: Section, column: int) -> bool:
    """Whether a column is set flush right: all its entries begin like a number."""
    entries = [row[column] for row in section.rows]
    return column >= section.n_names and all(entry[:1].isdigit() or entry[:1] in "$-?" for entry in entries)


def plain_text(plan: CostPlan, verbose: bool = True) -> str:
    """The tables as aligned text without colours or frames."""
    lines = [f"Plan of study {plan.study.name}", LEGEND, ""]
    for section in sections(plan, verbose):
        drawn = Console(width=WIDEST, color_system=None, highlight=False, emoji=False)
        with drawn.capture() as aligned:
            drawn.print(_table(replace(section, title="")))
        rows = aligned.get().splitlines()
        lines += [section.title.upper(), *(row.rstrip() for row in rows), *section.notes, ""]
    return "\n".join(lines)


def as_json(plan: CostPlan) -> str:
    """Everything that the tables show, unrounded, each time with its origin."""
    work = [
        {**asdict(step), "is": origin(plan.rates, step.rates) if step.rates else None} for step in plan.work
    ]
    content = {
        "study": plan.study.name,
        "gpus": plan.gpus,
        "cells": [asdict(cell) for cell in plan.study.cells],
        "granted_is": DERIVED,
        "needs": {
            "missing": plan.study.missing,
            "weights_gb": plan.study.weights_gb,
            "hidden_gb": plan.study.hidden_gb,
        },
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
        "rates": {name: rate.model_dump() for name, rate in plan.rates.named()},
    }
    return json.dumps(content, indent=2)
