"""What happened, in a sentence, four numbers and a few notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sgpu.logs.accounting import Accounting
from sgpu.report.daily.groups import mean_probability, same_model
from sgpu.report.look import numbers
from sgpu.visible import visible
from sgpu.watch.history import PastDay, Trail
from sgpu.watch.sketch import MOST_MODELS, MOST_ROUTES, OTHER, Sketch


def sentence(today: PastDay) -> str:
    """Rows, scores and quarantine of the day."""
    accounting = today.accounting
    if not accounting.rows_in:
        return "No row was logged on this day."
    new = accounting.requests_scored
    return (
        f"{numbers.count(accounting.rows_in)} rows were logged. {numbers.count(today.sketch.rows)} requests "
        f"have a score, {numbers.count(new) if new else 'none'} of them by this run. "
        f"{numbers.count(accounting.quarantined)} rows are in quarantine."
    )


def tiles(today: PastDay, past: Sequence[Sketch]) -> list[tuple[str, str, str]]:
    """(name, value, remark) of the four numbers."""
    before = [group for sketch in same_model(today.sketch, past) for group in sketch.groups.values()]
    rows = sum(group.rows for group in before)
    unsafe = sum(group.counts["unsafe"] for group in before) / rows if rows else None
    whole, accounting = today.sketch.total(), today.accounting
    probability = whole.mean_probability
    return [
        ("Scored requests", numbers.count(whole.rows), f"of {numbers.count(accounting.rows_in)} rows"),
        ("Scoreable share", _scoreable(accounting), _of_the_answered(accounting)),
        (
            "Mean probability",
            "–" if probability is None else numbers.decimals(probability),
            _before(mean_probability(before), numbers.decimals),
        ),
        ("Unsafe share", share(whole.unsafe_share), _before(unsafe, numbers.percent)),
    ]


def _scoreable(accounting: Accounting) -> str:
    known = share(accounting.scoreable_share)
    return f"at least {known}" if accounting.bytes_unread else known


def _of_the_answered(accounting: Accounting) -> str:
    without = accounting.no_answer
    more = f"; {numbers.count(without)} rows hold none" if without else ""
    return f"of requests with an answer{more}"


def share(value: float | None) -> str:
    """In percent, or a dash."""
    return "–" if value is None else numbers.percent(value)


def _before(value: float | None, write: Callable[[float | None], str]) -> str:
    return "no past days of this model" if value is None else f"{write(value)} on the past days"


def notes(today: PastDay, trail: Trail, days: int, max_bad: float | None) -> list[str]:
    """What to keep in mind when reading the page; ``max_bad`` is the bound on the share of faulty rows."""
    found = [] if today.verdict else ["This day was not judged."]
    bad = today.accounting.bad_share
    if max_bad is not None and bad > max_bad:
        found.append(
            f"Too much is broken: {numbers.percent(bad)} of the rows or files are faulty, and "
            f"{numbers.percent(max_bad)} are allowed. Unless the day is red (5), that is exit code 3."
        )
    if nested := today.accounting.nested:
        found.append(
            f"{numbers.count(nested)} spans with answers lie in another with answers, in another "
            "line: two libraries may have traced one call, which then has two scores."
        )
    if unread := today.accounting.bytes_unread:
        found.append(
            f"{numbers.count(unread)} bytes of the logs were not read: their files are above the bounds "
            "(file in the settings), and stand in quarantine as over_budget. What they hold is in no count."
        )
    known = len(trail.days)
    if known < days:
        found.append(f"{known or 'None'} of the {days} days before have a run; the others are gaps below.")
    found += [f"A past day could not be read and is left out: {visible(text)}" for text in trail.unreadable]
    return found + _limits(today.sketch, trail.sketches)


def _limits(today: Sketch, past: Sequence[Sketch]) -> list[str]:
    """What is not compared, and what is not told apart."""
    found = []
    other = sum(sketch.rows > 0 for sketch in past) - len(same_model(today, past))
    if today.rows and other:
        found.append(f"{other} past days were scored by another model: their probabilities are not compared.")
    for name in sorted(visible(model or "no model named") for model in today.wide):
        found.append(
            f"{name} has more than {MOST_ROUTES} routes: the largest by the past days are told apart, the "
            f"others are one, {OTHER}."
        )
    if today.many_models:
        found.append(
            f"There are more than {MOST_MODELS} models: the largest by the past days are told apart, the "
            f"others are one, {OTHER}."
        )
    return found
