from __future__ import annotations

import pytest

from sgpu.report.aggregate.tables import (
    GroupedMeasure,
    MethodTable,
    Row,
    Value,
    by_family,
    columns_for,
    ranked_rows,
)


def rows(values: dict[str, float | Value], metric: int = 0) -> list[Row]:
    """One column of values, as ranked rows."""
    found = {name: value if isinstance(value, Value) else Value(value) for name, value in values.items()}
    return ranked_rows(list(found), [columns_for([""])[metric]], lambda method, _: found[method])


def marks(values: dict[str, float | Value], metric: int = 0) -> list[str]:
    return [row.entries[0].score.mark for row in rows(values, metric)]


def test_best_and_second_are_marked() -> None:
    assert marks({"a": 0.7, "b": 0.9, "c": 0.8}) == ["", "best", "second"]


def test_the_lowest_ece_is_best() -> None:
    assert marks({"a": 0.1, "b": 0.3, "c": 0.2}, metric=2) == ["best", "", "second"]


def test_all_of_a_tie_are_best_and_there_is_no_second() -> None:
    assert marks({"a": 0.75, "b": 0.7501, "c": 0.74}) == ["best", "best", ""]


@pytest.mark.parametrize(("value", "printed"), [(0.7565, "0.757"), (0.2375, "0.238"), (0.70349, "0.703")])
def test_halves_are_printed_rounded_up(value: float, printed: str) -> None:
    assert rows({"a": value})[0].entries[0].score.text == printed


def test_a_missing_mean_is_never_marked_and_says_over_how_many_cells() -> None:
    found = rows({"a": Value(None, n=23, of=24), "b": 0.5, "c": 0.6})
    assert [row.entries[0].score.mark for row in found] == ["", "second", "best"]
    assert found[0].entries[0].score.text == "in 23 of 24 cells"


@pytest.mark.parametrize(("p", "significant"), [(None, False), (0.049, True), (0.05, False), (0.9, False)])
def test_a_star_needs_a_paired_test_below_the_level(p: float | None, significant: bool) -> None:
    assert rows({"a": Value(0.9, p=p)})[0].entries[0].significant is significant


def test_a_difference_needs_the_same_cells() -> None:
    same, other = rows({"a": Value(0.9, published=0.8), "b": Value(0.9, published=0.8, comparable=False)})
    assert same.entries[0].difference == pytest.approx(0.1)
    assert other.entries[0].difference is None


def test_families_stand_in_the_order_of_the_paper_and_unknown_methods_last() -> None:
    blocks = by_family(rows({"mine": 0.1, "SGPU": 0.9, "SE": 0.5, "log_perplexity": 0.4}))
    assert [(block.title, [row.method for row in block.rows]) for block in blocks] == [
        ("Training-free", ["SE", "log_perplexity"]),
        ("Trained", ["SGPU"]),
        ("Other", ["mine"]),
    ]


def test_the_columns_of_one_metric_keep_their_groups_and_entries() -> None:
    def look_up(method: str, column: GroupedMeasure) -> Value:
        return Value({"m": 0.1, "n": 0.2}[column.group] + (0.5 if column.name == "ece" else 0))

    columns = columns_for(["m", "n"])
    table = MethodTable("t", "T", "", columns, by_family(ranked_rows(["SE"], columns, look_up)))
    part = table.only("ece")
    assert [column.group for column in part.columns] == ["m", "n"]
    assert [entry.value for entry in part.entries()] == pytest.approx([0.6, 0.7])
    assert table.groups == [("m", 3), ("n", 3)]
