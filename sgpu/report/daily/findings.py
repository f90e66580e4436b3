"""The verdict in words: what turned the day yellow or red, and every test beside its bounds."""

from __future__ import annotations

from sgpu.report.look import numbers
from sgpu.visible import visible
from sgpu.watch.comparisons import ACCEPTED_ERRORS, MEAN, MEASURES, OF_ANSWERS, POOLED_MEAN, UNSAFE
from sgpu.watch.verdict import LEVELS, Finding, Level, Verdict, worst

AGAINST = {"history": "past days", "training": "training", "rule": "the model's rule"}
WORDS: dict[Level, str] = {"green": "Green", "grey": "Not tested", "yellow": "Yellow", "red": "Red"}
_MEANINGS: dict[Level, str] = {
    "green": "no finding",
    "grey": "no finding, but too little to compare",
    "yellow": "worth a look",
    "red": "look before these scores are used",
}
SHOWN = 8  # reasons at the top of the page
# Effects that are shares of rows; the others are pure numbers.
_SHARES = {UNSAFE, ACCEPTED_ERRORS}


def meaning(verdict: Verdict) -> str:
    """Return what the level of a day means, and how many tests that is said after."""
    text, (made, tests) = _MEANINGS[verdict.level], verdict.n_tests
    if not tests:
        return text
    if verdict.level == "green":
        return f"{text} in the {made} of {tests} tests that could be made"
    return f"{text}; {made} of {tests} tests could be made"


def named(model: str | None, route: str | None) -> tuple[str, str]:
    """Model and route as they are shown: control characters made visible, not yet escaped."""
    return (
        "no model named" if model is None else visible(model),
        "no route named" if route is None else visible(route),
    )


def where(finding: Finding) -> tuple[str, str]:
    """Model and route of a finding."""
    return ("all rows", "") if finding.everything else named(finding.model, finding.route)


def subject(finding: Finding) -> str:
    """Both in one text."""
    return " · ".join(part for part in where(finding) if part)


def explain_verdict(verdict: Verdict) -> list[tuple[Level, str]]:
    """Return what is yellow or red, worst first: a sentence for each model and route, and its reference.

    Of a grey day, what its tests lack.
    """
    if verdict.level == "grey":
        lacking = [finding for finding in verdict.findings if finding.measure in OF_ANSWERS]
        whole = [finding for finding in lacking if finding.everything] or lacking
        return [("grey", f"{text}.") for text in dict.fromkeys(map(_lacking, whole))][:SHOWN]
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in verdict.findings:
        if finding.level not in ("green", "grey"):
            # What was not tested has a text of its own.
            kind = (*where(finding), finding.reference) if finding.tested else (finding.text,)
            groups.setdefault(kind, []).append(finding)
    sentences = [(worst(test.level for test in group), _sentence(group)) for group in groups.values()]
    sentences.sort(key=lambda sentence: -LEVELS.index(sentence[0]))
    more = len(sentences) - SHOWN
    if more > 0:
        sentences[SHOWN:] = [(sentences[SHOWN][0], f"{more} more, in the table of tests below.")]
    return sentences


def _lacking(finding: Finding) -> str:
    return f"{subject(finding)}, against {AGAINST[finding.reference]}: {why(finding)}"


def why(finding: Finding) -> str:
    """Why it was not tested."""
    return finding.text.rpartition("not tested, ")[2]


def _sentence(group: list[Finding]) -> str:
    if not group[0].tested:
        return f"{group[0].text}."
    return f"{subject(group[0])}, against {AGAINST[group[0].reference]}: {'; '.join(map(_move, group))}."


def _move(finding: Finding) -> str:
    bound = finding.red if finding.level == "red" else finding.yellow
    return f"{MEASURES[finding.measure]} {seen(finding)} ({finding.level} from {effect(bound, finding)})"


def tests(verdict: Verdict) -> list[Finding]:
    """Every test that was made: the worst first, then in the order of the verdict."""
    made = [finding for finding in verdict.findings if finding.tested]
    return sorted(made, key=lambda finding: -LEVELS.index(finding.level))


def untested(verdict: Verdict) -> list[Finding]:
    """Tests that were not possible."""
    return [finding for finding in verdict.findings if finding.measure in MEASURES and not finding.tested]


def intake(verdict: Verdict) -> list[tuple[Level, str]]:
    """What was looked at without a test."""
    return [(finding.level, finding.text) for finding in verdict.findings if finding.measure not in MEASURES]


def seen(finding: Finding) -> str:
    """The effect; of a mean with its direction."""
    if finding.measure in (MEAN, POOLED_MEAN) and finding.statistic is not None:
        return numbers.format_signed(finding.statistic)
    return effect(finding.effect, finding)


def statistic(finding: Finding) -> str:
    """What its p-value is of, in four digits."""
    if finding.statistic is None:
        return numbers.UNDEFINED
    return f"{finding.statistic:.4g}".replace("-", "−")


def effect(value: float | None, finding: Finding) -> str:
    """A value in the unit of the finding's effect."""
    return numbers.percent(value) if finding.measure in _SHARES else numbers.decimals(value)
