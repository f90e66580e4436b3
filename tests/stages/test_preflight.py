"""What is wrong with a study is said before any work: settings of methods, models that cannot be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sgpu.errors import UsageError
from sgpu.methods.base import Method, configured_method
from sgpu.stages.preflight import check_study, hub_repositories, missing
from sgpu.study.benchmark import Study, load_study


def study_with(tmp_path: Path, methods: list[str], settings: dict[str, Any]) -> Study:
    (tmp_path / "answers.jsonl").write_text("{}\n")
    datasets = [{"kind": "responses", "path": str(tmp_path / "answers.jsonl")}]
    content = {"datasets": datasets, "methods": methods, "method_settings": settings}
    return Study.model_validate(content | {"entailment": {"backend": "alias"}})


def test_known_settings_pass_and_reach_the_method(tmp_path: Path) -> None:
    settings = {"kernel_language_entropy": {"t": 0.5}, "saplma": {"epochs": 3}}
    check_study(study_with(tmp_path, list(settings), settings))
    method = configured_method("kernel_language_entropy", {"t": 0.5})
    assert isinstance(method, Method) and method.settings["t"] == 0.5


@pytest.mark.parametrize(
    ("method", "settings", "said"),
    [
        (
            "kernel_language_entropy",
            {"time": 1},
            "unknown setting of method 'kernel_language_entropy': 'time'",
        ),
        ("predictive_entropy", {"t": 1}, "Known: none"),
        ("saplma", {"epoch": 3}, "Did you mean 'epochs'"),
        ("saplma", {"seed": 3}, "unknown setting"),
        ("saplma", {"epochs": 0}, "epochs is 0"),
        ("sgpu", {"kernel": "rbf"}, "stand under `classifier`"),
    ],
)
def test_other_settings_are_refused(tmp_path: Path, method: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        check_study(study_with(tmp_path, [method], {method: settings}))


def test_settings_of_a_method_that_is_not_asked_for_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`method_settings` names umpire, but `methods` does not"):
        study_with(tmp_path, ["sgpu"], {"umpire": {"alpha": 1}})


def test_a_probe_needs_the_position_that_it_reads(tmp_path: Path) -> None:
    content = {"datasets": [{"kind": "responses", "path": "x"}], "methods": ["sep"]}
    with pytest.raises(ValueError, match="'sep' reads position 'slt'"):
        Study.model_validate(content | {"hidden": {"positions": ["tbg"]}})


def study_of(models: list[dict[str, Any]], **settings: Any) -> Study:
    content = {"datasets": [{"kind": "worldfacts"}], "models": models, "methods": ["predictive_entropy"]}
    return Study.model_validate(content | settings)


@pytest.fixture
def empty_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No token, an empty cache, no GPU."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    monkeypatch.setattr("sgpu.models.machine.visible_gpus", list)
    monkeypatch.setattr("sgpu.stages.preflight.find_encoder", lambda name: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.usefixtures("empty_hub")
def test_gated_models_and_judges_without_a_token_are_named_together() -> None:
    agreement = {"model": "llama-3.3-70b-instruct"}
    judge = {"name": "llm", "model": "llama-3.1-70b-instruct", "agreement": agreement}
    study = study_of([{"name": "llama-3.1-8b-instruct"}, {"name": "qwen2.5-3b-instruct"}], judge=judge)
    with pytest.raises(UsageError, match="3 of 4 models") as said:
        check_study(study)
    for name in ("llama-3.1-8b-instruct", "llama-3.1-70b-instruct", "llama-3.3-70b-instruct"):
        assert f"- {name}: its weights are gated" in str(said.value)


@pytest.mark.usefixtures("empty_hub")
def test_everything_that_the_papers_study_lacks_is_said_at_once() -> None:
    study = load_study(Path(__file__).resolve().parents[2] / "pipelines" / "studies" / "paper.yaml")
    with pytest.raises(UsageError, match="things are missing before this study can start") as said:
        check_study(study)
    for what in (
        "- data set 'advqa' has no copy on the Hub: give `path`",
        "- data set 'vizwiz': the Hub has 4,319 labelled questions, and the study asks for 12,000",
        "- the entailment model 'microsoft/deberta-large-mnli' is not on this machine",
        "  - llama-3.1-8b-instruct: its weights are gated",
        "  - llama-3.1-70b-instruct: its weights are gated",  # judges test questions only
    ):
        assert what in str(said.value)


def test_three_things_that_were_not_fetched_are_named_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    parts = {"encoder": {"name": "modernbert-embed-large"}, "entailment": {"backend": "deberta"}}
    study = study_of([{"name": "qwen2.5-3b-instruct"}], methods=["semantic_entropy"], **parts)
    with pytest.raises(UsageError, match="3 things are missing") as said:
        check_study(study)
    for what in (
        "encoder 'modernbert-embed-large'",
        "microsoft/deberta-large-mnli",
        "Qwen/Qwen2.5-3B-Instruct",
    ):
        assert what in str(said.value)
    assert str(said.value).count("`sgpu fetch`") == 3


def test_the_repositories_of_a_study_are_those_that_it_loads(tmp_path: Path) -> None:
    study = study_of(
        [
            {"name": "smollm2-135m-instruct"},
            {"name": "mine", "card": "qwen2.5-3b-instruct", "revision": "abc"},
        ],
        datasets=[{"kind": "gsm8k", "revision": "def"}, {"kind": "popqa", "path": str(tmp_path)}],
        judge={"name": "llm", "model": "llama-3.1-8b-instruct"},
        sensitivity={"encoders": ["all-MiniLM-L12-v2"]},
        methods=["semantic_entropy"],
        entailment={"backend": "deberta"},
    )
    found = hub_repositories(study)
    assert {each.name: each.revision and each.revision[:3] for each in found} == {
        "Qwen/Qwen2.5-3B-Instruct": "abc",
        "meta-llama/Llama-3.1-8B-Instruct": "0e9",
        "microsoft/deberta-large-mnli": "729",
        "sentence-transformers/all-MiniLM-L12-v2": "c00",
        "openai/gsm8k": "def",
    }


@pytest.mark.usefixtures("empty_hub")
def test_a_part_of_vizwiz_that_the_hub_has_is_enough() -> None:
    model = {"models": ["qwen2.5-vl-3b-instruct"], "methods": ["self_consistency"]}
    sizes = {"kind": "vizwiz", "n_train": 3319, "n_test": 1000}
    assert missing(Study.model_validate({"datasets": [sizes], **model})) == []
    (error,) = missing(Study.model_validate({"datasets": [{**sizes, "n_test": 1001}], **model}))
    assert "n_train and n_test of at most 4,319" in str(error)


@pytest.mark.usefixtures("empty_hub")
def test_a_gated_model_that_a_server_runs_needs_no_weights_here() -> None:
    served = {"engine": "openai", "base_url": "http://localhost:8000/v1"}
    check_study(study_of([{"name": "llama-3.1-70b-instruct", **served}]))


@pytest.mark.usefixtures("empty_hub")
def test_offline_the_revision_that_the_study_asks_for_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match=r"no copy of Qwen/Qwen2\.5-3B-Instruct at revision abc"):
        check_study(study_of([{"name": "qwen2.5-3b-instruct", "revision": "abc"}]))


@pytest.mark.usefixtures("empty_hub")
def test_weights_that_the_gpus_cannot_hold_are_refused_unless_a_cluster_runs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sgpu.models.machine.visible_gpus", lambda: ["NVIDIA T4, 15360 MiB"])
    study = study_of([{"name": "qwen2.5-vl-7b-instruct"}])
    with pytest.raises(UsageError, match=r"qwen2\.5-vl-7b-instruct: 15\.4 GiB of weights"):
        check_study(study)
    there = study_of([{"name": "qwen2.5-vl-7b-instruct"}], resources={"device": "cuda"})
    check_study(there, address="10.0.0.1:6379")
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    check_study(there)
    monkeypatch.setenv("RAY_ADDRESS", "local")  # which is no cluster
    with pytest.raises(UsageError, match="the visible GPUs cannot hold"):
        check_study(there)
    check_study(study_of([{"name": "qwen2.5-vl-7b-instruct"}], resources={"device": "cpu"}))


@pytest.mark.usefixtures("empty_hub")
def test_a_study_that_leaves_its_device_open_is_refused_on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of([{"name": "qwen2.5-3b-instruct"}])
    check_study(study)
    with pytest.raises(UsageError, match=r"--set resources\.device=cuda"):
        check_study(study, address="auto")
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with pytest.raises(UsageError, match=r"--set resources\.device=cuda"):
        check_study(study)


@pytest.mark.usefixtures("empty_hub")
def test_a_system_prompt_for_a_model_without_that_role_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'llava' has a `system_prompt`.*sampling\.prompt"):
        check_study(
            study_of([{"name": "llava", "card": "llava-1.6-mistral-7b", "system_prompt": "Be brief."}])
        )


def test_a_model_that_reads_text_is_not_asked_about_images() -> None:
    study = Study.model_validate({"models": ["smollm2-135m-instruct"], "datasets": [{"kind": "vqa-rad"}]})
    with pytest.raises(UsageError, match="reads text only, but data set 'vqa-rad' has images"):
        check_study(study)
