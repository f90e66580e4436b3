"""The one sentence that a reader takes away, the figures beside it, and what the methods are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sgpu.evaluation.delong import FEW_ROWS, few_rows_caution
from sgpu.methods.base import Method
from sgpu.report.look.numbers import count, percent
from sgpu.report.study.cells import CellView, LabelCounts
from sgpu.report.study.leaderboard import MethodRow
from sgpu.report.study.published import registered
from sgpu.report.table import ReportTable, Score


@dataclass(frozen=True)
class MethodNote:
    """A method in words; empty strings where it is not a registered method."""

    name: str
    title: str
    needs: str = ""
    sign: str = ""
    trained: str = ""
    reference: str = ""


def method_notes(names: Iterable[str]) -> dict[str, MethodNote]:
    """A note for every name, sorted; a name that the registry does not know stands for itself."""
    return {name: _note(name) for name in sorted(set(names))}


def _note(name: str) -> MethodNote:
    method = registered(name)
    if method is None:
        return MethodNote(name, name)
    if isinstance(method, Method):
        sign = "uncertainty, negated" if method.sign == "uncertainty" else "confidence"
        trained = "no"
    else:
        sign, trained = method.gives, f"yes, on {method.learns}"
    needs = ", ".join(sorted(need.replace("_", " ") for need in method.needs))
    return MethodNote(name, method.title, needs, sign, trained, method.reference)


def describe_best_method(
    cells: Sequence[CellView], overview: ReportTable | None, notes: Mapping[str, MethodNote]
) -> str:
    """Say which method is best, by how much, and on what."""
    if not cells:
        return "Nothing was measured: the study has no cell with results."
    rankings = [cell.ranking for cell in cells if cell.ranking]
    if len(rankings) == len(cells):
        reasons = " ".join(dict.fromkeys(ranking.why for ranking in rankings))
        order = "questions are ranked by scores that need no labels, the most doubtful first."
        return f"{reasons} {count(LabelCounts.over(cells).questions)} {order}"
    if overview is None:
        return _one_cell(cells[0], notes)
    last = zip(overview.measures, overview.rows[-1].scores, strict=True)
    means = {column.name: score.text for column, score in last if score.value is not None}
    if not means:
        return f"No method has an AUROC in all of the {len(cells)} cells. {_tested(cells)}"
    highest = next(iter(means.values()))  # methods come highest mean first
    best = [method for method, text in means.items() if text == highest]
    share = ""
    if len(best) == 1 and len(means) > 1:
        wins = sum(best[0] in _leaders(cell.board) for cell in cells)
        share = f"; it is ahead, or level, in {wins} of {len(cells)}"
    return (
        f"{_named(best, notes)} {'has' if len(best) == 1 else 'share'} the highest mean AUROC "
        f"over {len(cells)} cells, {highest}{share}. {_tested(cells)}"
        f"{_caution(cells)}"
    )


def describe_rejected_rows(rows: int, rejected: int) -> str:
    """Return a sentence on the rows of the sources that could not be used, or an empty string."""
    if not rejected:
        return ""
    return f" {count(rejected)} of {count(rows)} rows of the source could not be used; see Quarantine below."


def _one_cell(cell: CellView, notes: Mapping[str, MethodNote]) -> str:
    defined, best = _defined(cell.board), _leaders(cell.board)
    if not defined:
        return f"No method has a defined AUROC. {_tested([cell])}"
    verb = "ranks" if len(best) == 1 else "rank"
    reached = _with_interval(defined[0].auroc)
    text = f"{_named(best, notes)} {verb} right answers above wrong ones best: AUROC {reached}. "
    text += _tested([cell])
    if len(best) == 1 and len(defined) > 1:
        runner_up = defined[1]
        text += f" Next is {_named([runner_up.method], notes)} with {_with_interval(runner_up.auroc)}"
        text += "; the intervals overlap." if _overlap(defined[0].auroc, runner_up.auroc) else "."
    return text + _describe_vote(defined, best) + _caution([cell])


def _describe_vote(defined: Sequence[MethodRow], best: Sequence[str]) -> str:
    """Say that a vote does as well, with a space before it, if its interval overlaps the best method's."""
    vote = next((row for row in defined if row.method == "self_consistency"), None)
    if vote is None or vote.method in best or not _overlap(defined[0].auroc, vote.auroc):
        return ""
    return f" Counting equal answers does about as well here: {_with_interval(vote.auroc)}."


def _tested(cells: Sequence[CellView]) -> str:
    labels = LabelCounts.over(cells)
    if not labels.judged:
        return f"Of {count(labels.questions)} test questions, none has a label."
    return (
        f"Measured on {count(labels.questions)} test questions; of the {count(labels.judged)} with a label, "
        f"{percent(labels.rate)} were judged correct."
    )


def _caution(cells: Sequence[CellView]) -> str:
    """A word on an AUROC of few rows, with a space before it."""
    cautions = [
        text
        for cell in cells
        if (text := few_rows_caution(cell.labels.correct, cell.labels.judged - cell.labels.correct))
    ]
    if len(cells) == 1 or not cautions:
        return f" {cautions[0]}" if cautions else ""
    share = f"{len(cautions)} of {len(cells)} cells"
    return f" In {share} fewer than {FEW_ROWS} answers are right, or wrong: their AUROC is uncertain."


def _named(methods: Sequence[str], notes: Mapping[str, MethodNote]) -> str:
    titles = [notes[method].title for method in methods]
    return titles[0] if len(titles) == 1 else f"{', '.join(titles[:-1])} and {titles[-1]}"


def _with_interval(score: Score) -> str:
    return f"{score.text} {score.interval}".strip()


def _overlap(first: Score, second: Score) -> bool:
    return first.lo is not None and second.hi is not None and second.hi >= first.lo


def _defined(board: Sequence[MethodRow]) -> list[MethodRow]:
    """The methods with an AUROC, the highest first."""
    return [row for row in board if row.scores and row.auroc.value is not None]


def _leaders(board: Sequence[MethodRow]) -> list[str]:
    """The methods whose AUROC prints as the highest."""
    defined = _defined(board)
    return [row.method for row in defined if row.auroc.text == defined[0].auroc.text]
