"""The tables of a plan, for people (plain text) and programs (JSON)."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sgpu.plan.plan import CostPlan, list_oversized, served
from sgpu.runtime.schedule import Replay

WIDTH, NOTE = 100, 140  # characters of a line of notes, and of what is said of one missing thing
SHOWN = (1, 2, 4, 8, 16, 32, 64, 128)  # numbers of GPUs beside the best buy and the one that was asked for
ESTIMATED = (
    "All hours are estimates that may be off by a factor of 2. They rest on rates, most of them guesses: "
    "sgpu/plan/rates.yaml gives the origin of each, and --rates or --set replaces it. "
    "Not counted: reading the data, fits, evaluation and report (minutes on CPUs), failed rows."
)
IDLE_GPUS = (
    "Pools of a shelf run side by side, shelves one after the other. GPUs that become idle go to the pool of "
    "the shelf with the most work left, so there may be more starts than actors."
)


@dataclass(frozen=True)
class Section:
    """One table and its notes."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: Sequence[str] = ()

    def lines(self) -> list[str]:
        """Return the table as aligned text; a column is set flush right if its cells begin like a number."""
        columns = list(zip(self.heads, *self.rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        right = [all(cell[:1].isdigit() or cell[:1] in "$-?" for cell in cells) for _, *cells in columns]
        table = []
        for row in (self.heads, *self.rows):
            cells = zip(row, widths, right, strict=True)
            table.append(
                "  ".join(f"{cell:{'>' if is_right else '<'}{width}}" for cell, width, is_right in cells)
            )
        notes = [line for note in self.notes for line in textwrap.wrap(note, WIDTH)]
        return [self.title.upper(), *(line.rstrip() for line in table if line.strip()), *notes, ""]


def as_text(plan: CostPlan) -> str:
    """Return the totals, the schedule, what other numbers of GPUs take, and what is needed."""
    sections = (_totals(plan), _shelves(plan), _offers(plan), _needs(plan))
    lines = [line for section in sections if section.rows or section.notes for line in section.lines()]
    return "\n".join([f"Plan of study {plan.study.name}", "", *lines]).rstrip()


def _totals(plan: CostPlan) -> Section:
    chosen, study = plan.chosen, plan.study
    rows = []
    if study.on_cpu and plan.pools:
        rows.append((f"minutes on {study.cores} cores, starts included", f"{chosen.wall:.0f}"))
    elif plan.best_buy:
        rate = plan.rates.gpu.usd_per_gpu_hour
        rows += [
            (f"wall time on {chosen.gpus} GPUs", _duration(chosen.wall)),
            ("at least, by any schedule", _duration(chosen.bound)),
            ("GPU-hours of work", f"{plan.work_hours:.1f}"),
            ("GPU-hours held, with starts and idle GPUs", f"{chosen.held_hours:.1f}"),
            ("use: work / held", f"{chosen.use:.2f}"),
            ("starts of engines and encoders", f"{sum(chosen.starts)}"),
            (f"cost at ${rate:g} a GPU-hour", f"${plan.usd(chosen):,.0f}"),
            (f"best buy: GPUs, use {plan.best_buy.use:.2f}", f"{plan.best_buy.gpus}"),
        ]
    for model in served(plan):
        tokens = f"{model.tokens_in:,.0f} and {model.tokens_out:,.0f}"
        rows += [(f"calls of {model.name}", f"{model.calls:,.0f}")]
        rows += [(f"tokens that {model.name} reads and writes", tokens)]
        if model.usd is not None:
            rows.append((f"price of {model.name}, a request for all answers", f"${model.usd:,.2f}"))
    notes = [
        f"{work.stage} {work.engine}: no time is planned: {work.limit}."
        for work in plan.work
        if work.limit and not work.hours
    ]
    notes += [f"{cell.dataset}: {what}." for cell in study.cells for what in cell.unknown]
    return Section("Total", ("", ""), rows, [ESTIMATED, *study.notes, *dict.fromkeys(notes)])


def _shelves(plan: CostPlan) -> Section:
    chosen, on_cpu = plan.chosen, plan.study.on_cpu
    rows = [
        (f"{number}", f"{minutes:.1f}", pool.name, f"{actors}",
         "-" if on_cpu else f"{pool.gpus:g}", f"{pool.work * pool.gpus:.1f}", f"{pool.start:g}")
        for number, (shelf, minutes) in enumerate(zip(chosen.shelves, chosen.minutes, strict=True), 1)
        for pool, actors in zip(shelf.pools, shelf.actors, strict=True)
    ]  # fmt: skip
    work = "work min" if on_cpu else "GPU-min"
    heads = ("shelf", "minutes", "pool", "actors", "GPUs each", work, "start min")
    return Section("Shelves", heads, rows, (IDLE_GPUS, *list_oversized(plan)) if rows and not on_cpu else ())


def _offers(plan: CostPlan) -> Section:
    best, offers = plan.best_buy, {offer.gpus: offer for offer in plan.offers}
    if best is None:
        return Section("GPUs", (), ())
    offers[plan.chosen.gpus] = plan.chosen
    counts = {*SHOWN, plan.chosen.gpus, best.gpus}
    rows = [
        (f"{gpus}", _duration(offer.wall), _duration(offer.bound), f"{offer.use:.2f}",
         f"{offer.held_hours:,.1f}", f"${plan.usd(offer):,.0f}", f"{sum(offer.starts)}",
         f"{len(offer.shelves)}", "best buy" if gpus == best.gpus else "")
        for gpus, offer in sorted(offers.items()) if gpus in counts
    ]  # fmt: skip
    heads = ("GPUs", "wall time", "at least", "use", "GPU-hours held", "cost", "starts", "shelves", "")
    return Section("GPUs", heads, rows)


def _needs(plan: CostPlan) -> Section:
    """Return disk space and what is missing; a study that starts says in full what to do about it."""
    study = plan.study
    needs = {
        "GB of weights": study.weights_gb,
        "GB of hidden states, in the output folder": study.hidden_gb,
        "missing on this machine": len(study.missing),
    }
    rows = [
        (what, "?" if value is None else f"{value:,.0f}")
        for what, value in needs.items()
        if value is None or value >= 0.5
    ]
    return Section(
        "Needs", ("", ""), rows, [textwrap.shorten(f"Missing: {what}", NOTE) for what in study.missing]
    )


def _duration(minutes: float) -> str:
    return f"{minutes / 60:.1f} h" if minutes >= 120 else f"{minutes:.1f} min"


def as_json(plan: CostPlan) -> str:
    """Return what the tables show, unrounded, with missing things in full, and the work of each cell."""
    content = {
        "study": asdict(plan.study),
        "total": {
            "work_hours": plan.work_hours,
            **_numbers(plan, plan.chosen),
            "best_buy_gpus": plan.best_buy.gpus if plan.best_buy else None,
        },
        "pools": [
            {"shelf": number, **asdict(pool), "blocks": len(pool.blocks), "actors": actors}
            for number, shelf in enumerate(plan.chosen.shelves, 1)
            for pool, actors in zip(shelf.pools, shelf.actors, strict=True)
        ],
        "offers": [_numbers(plan, offer) for offer in plan.offers],
        "served": [asdict(model) for model in served(plan)],
        "work": [asdict(work) for work in plan.work],
        "rates": plan.rates.model_dump(),
    }
    return json.dumps(content, indent=2)


def _numbers(plan: CostPlan, offer: Replay) -> dict[str, object]:
    return {
        "gpus": 0 if plan.study.on_cpu else offer.gpus,
        "shelf_minutes": offer.minutes,
        "wall_minutes": offer.wall,
        "bound_minutes": offer.bound,
        "use": offer.use,
        "held_hours": offer.held_hours,
        "starts": sum(offer.starts),
        "usd": plan.usd(offer),
    }
