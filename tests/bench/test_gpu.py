"""The rates of `make gpu` are names that the planner has; the suite runs at small size on the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench.gpu import CPU, Rate, measured, write
from sgpu.plan.rates import load_rates
from sgpu.study.file import read_tree


def test_what_is_written_is_read_by_the_planner_as_measured(tmp_path: Path) -> None:
    rates = [
        Rate("vllm, start", 1.5, "minutes", "to the first token", "vllm.start_minutes"),
        Rate("vllm, prefill", 5000.0, "tokens/s", "8.03e9 parameters", "vllm.flops_share", 0.41),
        Rate("vllm, decode", 9000.0, "tokens/s", "8.03e9 parameters", "vllm.decode_tokens_per_s", 0.1),
        Rate("encoder, 1024", 900.0, "texts/s", "short", "encoding.large_texts_per_s"),
        Rate("entailment", 4000.0, "pairs/s", 'a "note": with marks', "entailment.pairs_per_s"),
        Rate("eigenvalues", 1e6, "spectra/s", "CPU"),
    ]
    _, planner = write(rates, tmp_path, "NVIDIA H100 80GB HBM3", ["vllm"])
    found = load_rates(planner)
    assert planner.name == "nvidia-h100-80gb-hbm3.rates.yaml"
    assert (found.vllm.flops_share, found.vllm.decode_tokens_per_s) == (0.41, 9000.0)
    assert (found.vllm.start_minutes, found.encoding.large_texts_per_s) == (1.5, 900.0)
    assert read_tree(planner)["entailment"]["pairs_per_s"] == {
        "value": 4000.0,
        "origin": "measured",
        "note": 'NVIDIA H100 80GB HBM3: a "note": with marks',
    }
    assert found.encoding.texts_per_s == load_rates().encoding.texts_per_s


def test_the_suite_runs_on_the_cpu(tmp_path: Path) -> None:
    rates = list(measured(replace(CPU, prompts=1, texts=8, pairs=4), tmp_path, vllm=False))
    assert all(rate.value > 0 and rate.share is None for rate in rates)
    assert [rate.planner for rate in rates if rate.planner] == [
        "transformers.start_minutes", "encoding.texts_per_s", "entailment.pairs_per_s",
    ]  # fmt: skip
