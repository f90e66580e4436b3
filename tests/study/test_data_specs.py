"""What a study says of its data sets, and what goes before what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sgpu.errors import UsageError
from sgpu.models.cards import PROMPT_FORMS
from sgpu.study.benchmark import Cell, Study, load_study
from sgpu.study.data_specs import JudgeSpec, QuestionsSpec, SamplingSpec

MODELS = ["smollm2-135m-instruct"]


def study(*datasets: dict[str, Any], **rest: Any) -> Study:
    return Study.model_validate({"models": MODELS, "datasets": list(datasets), **rest})


def test_a_data_set_brings_its_sizes_prompt_and_name() -> None:
    spec = study({"kind": "ok-vqa"}).datasets[0]
    assert isinstance(spec, QuestionsSpec)
    assert (spec.name, spec.n_train, spec.n_test) == ("ok-vqa", 9000, 5000)
    assert spec.sampling.prompt == PROMPT_FORMS["vqa"]
    assert (spec.sampling.n, spec.sampling.max_tokens) == (20, 64)


def test_chains_of_thought_are_embedded_by_their_result() -> None:
    spec = study({"kind": "gsm8k"}).datasets[0]
    assert isinstance(spec, QuestionsSpec)
    assert (spec.embed, spec.sampling.max_tokens, spec.sampling.stop) == ("final_answer", 512, [])


def test_the_study_goes_before_the_card_and_the_data_set_before_the_study() -> None:
    made = study(
        {"kind": "ok-vqa"},
        {"kind": "vizwiz", "sampling": {"max_tokens": 9}},
        sampling={"max_tokens": 30, "n": 5},
    )
    assert [made.sampling_of(Cell("m", name)).max_tokens for name in ("ok-vqa", "vizwiz")] == [30, 9]
    assert [made.sampling_of(Cell("m", name)).n for name in ("ok-vqa", "vizwiz")] == [5, 5]
    assert made.sampling_of(Cell("m", "vizwiz")).prompt == PROMPT_FORMS["vqa-unanswerable"]


def test_own_questions_have_no_stop_and_more_room_where_a_server_answers() -> None:
    models = ["smollm2-135m-instruct", {"name": "mini", "engine": "openai", "base_url": "http://h/v1"}]
    made = study({"kind": "jsonl", "path": "q.jsonl", "name": "own"}, models=models)
    again = Study.model_validate(made.model_dump(mode="json"))
    used = [again.sampling_of(Cell(model.name, "own")) for model in again.models]
    assert [(sampling.max_tokens, sampling.stop) for sampling in used] == [(64, []), (512, [])]


def test_a_study_that_was_written_out_reads_back_the_same() -> None:
    made = study({"kind": "gsm8k"}, {"kind": "ok-vqa", "sampling": {"n": 7}}, sampling={"temperature": 0.5})
    again = Study.model_validate(made.model_dump(mode="json"))
    assert again == made


def test_a_judge_of_a_data_set_goes_before_the_studys() -> None:
    made = study({"kind": "gsm8k", "judge": {"name": "numeric"}}, {"kind": "ok-vqa"})
    assert (made.judge_of("gsm8k").name, made.judge_of("ok-vqa").name) == ("numeric", "alias")


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("{kind: okvqa}", r"unknown data set 'okvqa'.*Did you mean 'ok-vqa'.*responses"),
        ("{kind: ok-vqa, n_tain: 5}", r"n_tain: unknown key. Did you mean 'n_train'"),
    ],
)
def test_an_unknown_kind_or_key_names_what_exists(tmp_path: Path, dataset: str, message: str) -> None:
    (tmp_path / "s.yaml").write_text(f"models: [m]\ndatasets: [{dataset}]\n")
    with pytest.raises(UsageError, match=message):
        load_study(tmp_path / "s.yaml")


def test_a_path_is_relative_to_the_study_file(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("models: [m]\ndatasets: [{kind: vizwiz, path: raw}]\n")
    spec = load_study(file).datasets[0]
    assert isinstance(spec, QuestionsSpec) and spec.path == tmp_path.resolve() / "raw"


def test_a_prompt_may_be_a_form_or_a_template() -> None:
    assert SamplingSpec(prompt="vqa").prompt == PROMPT_FORMS["vqa"]
    assert SamplingSpec(prompt="Say: {question}").prompt == "Say: {question}"
    with pytest.raises(ValueError, match=r"one of .*vqa.*placeholder"):
        SamplingSpec(prompt="vqaa")


def test_a_second_judge_of_the_test_questions_is_a_language_model() -> None:
    spec = JudgeSpec(name="llm", model="a", test_model="b")
    assert spec.models == ["a", "b"]
    with pytest.raises(ValueError, match="belongs to the judge 'llm'"):
        JudgeSpec(name="alias", test_model="b")


def test_the_class_names_stand_in_the_prompt() -> None:
    made = study({"kind": "cifar-10"})
    assert "Answer with one of: airplane, automobile, bird" in made.sampling_of(Cell("m", "cifar-10")).prompt


def test_a_prompt_with_classes_is_refused_where_there_are_none() -> None:
    with pytest.raises(ValueError, match="the data set has none: write the classes out"):
        study({"kind": "ok-vqa", "sampling": {"prompt": "classification-closed"}})
