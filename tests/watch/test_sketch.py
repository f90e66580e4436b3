"""The sketch of parts is the sketch of the whole, and it says what the rows say."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgpu.errors import DataError
from sgpu.fitted.profile import shares_of
from sgpu.scoring.tables import SCORES
from sgpu.watch import group as group_module
from sgpu.watch import sketch as sketch_module
from sgpu.watch.sketch import OTHER, Sketch, folded, merge, sketch_of
from tests.watch.made_scores import scores, table, without_spectra

SHARE = st.floats(0, 1)
MAYBE = st.none() | st.booleans()
NAME = st.sampled_from(["a", "b", "c", None])


@st.composite
def row(draw: st.DrawFn) -> dict[str, Any]:
    n = draw(st.integers(2, 4))
    eigenvalues = sorted(draw(st.lists(st.floats(0.01, 1), min_size=n, max_size=n)), reverse=True)
    spectrum = [value * n / sum(eigenvalues) for value in eigenvalues]
    shadow = draw(st.none() | SHARE)
    return {
        # Few ids, so that some stand twice: a table never has that, a sample has to be settled even so.
        "request_id": str(draw(st.integers(0, 30))),
        "model": draw(NAME),
        "route": draw(NAME),
        "n_used": n,
        "probability": draw(SHARE),
        "unsafe": draw(st.booleans()),
        "spectrum": spectrum,
        "top_eigenvalue_share": min(spectrum[0] / n, 1.0),
        "label": draw(st.none() | st.integers(0, 1)),
        "accepted": draw(MAYBE),
        "scorer_sha256": draw(st.sampled_from(["s1", "s2"])),
        "encoder_sha256": "e",
        "shadow_probability": shadow,
        "shadow_unsafe": None if shadow is None else draw(st.booleans()),
        "shadow_scorer": None if shadow is None else "c",
    }


ROWS = st.lists(row(), max_size=25)


def made(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(
        [{**dict.fromkeys(SCORES.schema.names), **one} for one in rows], SCORES.schema
    )


@pytest.fixture(scope="module", autouse=True)
def small_bounds() -> Iterator[None]:
    """So small that the generated rows reach them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketch_module, "MOST_MODELS", 3)
        patch.setattr(sketch_module, "MOST_ROUTES", 2)
        patch.setattr(group_module, "SAMPLED", 4)
        yield


@settings(max_examples=150, deadline=None)
@given(ROWS, ROWS, ROWS)
def test_the_sketch_of_parts_is_that_of_the_whole_in_any_order(
    one: list[dict[str, Any]], two: list[dict[str, Any]], three: list[dict[str, Any]]
) -> None:
    whole = sketch_of(made([*one, *two, *three]))
    a, b, c = (sketch_of(made(rows)) for rows in (one, two, three))
    for merged in (merge([a, b, c]), merge([c, merge([b, a])]), sketch_of(made([*three, *one, *two]))):
        assert merged == whole and folded(merged) == folded(whole)
        assert json.dumps(merged.to_json()) == json.dumps(whole.to_json())


@settings(max_examples=80, deadline=None)
@given(ROWS)
def test_a_sketch_comes_back_from_json_as_it_was(rows: list[dict[str, Any]]) -> None:
    sketch = sketch_of(made(rows))
    assert Sketch.from_json(json.loads(json.dumps(sketch.to_json()))) == sketch


def test_two_different_days_have_different_sketches() -> None:
    assert sketch_of(scores(5, 0)) != sketch_of(scores(5, 1))
    assert sketch_of(scores(5, 0)) == sketch_of(scores(5, 0))


def test_counts_and_means_are_those_of_the_rows() -> None:
    rows = scores(500, 3, labelled=0.5, challenger_noise=1.0, cut=0.7, sizes=(5, 20))
    group = sketch_of(rows).total()
    frame = {name: np.array(rows[name].to_pylist(), dtype=object) for name in rows.column_names}
    p, shadow = frame["probability"].astype(float), frame["shadow_probability"].astype(float)
    has_label = np.array([value is not None for value in frame["label"]])
    y = frame["label"][has_label].astype(float)
    assert group.rows == 500 and group.counts["labelled"] == has_label.sum()
    assert group.mean_probability == pytest.approx(p.mean(), abs=1e-9)
    assert group.unsafe_share == frame["unsafe"].astype(bool).mean()
    assert group.share("accepted", "decided") == (p >= 0.7).mean()
    assert group.counts["accepted_wrong"] == ((p[has_label] >= 0.7) & (y == 0)).sum()
    brier, other = ((p[has_label] - y) ** 2).mean(), ((shadow[has_label] - y) ** 2).mean()
    assert group.mean("squared_error", "labelled") == pytest.approx(brier, abs=1e-9)
    assert group.mean("shadow_squared_error", "paired") == pytest.approx(other, abs=1e-9)
    assert group.mean("gain", "paired") == pytest.approx(brier - other, abs=1e-9)
    assert group.sizes == {n: int((frame["n_used"] == n).sum()) for n in (5, 20)}
    np.testing.assert_array_equal(group.histogram, np.histogram(p, np.linspace(0, 1, 51))[0])


def test_the_sample_is_of_the_smallest_hashes_with_their_probabilities_and_shares() -> None:
    rows = scores(50, 1, sizes=(3, 30))
    ids = rows["request_id"].to_pylist()
    order = sorted(range(50), key=lambda i: hashlib.sha256(ids[i].encode()).digest())[:4]
    sample = sketch_of(rows).total().sample
    assert sample.probability.tolist() == [rows["probability"][i].as_py() for i in order]
    expected = [shares_of(np.array([rows["spectrum"][i].as_py()]))[0] for i in order]
    np.testing.assert_allclose(sample.shares, expected, atol=0.5 / 65535)


def test_rows_without_a_spectrum_count_in_all_but_what_spectra_say() -> None:
    rows = scores(60, 3)
    whole, group = sketch_of(rows).total(), sketch_of(without_spectra(rows, 20)).total()
    alone = sketch_of(rows.slice(20)).total()
    assert (group.sample, group.top_share) == (alone.sample, alone.top_share)
    assert (group.counts, group.probability, group.sizes) == (whole.counts, whole.probability, whole.sizes)


def test_of_too_many_routes_the_largest_is_kept_and_another_model_keeps_its_own() -> None:
    many = scores(60, 0, models=("wide",), routes=("a", "b", "b", "c", None))
    few = scores(60, 1, models=("narrow",), routes=("a", "b"))
    sketch = merge([sketch_of(many), sketch_of(few)])
    found = folded(sketch)
    assert set(found.groups) == {("wide", "b"), ("wide", OTHER), ("narrow", "a"), ("narrow", "b")}
    assert found.wide == {"wide"} and not found.many_models
    assert found.total() == sketch.total() and folded(found) == found


def test_the_days_before_decide_which_routes_are_kept() -> None:
    today = sketch_of(scores(90, 0, routes=("new", "new", "old", "other")))
    before = sketch_of(scores(30, 1, routes=("old",)))
    assert set(folded(today, [before]).groups) == {("m", "old"), ("m", OTHER)}
    assert set(folded(today).groups) == {("m", "new"), ("m", OTHER)}


def test_of_too_many_models_the_largest_are_kept() -> None:
    found = folded(sketch_of(scores(90, 0, models=("a", "b", "b", "c", "c", "d"))))
    assert set(found.groups) == {("b", "r"), ("c", "r"), (OTHER, OTHER)}
    assert found.many_models and found.rows == 90


def test_long_names_are_cut_but_stay_apart() -> None:
    names = ("x" * 500 + "1", "x" * 500 + "2")
    found = sketch_of(scores(20, 0, models=names))
    assert len(found.groups) == 2
    assert all(len(model or "") <= sketch_module.MOST_CHARACTERS for model, _ in found.groups)


def test_an_empty_table_gives_an_empty_sketch() -> None:
    assert sketch_of(made([])) == Sketch() == merge([])
    assert Sketch().total().mean_probability is None


@pytest.mark.parametrize("value", [float("nan"), -0.1, 1.5])
def test_a_probability_that_is_none_is_an_error_that_names_its_row(value: float) -> None:
    rows = table(
        2, {"request_id": ["a", "b"], "probability": [0.5, value], "top_eigenvalue_share": [0.5, 0.5]}
    )
    with pytest.raises(DataError, match="probability of row 1"):
        sketch_of(rows)


@pytest.mark.parametrize(
    "change",
    [{"format": 9}, {"groups": [{"model": "a"}]}, {"groups": 3}, {"wide": None}, {"format": None}],
)
def test_what_is_no_sketch_is_a_data_error_with_a_remedy(change: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="score the day again"):
        Sketch.from_json({**sketch_of(scores(3)).to_json(), **change})


def test_a_damaged_sample_is_a_data_error() -> None:
    content = sketch_of(scores(3)).to_json()
    content["groups"][0]["sample"] = "AAAA!"
    with pytest.raises(DataError, match="sample"):
        Sketch.from_json(content)
