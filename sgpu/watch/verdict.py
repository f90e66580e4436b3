"""What a day is judged to be: green, grey, yellow or red, with every finding that was looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sgpu.errors import DataError
from sgpu.watch.comparisons import OF_ANSWERS

# Grey: not tested. It is never green, and no reason to wake anybody: exit code 0, and no number of a level.
Level = Literal["green", "grey", "yellow", "red"]
LEVELS: tuple[Level, ...] = ("green", "grey", "yellow", "red")
EXIT_CODES: Mapping[Level, int] = {"green": 0, "grey": 0, "yellow": 4, "red": 5}
FLAGGED: tuple[Level, ...] = ("yellow", "red")
NUMBERS: Mapping[Level, int] = {"green": 0, "yellow": 1, "red": 2}


@dataclass(frozen=True)
class Finding:
    """One look at one thing. Where it was not tested it is grey, and numbers are None.

    ``model`` and ``route`` None with ``everything`` means all rows of the day. ``reference`` is "history",
    "training" or "" (no comparison). ``statistic`` is what the p-value is of, ``effect`` how large the
    change is, ``yellow`` and ``red`` the bounds on the effect. ``text`` says it in words.
    """

    level: Level
    measure: str
    text: str
    everything: bool = False
    model: str | None = None
    route: str | None = None
    reference: str = ""
    statistic: float | None = None
    effect: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    yellow: float | None = None
    red: float | None = None
    rows: int | None = None
    reference_rows: int | None = None

    @property
    def tested(self) -> bool:
        return self.p is not None


@dataclass(frozen=True)
class Verdict:
    """The level of a day: the worst of what was found, grey where its answers were not tested."""

    level: Level
    findings: tuple[Finding, ...] = ()

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.level]

    def to_json(self) -> dict[str, Any]:
        return {"level": self.level, "findings": [asdict(finding) for finding in self.findings]}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Verdict:
        """Raises DataError for what `to_json` did not write."""
        try:
            found = tuple(Finding(**finding) for finding in content["findings"])
            level: Level = content["level"]
        except (KeyError, TypeError) as error:
            raise DataError(f"a verdict cannot be read ({error}); score the day again") from error
        if {level, *(finding.level for finding in found)} - set(LEVELS):
            raise DataError(f"a verdict has a level other than {', '.join(LEVELS)}; score the day again")
        return cls(level, found)


def worst(levels: Iterable[Level]) -> Level:
    """The worst of them; green if there is none."""
    return max(levels, key=LEVELS.index, default="green")


def level_of_tests(findings: Iterable[Finding]) -> Level:
    """Of findings on the same rows: yellow or red if any is, else green if their answers were tested."""
    seen = list(findings)
    flagged = worst(finding.level for finding in seen if finding.level in FLAGGED)
    tested = any(finding.tested and finding.measure in OF_ANSWERS for finding in seen)
    return flagged if flagged in FLAGGED or tested else "grey"
