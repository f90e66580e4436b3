"""The tables of a plan, for people (plain text) and programs (JSON)."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from sgpu.plan.estimate import SERVER
from sgpu.plan.plan import CostPlan
from sgpu.provenance import available_cores
from sgpu.runtime.schedule import Replay
from sgpu.stages.preflight import loaded_cards, missing

WIDTH, NOTE = 100, 140  # characters of a line of notes, and of what is said of one missing thing
SHOWN = (1, 2, 4, 8, 16, 32, 64, 128)  # numbers of GPUs beside the best buy and the one that was asked for
ESTIMATED = (
    "All hours are estimates that may be off by a factor of 2. They rest on rates, most of them guesses: "
    "sgpu/plan/rates.yaml gives the origin of each, and --rates or --set replaces it. "
    "Not counted: reading the data, fits, evaluation and report (minutes on CPUs), failed rows."
)
IDLE_GPUS = "GPUs that become idle go to the pool with most work left: there may be more starts than actors."
OPEN_DEVICE = (
    "resources.device is auto: planned on {}. A run on a cluster wants resources.device=cuda or cpu."
)
TIME = "minutes, or hours if they are many"
# One line of a table: head -> value, and how to show it.
Facts = dict[str, tuple[Any, str]]


class PlanTable(NamedTuple):
    """A title, lines and notes; an ``upright`` table has a line for each fact of its only row."""

    title: str
    rows: Sequence[Facts]
    notes: Sequence[str] = ()
    upright: bool = False

    def lines(self) -> list[str]:
        """Return aligned text; empty without rows and notes."""
        texts = [[show(*fact) for fact in row.values()] for row in self.rows]
        grid = [[*self.rows[0]], *texts] if self.rows else []
        if self.upright:
            grid = [["", ""], *(list(pair) for pair in zip(*grid, strict=True))]
        columns = [_align(*column) for column in zip(*grid, strict=True)]
        lines = ["  ".join(line).rstrip() for line in zip(*columns, strict=True) if any(map(str.strip, line))]
        lines += [line for note in self.notes for line in textwrap.wrap(note, WIDTH)]
        return [self.title.upper(), *lines, ""] if lines else []


def _align(head: str, *cells: str) -> list[str]:
    """Return a column at one width, flush right if its cells begin like a number."""
    width = max(map(len, (head, *cells)))
    side = ">" if all(cell[:1].isdigit() or cell[:1] in "$-?" for cell in cells) else "<"
    return [f"{cell:{side}{width}}" for cell in (head, *cells)]


def show(value: Any, form: str) -> str:
    """Return a value as a table has it."""
    if form == TIME:
        return f"{value / 60:.1f} h" if value >= 120 else f"{value:.1f} min"
    return "?" if value is None else form.format(value)


def as_text(plan: CostPlan) -> str:
    """Return the totals, the schedule, what other numbers of GPUs take, and what is needed."""
    lines = [line for table in list_tables(plan) for line in table.lines()]
    return "\n".join([f"Plan of study {plan.study.name}", "", *lines]).rstrip()


def as_json(plan: CostPlan) -> str:
    """Return the tables unrounded, with missing things in full, the work of each cell and the rates."""
    content: dict[str, Any] = {"study": plan.study.name}
    for title, rows, notes, _ in list_tables(plan):
        facts = [{head: value for head, (value, _) in row.items()} for row in rows]
        content[title.lower()] = {"rows": facts, "notes": notes}
    content["missing"] = [str(error) for error in missing(plan.study)]
    content["work"] = [asdict(work) for work in plan.work]
    return json.dumps({**content, "rates": plan.rates.model_dump()}, indent=2)


def list_tables(plan: CostPlan) -> list[PlanTable]:
    """Return the totals, the schedule, what other numbers of GPUs take, and what is needed."""
    where = [OPEN_DEVICE.format("a CPU" if plan.on_cpu else "GPUs")]
    notes = [ESTIMATED, *(where if plan.study.resources.device == "auto" else ()), *plan.notes]
    absent = [textwrap.shorten(f"Missing: {what}", NOTE) for what in missing(plan.study)]
    offers = {offer.gpus: offer for offer in plan.offers if offer.gpus in SHOWN or offer == plan.best_buy}
    if offers:
        offers[plan.chosen.gpus] = plan.chosen
    return [
        PlanTable("Total", [_describe_total(plan)], notes, upright=True),
        PlanTable("Servers", _describe_served(plan)),
        PlanTable("Shelves", _describe_shelves(plan), [IDLE_GPUS] if offers else []),
        PlanTable("GPUs", [_describe_offer(plan, offers[gpus]) for gpus in sorted(offers)]),
        PlanTable("Needs", [_describe_needs(plan, len(absent))], absent, upright=True),
    ]


def _describe_total(plan: CostPlan) -> Facts:
    """Return what the GPUs that were asked for take, or this machine."""
    if plan.on_cpu and plan.pools:
        return {f"minutes on {available_cores()} cores, starts included": (plan.chosen.wall, "{:.0f}")}
    if not plan.best_buy:
        return {}
    facts = _describe_offer(plan, plan.chosen) | {"GPU-hours of work": (plan.chosen.work / 60, "{:.1f}")}
    facts["best buy"] = (plan.best_buy.gpus, "{} GPUs")
    return {head: fact for head, fact in facts.items() if head}


def _describe_served(plan: CostPlan) -> list[Facts]:
    """Return what is asked of each model of a server, and the price of one request for all answers."""
    rows: list[Facts] = []
    for model in plan.study.models:
        own = [work for work in plan.work if (work.engine, work.limit) == (model.name, SERVER)]
        read, written = sum(work.tokens_in for work in own), sum(work.tokens_out for work in own)
        usd = (read * model.price.input + written * model.price.output) / 1e6 if model.price else None
        facts = {
            "model": (model.name, "{}"), "calls": (sum(work.calls for work in own), "{:,.0f}"),
            "tokens read": (read, "{:,.0f}"), "written": (written, "{:,.0f}"), "price": (usd, "${:,.2f}"),
        }  # fmt: skip
        rows += [facts] if own else []
    return rows


def _describe_shelves(plan: CostPlan) -> list[Facts]:
    shelves = zip(plan.chosen.shelves, plan.chosen.minutes, strict=True)
    work, gpus = ("work min", "-") if plan.on_cpu else ("GPU-min", "{:g}")
    return [
        {
            "shelf": (number, "{}"), "minutes": (minutes, "{:.1f}"), "pool": (pool.name, "{}"),
            "actors": (actors, "{}"), "GPUs each": (pool.gpus, gpus),
            work: (pool.work * pool.gpus, "{:.1f}"), "start min": (pool.start, "{:.2g}"),
        }
        for number, (shelf, minutes) in enumerate(shelves, 1)
        for pool, actors in zip(shelf.pools, shelf.actors, strict=True)
    ]  # fmt: skip


def _describe_offer(plan: CostPlan, offer: Replay) -> Facts:
    usd = offer.held_hours * plan.rates.gpu.usd_per_gpu_hour
    return {
        "GPUs": (offer.gpus, "{}"), "wall time": (offer.wall, TIME), "at least": (offer.bound, TIME),
        "use": (offer.use, "{:.2f}"), "GPU-hours held": (offer.held_hours, "{:,.1f}"),
        "cost": (usd, "${:,.0f}"), "starts": (sum(offer.starts), "{}"),
        "shelves": (len(offer.shelves), "{}"), "": ("best buy" if offer == plan.best_buy else "", "{}"),
    }  # fmt: skip


def _describe_needs(plan: CostPlan, absent: int) -> Facts:
    """Return disk space and what is missing; a study that starts says in full what to do about it."""
    weights = sum(card.memory_gib for card in loaded_cards(plan.study) if not card.packaged)
    states = [work.disk_gb for work in plan.work]
    needs = {
        "GB of weights": weights * 2**30 / 1e9,
        "GB of hidden states, in the output folder": None if None in states else sum(filter(None, states)),
        "missing on this machine": absent,
    }
    return {what: (value, "{:,.0f}") for what, value in needs.items() if value is None or value >= 0.5}
