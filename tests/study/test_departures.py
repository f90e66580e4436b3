"""The list of departures names what a study really does otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from sgpu.study.benchmark import Study
from sgpu.study.departures import departures


def topics(models: list[str], *datasets: dict[str, Any], **rest: Any) -> set[str]:
    study = Study.model_validate({"models": models, "datasets": list(datasets), **rest})
    return {departure.topic for departure in departures(study)}


IDEFICS, QWEN, SMALL = "idefics2-8b-chatty", "qwen2.5-vl-7b-instruct", "smollm2-135m-instruct"


def test_a_study_of_its_own_has_only_what_holds_everywhere() -> None:
    everywhere = {"answering prompt", "tie of votes", "no answer", "calibration error"}
    assert topics([SMALL], {"kind": "worldfacts", "n_train": 0}, methods=["self_consistency"]) == everywhere


def test_training_questions_and_short_answers_bring_theirs() -> None:
    assert "validation questions" in topics([SMALL], {"kind": "worldfacts"})
    assert "length of answers" in topics([SMALL], {"kind": "ok-vqa"})
    assert "length of answers" not in topics([SMALL], {"kind": "gsm8k"})


def test_a_base_model_and_its_instruct_version_are_told_apart() -> None:
    both = {"base model", "Instruct model"}
    assert both & topics(["llama-3.1-8b"], {"kind": "popqa"}) == {"base model"}
    assert both & topics(["llama-3.1-8b-instruct"], {"kind": "popqa"}) == {"Instruct model"}


@pytest.mark.parametrize(
    ("method", "brought"),
    [
        ("sgpu", {"GP inference", "unsafe predictions"}),
        ("global_sgpu", {"GP inference", "unsafe predictions", "pooled fit", "global classifier"}),
        ("predictive_entropy", {"log-probabilities"}),
        ("kernel_language_entropy", {"kernel language entropy"}),
        ("cos_eigenscore", {"Eigenscores"}),
        ("umpire", {"UMPIRE", "log-probabilities"}),
        ("saplma", {"probes"}),
    ],
)
def test_a_method_brings_its_departures(method: str, brought: set[str]) -> None:
    plain = topics([SMALL], {"kind": "worldfacts"}, methods=["self_consistency"])
    assert topics([SMALL], {"kind": "worldfacts"}, methods=[method]) - plain == brought


def test_a_pooled_fit_with_the_advised_points_departs_no_longer() -> None:
    assert "pooled fit" not in topics(
        [SMALL], {"kind": "worldfacts"}, methods=["global_sgpu"], classifier={"inducing": 256}
    )


@pytest.mark.parametrize(
    ("model", "topic"),
    [(IDEFICS, "Idefics2"), (QWEN, "repetition penalty"), (QWEN, "number format"), (QWEN, "image size")],
)
def test_a_model_brings_its_departures(model: str, topic: str) -> None:
    assert topic in topics([model], {"kind": "ok-vqa"})
    assert topic not in topics([SMALL], {"kind": "worldfacts"})


def test_data_sets_bring_theirs_once() -> None:
    study = {"models": [QWEN], "datasets": [{"kind": "vqa-rad"}, {"kind": "vqa-rad", "name": "again"}]}
    found = departures(Study.model_validate(study))
    assert len({(d.topic, d.choice) for d in found}) == len(found)
    sizes = [d for d in found if "1,793" in d.choice or "451" in d.choice]
    assert sizes, "VQA-RAD has fewer rows than the paper names"


def test_the_judge_is_named_only_where_a_model_judges() -> None:
    llm = {"name": "llm", "model": "llama-3.1-8b-instruct"}
    judged = topics([SMALL], {"kind": "triviaqa"}, judge=llm)
    assert {"8B judge", "judge's prompt", "judge's reading"} <= judged
    assert not {"8B judge", "judge's prompt"} & topics([SMALL], {"kind": "triviaqa"})
    assert "judge's prompt" not in topics([SMALL], {"kind": "triviaqa"}, judge={**llm, "guard": False})


def test_every_departure_says_what_and_why() -> None:
    from pathlib import Path

    from sgpu.study.benchmark import load_study

    studies = Path(__file__).resolve().parents[2] / "pipelines" / "studies"
    for name in ("paper.yaml", "paper_text.yaml"):
        found = departures(load_study(studies / name))
        assert len(found) > 5
        assert all(d.topic and d.paper and d.choice and d.why for d in found)
