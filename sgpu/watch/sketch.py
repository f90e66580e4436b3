"""A day of scores in a few numbers by model and route, small and mergeable: rows are never held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sgpu.errors import DataError, readable
from sgpu.fitted.profile import Floats, binned, shares_of
from sgpu.gp.representation import SHARES
from sgpu.hashing import sha256_hex
from sgpu.watch.group import NO_CHALLENGER, UNIT, Group, RowSample, keys_of, merged_group, sample_of, smallest

FORMAT = 2
# Names come from logs. Where there are more, the largest are kept and the others are counted as one.
MOST_MODELS = 32
MOST_ROUTES = 32  # of one model
# As many are held apart while the rows of a day come in; with more, the small ones are folded on the way.
MOST_GROUPS = 4096
OTHER = "(other)"
MOST_CHARACTERS = 120

NAMES = ("scorers", "encoders", "challengers", "wide")  # the sets of names in a sketch
Key = tuple[str | None, str | None]  # model and route; None: not known, or all of them


@dataclass(frozen=True)
class Sketch:
    """Groups of rows by (model, route), and who scored them (sha256 of models and encoders).

    ``wide`` are models whose smaller routes are one group, of route OTHER; with ``many_models`` the smaller
    models are one group (OTHER, OTHER). Counts of a group, sums in steps of 1 / UNIT: rows,
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
            **{names: sorted(getattr(self, names), key=_known_first) for names in NAMES},
            "many_models": self.many_models,
            "groups": [
                {"model": key[0], "route": key[1], **self.groups[key].to_json()}
                for key in sorted_keys(self.groups)
            ],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Sketch:
        """Raises DataError for what `to_json` did not write."""
        with readable("a sketch", "score the day again"):
            if content["format"] != FORMAT:
                raise DataError(
                    f"a sketch has format {ascii(content['format'])[:60]}, this code reads {FORMAT}; "
                    "score the day again"
                )
            names = {kind: frozenset(content[kind]) for kind in NAMES}
            groups = {(entry["model"], entry["route"]): Group.from_json(entry) for entry in content["groups"]}
            return cls(groups, **names, many_models=bool(content["many_models"]))


def merge(sketches: Iterable[Sketch]) -> Sketch:
    """The sketch of all rows of the given ones, in whatever order; of none, the empty one."""
    parts = list(sketches)
    return Sketch(
        _merged(pair for sketch in parts for pair in sketch.groups.items()),
        **{names: frozenset().union(*(getattr(sketch, names) for sketch in parts)) for names in NAMES},
        many_models=any(sketch.many_models for sketch in parts),
    )


def sketch_of_all(tables: Iterable[pa.Table], history: Callable[[], Iterable[Sketch]]) -> Sketch:
    """As `sketch_of`, of tables one after the other; `folded` by the history whenever it holds too much."""
    sketch = Sketch()
    for rows in tables:
        sketch = merge([sketch, sketch_of(rows)])
        if len(sketch.groups) > MOST_GROUPS:
            sketch = folded(sketch, history())
    return sketch


def folded(sketch: Sketch, history: Iterable[Sketch] = ()) -> Sketch:
    """The same rows in at most MOST_MODELS models of at most MOST_ROUTES routes; the rest of them are OTHER.

    Those with most rows in ``history`` are told apart first, then those with most rows here: a client that
    invents names takes no place from those that the days before have seen.
    """
    before: Counter[Key] = Counter()
    for day in history:
        before.update({key: group.rows for key, group in day.groups.items()})
    today = Counter({key: group.rows for key, group in sketch.groups.items()})
    models = _largest(_by_model(today), _by_model(before), MOST_MODELS)
    kept: set[Key] = set()
    for model in models:
        routes, past = (
            Counter({route: n for (m, route), n in rows.items() if m == model}) for rows in (today, before)
        )
        kept |= {(model, route) for route in _largest(routes, past, MOST_ROUTES)}
    return _gathered(sketch, models, kept)


def gathered_as(sketch: Sketch, today: Sketch) -> Sketch:
    """The same rows, with models and routes that ``today`` counts as OTHER counted so as well."""
    models = {model for model, _ in (today if today.many_models else sketch).groups}
    kept = {key for key in sketch.groups if key[0] not in today.wide or key in today.groups}
    return _gathered(sketch, models, kept)


def _by_model(rows: Counter[Key]) -> Counter[str | None]:
    by_model: Counter[str | None] = Counter()
    for (model, _), count in rows.items():
        by_model[model] += count
    return by_model


def _largest(today: Counter[str | None], before: Counter[str | None], most: int) -> set[str | None]:
    """The names of ``today`` that are told apart: all, or all but those that OTHER has to hold."""
    ranked = sorted(
        today.keys() - {OTHER}, key=lambda name: (-before[name], -today[name], *_known_first(name))
    )
    fits = len(today) <= most
    return set(ranked if fits else ranked[: most - 1])


def _gathered(sketch: Sketch, models: Container[str | None], kept: Container[Key]) -> Sketch:
    """Groups of other ``models``, and routes that are not ``kept``, as OTHER."""
    pairs = []
    wide, many = set(sketch.wide), sketch.many_models
    for key, group in sketch.groups.items():
        model = key[0]
        if model not in models:
            many, key = True, (OTHER, OTHER)
        elif key not in kept:
            wide, key = wide | {model}, (model, OTHER)
        pairs.append((key, group))
    return replace(sketch, groups=_merged(pairs), wide=frozenset(wide), many_models=many)


def _merged(groups: Iterable[tuple[Key, Group]]) -> dict[Key, Group]:
    by_key: dict[Key, list[Group]] = {}
    for key, group in groups:
        by_key.setdefault(key, []).append(group)
    return {key: merged_group(by_key[key]) for key in sorted_keys(by_key)}


def short_name(name: str | None) -> str | None:
    """A model or route as it is kept: a long one cut, with a hash so that two do not become one."""
    if name is None or len(name) <= MOST_CHARACTERS:
        return name
    return f"{name[: MOST_CHARACTERS - 9]}…{sha256_hex(name)[:8]}"


def sorted_keys(keys: Iterable[Key]) -> list[Key]:
    """By model and route; what is not known last."""
    return sorted(keys, key=lambda key: tuple(map(_known_first, key)))


def _known_first(name: str | None) -> tuple[bool, str]:
    return name is None, name or ""


# The columns of the score table that are counted or summed.
COUNTED = (
    "probability", "top_eigenvalue_share", "unsafe", "n_used", "label", "accepted", "shadow_probability",
    "shadow_unsafe",
)  # fmt: skip
Columns = dict[str, NDArray[Any]]


def sketch_of(scores: pa.Table) -> Sketch:
    """The sketch of rows of the score table; DataError for a probability or share outside [0, 1].

    Rows without a spectrum, which were read by agreement, are neither in the sample nor in the histogram of
    shares.
    """
    columns = {name: _numbers(scores, name) for name in COUNTED}
    for name in ("probability", "top_eigenvalue_share", "shadow_probability"):
        _check(columns[name], name, optional=name != "probability")
    keys = keys_of(scores["request_id"].to_pylist())
    groups: dict[Key, Group] = {}
    for key, rows in _rows_by_key(scores).items():
        own = {name: column[rows] for name, column in columns.items()}
        groups[key] = _group(own, _sample(scores, keys, columns["probability"], rows))
    return Sketch(
        {key: groups[key] for key in sorted_keys(groups)},
        _distinct(scores, "scorer_sha256"),
        _distinct(scores, "encoder_sha256"),
        _distinct(scores, "shadow_scorer"),
    )


def _numbers(scores: pa.Table, name: str) -> Floats:
    """A column as float64, NaN where it is null."""
    values = pc.cast(scores[name], pa.float64()).combine_chunks()
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)


def _check(values: Floats, name: str, optional: bool) -> None:
    # Written so that NaN counts as bad: every comparison with it is false.
    bad = ~((values >= 0) & (values <= 1 + 1e-9))
    if optional:
        bad &= ~np.isnan(values)
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"{name} of row {row} of the scores is {values[row]}, outside [0, 1]; "
            "rows without a score belong in the quarantine"
        )


def _distinct(scores: pa.Table, name: str) -> frozenset[str]:
    return frozenset(value for value in pc.unique(scores[name]).to_pylist() if value is not None)


def _rows_by_key(scores: pa.Table) -> dict[Key, NDArray[np.intp]]:
    """The rows of each model and route."""
    names = [[short_name(value) for value in scores[name].to_pylist()] for name in ("model", "route")]
    places: dict[Key, list[int]] = {}
    for row, key in enumerate(zip(*names, strict=True)):
        places.setdefault(key, []).append(row)
    return {key: np.array(rows) for key, rows in places.items()}


def _sample(
    scores: pa.Table, keys: NDArray[np.uint64], probability: Floats, rows: NDArray[np.intp]
) -> RowSample:
    rows = rows[scores["spectrum"].is_valid().to_numpy()[rows]]
    chosen = rows[smallest(keys[rows])]
    spectra = scores["spectrum"].take(pa.array(chosen)).to_pylist()
    shares = np.empty((len(chosen), SHARES))
    lengths = np.array([len(values) for values in spectra])
    for n in np.unique(lengths):
        own = np.flatnonzero(lengths == n)
        shares[own] = shares_of(np.array([spectra[row] for row in own], dtype=np.float64))
    return sample_of(keys[chosen], probability[chosen], shares)


def _group(own: Columns, sample: RowSample) -> Group:
    probability, shadow = own["probability"], own["shadow_probability"]
    top_share = own["top_eigenvalue_share"]
    has_label, has_shadow, has_rule = (
        ~np.isnan(values) for values in (own["label"], shadow, own["accepted"])
    )
    label = np.where(has_label, own["label"], 0.0)
    error, shadow_error = (probability - label) ** 2, (shadow - label) ** 2
    accepted, paired = own["accepted"] == 1, has_label & has_shadow
    gain = (error - shadow_error)[paired]
    counted = {
        "rows": probability >= 0,
        "unsafe": own["unsafe"] == 1,
        "decided": has_rule,
        "accepted": accepted,
        "shadow_rows": has_shadow,
        "shadow_unsafe": has_shadow & (own["shadow_unsafe"] == 1),
        "labelled": has_label,
        "right": has_label & (label == 1),
        "accepted_labelled": accepted & has_label,
        "accepted_wrong": accepted & has_label & (label == 0),
        "paired": paired,
    }
    summed = {
        "probability": probability,
        "shadow_probability": shadow[has_shadow],
        "squared_error": error[has_label],
        "shadow_squared_error": shadow_error[paired],
        "gain": gain,
        "gain_squared": gain**2,
    }
    counts = {name: int(np.count_nonzero(mask)) for name, mask in counted.items()}
    counts |= {name: int(np.rint(values * UNIT).astype(np.int64).sum()) for name, values in summed.items()}
    return Group(
        sample,
        Counter(counts),
        Counter(binned(probability).tolist()),
        Counter(binned(top_share[~np.isnan(top_share)]).tolist()),
        Counter(own["n_used"].astype(np.int64).tolist()),
        _cells(probability[has_label], shadow[has_label], label[has_label]),
    )


def _cells(probability: Floats, shadow: Floats, label: Floats) -> Counter[tuple[int, int, int]]:
    """Labelled rows by bin of the champion, bin of the challenger, and label."""
    present = ~np.isnan(shadow)
    other = np.where(present, binned(np.where(present, shadow, 0.0)), NO_CHALLENGER)
    columns = (binned(probability), other, label.astype(np.int64))
    return Counter(zip(*(column.tolist() for column in columns), strict=True))
