"""What MLflow is told of a study: what was used, and the few numbers that a person looks for."""

from __future__ import annotations

from sgpu.report.study.record import SHOWN, settings_used, shown_metrics
from sgpu.study.benchmark import Cell, Study
from sgpu.tracking.base import flatten


def test_the_parameters_are_those_that_were_used_for_each_data_set() -> None:
    study = Study.model_validate(
        {
            "models": ["m"],
            "sampling": {"n": 7},
            "datasets": [
                {"kind": "gsm8k", "judge": {"name": "numeric"}},
                {"kind": "jsonl", "path": "q.jsonl", "name": "mine", "sampling": {"max_tokens": 5}},
            ],
        }
    )
    params = flatten(settings_used(study))
    for name in ("gsm8k", "mine"):
        used = study.sampling_of(Cell("m", name))
        for key in ("prompt", "max_tokens", "n"):
            assert params[f"datasets.{name}.sampling.{key}"] == str(getattr(used, key))
    assert params["datasets.mine.sampling.max_tokens"] == "5"
    assert [params[f"datasets.{name}.judge.name"] for name in ("gsm8k", "mine")] == ["numeric", "alias"]
    # What the study says beneath its data sets was used for none of them as it stands there.
    assert not [key for key in params if key.startswith(("sampling.", "judge."))]


def test_an_address_with_a_password_is_no_parameter() -> None:
    server = {"name": "m", "engine": "openai", "base_url": "https://me:secret@host/v1"}
    study = Study.model_validate({"models": [server], "datasets": [{"kind": "gsm8k"}]})
    assert "secret" not in str(settings_used(study))


def test_five_numbers_of_the_studys_own_method_and_the_auroc_of_each_are_shown() -> None:
    rows = [
        {"metric": metric, "method": method, "value": 0.5, "lo": 0.4, "hi": 0.6}
        for method in ("sgpu", "self_consistency")
        for metric in (*SHOWN, "ece_10", "selective_accuracy_80")
    ]
    shown = shown_metrics(rows, "sgpu")
    expected = [*((metric, "sgpu") for metric in SHOWN), ("auroc", "self_consistency")]
    assert sorted((row["metric"], row["method"]) for row in shown) == sorted(expected)
    assert not [row for row in shown if "lo" in row]
