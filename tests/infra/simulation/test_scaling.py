"""Sizes and costs against arithmetic by hand, and the page against the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.simulation.__main__ import BEGIN, END, report, written_into
from infra.simulation.scaling import (
    FILES,
    fault_costs,
    load_assumptions,
    one_after_the_other,
    scale,
    stage_loads,
)
from sgpu.errors import UsageError
from sgpu.plan.rates import Positive, Rate, load_rates

PAGE = Path(__file__).resolve().parents[3] / "infra" / "SCALING.md"
MILLION = 10**6


def test_the_page_holds_what_the_program_prints() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == written_into(text, report(load_rates(), load_assumptions(), 0), PAGE)


def test_the_parts_add_up_to_the_wall_clock() -> None:
    for gpus in (1, 64, 512):
        one = scale(MILLION, gpus, load_rates(), load_assumptions(), 0)
        assert sum(one.parts.values()) == pytest.approx(one.wall_seconds, rel=1e-3)


def test_work_of_gpus_does_not_depend_on_how_many_there_are() -> None:
    eight, many = (scale(MILLION, gpus, load_rates(), load_assumptions(), 0) for gpus in (8, 512))
    assert eight.gpu_seconds == pytest.approx(many.gpu_seconds)


def test_cutting_a_long_stage_changes_its_time_little(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = scale(10 * MILLION, 8, load_rates(), load_assumptions(), 0)
    monkeypatch.setattr("infra.simulation.scaling.SIMULATED_BLOCKS", 10**9)
    whole = scale(10 * MILLION, 8, load_rates(), load_assumptions(), 0)
    assert cut.wall_seconds == pytest.approx(whole.wall_seconds, rel=0.03)


def test_the_price_is_that_of_the_paid_hours() -> None:
    rates = load_rates().changed({"gpu.usd_per_gpu_hour": 7.0})
    one = scale(MILLION, 8, rates, load_assumptions(), 0)
    assert one.usd == pytest.approx(one.paid_seconds / 3600 * 8 * 7)


def test_memory_that_does_not_fit_is_the_first_bottleneck() -> None:
    small, large = (scale(sets, 512, load_rates(), load_assumptions(), 0) for sets in (10**8, 10**9))
    assert large.driver_gib == pytest.approx(1e9 * 172 / 2**30)
    assert large.bottlenecks[0] == "memory of the driver"
    assert small.bottlenecks[0] != "memory of the driver"


def test_engines_that_start_hold_up_a_small_study_on_many_gpus() -> None:
    assert scale(MILLION, 512, load_rates(), load_assumptions(), 0).bottlenecks[0] == "engine starts"


def test_files_in_object_storage_cost_a_read_each_eight_at_a_time() -> None:
    blocks = sum(load.blocks for load in stage_loads(MILLION, 64, load_rates(), load_assumptions()))
    assumed = load_assumptions().model_copy(
        update={"file_readers": Positive(value=8, origin="given", note="of this test")}
    )
    one = scale(MILLION, 64, load_rates(), assumed, 0)
    assert one.parts[FILES] == pytest.approx(blocks * 0.020 / 8)
    assert FILES not in one.bottlenecks[:2]


def test_files_become_the_bottleneck_where_they_are_slow_to_read() -> None:
    def scale_with(ms: float) -> Any:
        rate = Rate(value=ms, origin="guess", note="of this test")
        assumed = load_assumptions().model_copy(update={"object_store_file_ms": rate})
        return scale(100 * MILLION, 512, load_rates(), assumed, 0)

    found, local = scale_with(20_000), scale_with(0)
    assert found.bottlenecks[0] == FILES
    assert found.wall_seconds - local.wall_seconds == pytest.approx(found.parts[FILES])


def test_the_drivers_order_is_a_chain() -> None:
    loads = one_after_the_other(stage_loads(MILLION, 8, load_rates(), load_assumptions()))
    assert [load.after for load in loads] == [(), *((load.name,) for load in loads[:-1])]


def test_stragglers_and_losses_cost_time() -> None:
    found = fault_costs(MILLION, 64, load_rates(), load_assumptions(), 0)
    costs = {title: seconds for title, seconds, _ in found}
    assert costs["no faults"] < costs["and some blocks straggle"] < costs["nodes are lost ten times as often"]


def test_the_same_seed_prints_the_same_tables() -> None:
    assert report(load_rates(), load_assumptions(), 3) == report(load_rates(), load_assumptions(), 3)


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(UsageError, match=r"page\.md has no marks"):
        written_into(f"{BEGIN} only", "tables", Path("page.md"))
    assert written_into(f"a {BEGIN} old {END} b", "new", Path("p")) == f"a {BEGIN}\n\nnew\n\n{END} b"
