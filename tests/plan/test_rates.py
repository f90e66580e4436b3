"""Rates: defaults say where they come from, a file and --set replace them, typos are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgpu.errors import UsageError
from sgpu.plan.rates import VALUES, load_rates
from sgpu.runtime.runner import PoolRecord
from sgpu.study.file import read_tree


def test_every_shipped_rate_says_where_it_comes_from() -> None:
    rates = [rate for section in read_tree(VALUES).values() for rate in section.values()]
    assert {rate["origin"] for rate in rates} <= {"measured", "published", "derived", "guess"}
    assert all(rate["note"] for rate in rates)


def test_a_file_replaces_a_rate_and_may_name_its_origin(tmp_path: Path) -> None:
    file = tmp_path / "rates.yaml"
    file.write_text("vllm: {images_per_s: {value: 45, origin: measured}, sequences_per_s: 700}\n")
    rates = load_rates(file)
    assert (rates.vllm.images_per_s, rates.vllm.sequences_per_s) == (45, 700)
    assert rates.vllm.flops_share == load_rates().vllm.flops_share


def test_an_override_goes_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "rates.yaml"
    file.write_text("gpu: {usd_per_gpu_hour: 4.5}\n")
    assert load_rates(file, ["rates.gpu.usd_per_gpu_hour=2"]).gpu.usd_per_gpu_hour == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rates.judge.distinct_shar=0.5", "Did you mean 'distinct_share'"),
        ("rates.jugde.distinct_share=0.5", "Did you mean 'judge'"),
        ("rates.judge.distinct_share=1.5", "less than or equal to 1"),
        ("rates.vllm.images_per_s=0", "greater than 0"),
        ("rates.vllm.images_per_s=many", "many"),
        ("rates.gpu=3", "gpu"),
        ("rates.x.y=[", "rates.x.y.*the value is not YAML"),
        ("rates.gpu.peak_flops=2026-13-40", "rates.gpu.peak_flops.*the value is not YAML"),
    ],
)
def test_a_wrong_override_names_value_and_remedy(override: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_rates(None, [override])


def test_an_absent_rates_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.yaml"):
        load_rates(tmp_path / "none.yaml")


def test_a_run_without_pools_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"resolved": {}}')
    with pytest.raises(UsageError, match="has no `pools`: give the run"):
        load_rates(tmp_path / "run.json")


def test_a_measured_pool_with_a_negative_time_is_named(tmp_path: Path) -> None:
    record = vars(PoolRecord("sample", "m", 1, 140, 2, 0.0, 2, 53.3, -18.4, 1, 40.7))
    (tmp_path / "run.json").write_text(json.dumps({"pools": [record]}))
    with pytest.raises(UsageError, match=r"pools\.0\.busy_seconds must be at least 0"):
        load_rates(tmp_path / "run.json")
