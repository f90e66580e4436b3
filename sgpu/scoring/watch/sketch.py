"""A day of scores in a few numbers by model and route, small and mergeable: rows are never held."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sgpu.errors import DataError
from sgpu.scoring.watch.group import Group, merged_group

FORMAT = 1
# Names come from logs. Where there are more, those of one model (or all) are counted as one.
MOST_MODELS = 32
MOST_ROUTES = 32  # of one model
MOST_CHARACTERS = 120

Key = tuple[str | None, str | None]  # model and route; None: not known, or all of them


@dataclass(frozen=True)
class Sketch:
    """Groups of rows by (model, route), and who scored them (sha256 of models and encoders).

    ``wide`` are models with more than MOST_ROUTES routes, which have one group of route None; with
    ``many_models`` there is one group for all. Counts of a group, sums in steps of 1 / UNIT: rows,
    probability, unsafe, decided and accepted (rows with a rule, and those it accepts), shadow_rows,
    shadow_probability and shadow_unsafe (the challenger), labelled, right, squared_error, accepted_labelled,
    accepted_wrong, and of rows that both models judged and that have a label: paired, shadow_squared_error,
    gain (squared error of the champion less the challenger's) and gain_squared.
    """

    groups: Mapping[Key, Group] = field(default_factory=dict)
    scorers: frozenset[str] = frozenset()
    encoders: frozenset[str] = frozenset()
    challengers: frozenset[str] = frozenset()
    wide: frozenset[str | None] = frozenset()
    many_models: bool = False

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups.values())

    def total(self) -> Group:
        """All rows as one group."""
        return merged_group(self.groups[key] for key in sorted_keys(self.groups))

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `from_json` gives back an equal sketch."""
        return {
            "format": FORMAT,
            "scorers": sorted(self.scorers),
            "encoders": sorted(self.encoders),
            "challengers": sorted(self.challengers),
            "wide": sorted(self.wide, key=lambda name: (name is None, name or "")),
            "many_models": self.many_models,
            "groups": [
                {"model": key[0], "route": key[1], **self.groups[key].to_json()}
                for key in sorted_keys(self.groups)
            ],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Sketch:
        """Raises DataError for what `to_json` did not write."""
        try:
            if content["format"] != FORMAT:
                raise DataError(
                    f"a sketch has format {ascii(content['format'])[:60]}, this code reads {FORMAT}; "
                    "score the day again"
                )
            return cls(
                {(entry["model"], entry["route"]): Group.from_json(entry) for entry in content["groups"]},
                frozenset(content["scorers"]),
                frozenset(content["encoders"]),
                frozenset(content["challengers"]),
                frozenset(content["wide"]),
                bool(content["many_models"]),
            )
        except (KeyError, TypeError) as error:
            raise DataError(f"a sketch cannot be read ({error}); score the day again") from error


def merge(sketches: Iterable[Sketch]) -> Sketch:
    """The sketch of all rows of the given ones, in whatever order; of none, the empty one."""
    parts = list(sketches)
    by_key: dict[Key, list[Group]] = {}
    for sketch in parts:
        for key, group in sketch.groups.items():
            by_key.setdefault(key, []).append(group)
    return bounded(
        by_key,
        Sketch(
            {},
            frozenset().union(*(sketch.scorers for sketch in parts)),
            frozenset().union(*(sketch.encoders for sketch in parts)),
            frozenset().union(*(sketch.challengers for sketch in parts)),
            frozenset().union(*(sketch.wide for sketch in parts)),
            any(sketch.many_models for sketch in parts),
        ),
    )


def bounded(by_key: Mapping[Key, list[Group]], known: Sketch) -> Sketch:
    """A sketch of these groups with at most MOST_MODELS x MOST_ROUTES of them; the rest as in ``known``."""
    many = known.many_models or len({model for model, _ in by_key}) > MOST_MODELS
    routes: dict[str | None, int] = {}
    for model, _ in by_key:
        routes[model] = routes.get(model, 0) + 1
    wide = known.wide | {model for model, count in routes.items() if count > MOST_ROUTES}
    gathered: dict[Key, list[Group]] = {}
    for (model, route), groups in by_key.items():
        key = (None, None) if many else (model, None) if model in wide else (model, route)
        gathered.setdefault(key, []).extend(groups)
    return Sketch(
        {key: merged_group(gathered[key]) for key in sorted_keys(gathered)},
        known.scorers,
        known.encoders,
        known.challengers,
        frozenset() if many else wide,
        many,
    )


def short_name(name: str | None) -> str | None:
    """A model or route as it is kept: a long one cut, with a hash so that two do not become one."""
    if name is None or len(name) <= MOST_CHARACTERS:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: MOST_CHARACTERS - 9]}…{digest}"


def sorted_keys(keys: Iterable[Key]) -> list[Key]:
    """By model and route; what is not known last."""
    return sorted(keys, key=lambda key: tuple((part is None, part or "") for part in key))
