"""States against one plain forward pass over prompt and answer, without a cache; which tokens are read."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from sgpu.engines.base import EngineConfig, Prompt
from sgpu.engines.prompts import RenderedPrompt, prompt_sha256
from sgpu.hidden.extractor import PASS_PADDING, HiddenStateExtractor, padded_batches
from sgpu.hidden.pass_rows import AnsweredQuestion
from sgpu.hidden.rows import AnsweredPrompt, AnswerStates
from tests.engines.tiny_llama import build

LAYERS = [0, 1, 2]
PROMPT = Prompt((("system", "Be brief."), ("user", "What is the capital of Italy?")), seed=1)
RENDERED = "<s>system\nBe brief.</s>\n<s>user\nWhat is the capital of Italy?</s>\n<s>assistant\n"
EOS = 1
HALF = 2e-3  # of float16, for numbers of this size


@pytest.fixture(scope="module")
def extractor(tmp_path_factory: pytest.TempPathFactory) -> HiddenStateExtractor:
    folder = build(tmp_path_factory.mktemp("tiny"))
    return HiddenStateExtractor(EngineConfig(model=str(folder), dtype="float32", device="cpu"), LAYERS)


def ids_of(extractor: HiddenStateExtractor, text: str) -> list[int]:
    return list(extractor._checkpoint.tokenizer(text, add_special_tokens=False).input_ids)


def states_of(extractor: HiddenStateExtractor, answers: Sequence[Sequence[int] | None]) -> AnswerStates:
    (found,) = extractor.states([AnsweredPrompt(PROMPT, prompt_sha256(RENDERED), answers)], stop=["\n"])
    if isinstance(found, ValueError):
        raise found
    return found


def plain(extractor: HiddenStateExtractor, text: str) -> NDArray[np.float32]:
    """(S, T, D) states of a text, read at once."""
    ids = torch.tensor([ids_of(extractor, text)])
    with torch.inference_mode():
        hidden = extractor._checkpoint.model(ids, use_cache=False, output_hidden_states=True).hidden_states
    return torch.stack([layer[0] for layer in hidden]).numpy()


def padded(extractor: HiddenStateExtractor, texts: Sequence[str], side: str) -> list[NDArray[np.float32]]:
    """(S, D) states at the end of each text, read in one batch that is padded on one side."""
    sequences = [ids_of(extractor, text) for text in texts]
    width = max(map(len, sequences))
    before = [width - len(ids) if side == "left" else 0 for ids in sequences]
    ids, mask = torch.zeros((2, len(texts), width), dtype=torch.long)
    for row, (sequence, start) in enumerate(zip(sequences, before, strict=True)):
        ids[row, start : start + len(sequence)] = torch.tensor(sequence)
        mask[row, start : start + len(sequence)] = 1
    with torch.inference_mode():
        hidden = extractor._checkpoint.model(
            ids,
            attention_mask=mask,
            position_ids=(mask.cumsum(-1) - 1).clamp(min=0),
            use_cache=False,
            output_hidden_states=True,
        ).hidden_states
    states = torch.stack(list(hidden)).numpy()
    return [
        states[:, row, start + len(sequence) - 1]
        for row, (sequence, start) in enumerate(zip(sequences, before, strict=True))
    ]


ANSWERS = ["Rome", "It is Rome, the eternal city", "R", "Rome is the capital."]


def test_states_of_answers_of_different_lengths_are_those_of_a_plain_pass(
    extractor: HiddenStateExtractor,
) -> None:
    found = states_of(extractor, [[*ids_of(extractor, answer), EOS] for answer in ANSWERS])
    for place, answer in enumerate(ANSWERS):
        expected = plain(extractor, RENDERED + answer)
        np.testing.assert_allclose(found.last[:, place], expected[:, -1], rtol=HALF, atol=HALF)
        # The end of the sequence is the last token, so the second-last one ends the text.
        np.testing.assert_array_equal(found.slt[:, place], found.last[:, place])
    np.testing.assert_allclose(found.tbg, plain(extractor, RENDERED)[:, -1], rtol=HALF, atol=HALF)
    # The test could not fail if every position had the same state.
    assert np.abs(found.last[2, 0] - found.last[2, 1]).max() > 0.1


@pytest.mark.parametrize("side", ["left", "right"])
def test_states_are_those_of_a_padded_batch_of_whole_texts(
    extractor: HiddenStateExtractor, side: str
) -> None:
    found = states_of(extractor, [ids_of(extractor, answer) for answer in ANSWERS])
    expected = padded(extractor, [RENDERED + answer for answer in ANSWERS], side)
    np.testing.assert_allclose(found.last, np.stack(expected, axis=1), rtol=HALF, atol=HALF)


def test_second_last_token_of_an_answer_that_was_cut_off_is_the_one_before_its_last(
    extractor: HiddenStateExtractor,
) -> None:
    found = states_of(extractor, [ids_of(extractor, "Rome"), ids_of(extractor, "R")])
    expected = plain(extractor, f"{RENDERED}Rom")
    np.testing.assert_allclose(found.slt[:, 0], expected[:, -1], rtol=HALF, atol=HALF)
    np.testing.assert_array_equal(found.slt[:, 1], found.tbg)


def test_what_a_prompt_shares_with_the_one_before_is_not_read_again(
    extractor: HiddenStateExtractor,
) -> None:
    read: list[int] = []

    def note(module: torch.nn.Module, args: object, given: dict[str, torch.Tensor]) -> None:
        if given["use_cache"]:
            read.append(given["input_ids"].shape[1])

    hook = extractor._checkpoint.model.register_forward_pre_hook(note, with_kwargs=True)
    answer = ids_of(extractor, "Rome")
    try:
        for city in ("Italy", "Italian Somaliland", "Italy"):
            read.clear()
            rendered = RENDERED.replace("Italy", city)
            prompt = Prompt((("system", "Be brief."), ("user", f"What is the capital of {city}?")), seed=1)
            (found,) = extractor.states([AnsweredPrompt(prompt, prompt_sha256(rendered), [answer])])
            assert isinstance(found, AnswerStates)
            expected = plain(extractor, f"{rendered}Rome")[:, -1]
            np.testing.assert_allclose(found.last[:, 0], expected, rtol=HALF, atol=HALF)
            np.testing.assert_allclose(found.tbg, plain(extractor, rendered)[:, -1], rtol=HALF, atol=HALF)
            start = RENDERED.index("Ital") + len("Ital")
            assert read[0] <= len(ids_of(extractor, rendered[start:])) + len(answer)
    finally:
        hook.remove()


def test_nothing_depends_on_how_answers_are_batched(extractor: HiddenStateExtractor) -> None:
    answers = [ids_of(extractor, answer) for answer in ANSWERS]
    together = states_of(extractor, answers)
    extractor._pass_tokens, budget = 1, extractor._pass_tokens
    try:
        alone = states_of(extractor, answers[::-1])
    finally:
        extractor._pass_tokens = budget
    np.testing.assert_allclose(alone.last[:, ::-1], together.last, rtol=HALF, atol=HALF)


def test_equal_answers_get_equal_states(extractor: HiddenStateExtractor) -> None:
    rome, oslo = ids_of(extractor, "Rome"), ids_of(extractor, "Oslo")
    found = states_of(extractor, [rome, oslo, rome])
    np.testing.assert_array_equal(found.last[:, 0], found.last[:, 2])
    assert (found.last[:, 0] != found.last[:, 1]).any()


def test_empty_and_withheld_answers_are_missing_not_zero(extractor: HiddenStateExtractor) -> None:
    found = states_of(extractor, [[EOS], ids_of(extractor, "Rome"), None, ids_of(extractor, " \nx")])
    for states in (found.last, found.slt):
        assert np.isnan(states[:, [0, 2, 3]]).all()
        assert np.isfinite(states[:, 1]).all()
    assert np.isfinite(found.tbg).all()
    assert found.n_missing == 3


def test_a_prompt_with_only_missing_answers_still_has_a_state(extractor: HiddenStateExtractor) -> None:
    found = states_of(extractor, [None, [EOS]])
    assert found.n_missing == 2 and np.isfinite(found.tbg).all()


def test_a_prompt_that_renders_differently_is_refused_and_the_others_are_read(
    extractor: HiddenStateExtractor,
) -> None:
    answers = [ids_of(extractor, "Rome")]
    asked = [AnsweredPrompt(PROMPT, prompt_sha256(RENDERED + more), answers) for more in ("", " ", "")]
    first, refused, last = extractor.states(asked, stop=["\n"])
    assert re.search(r"renders to sha256 [0-9a-f]{64}.*Sample again", str(refused))
    assert isinstance(first, AnswerStates) and isinstance(last, AnswerStates)


QUESTIONS = ["Italy", "Italian Somaliland and its coast", "I", "the Kingdom of the Two Sicilies, of old"]


def asked_of(extractor: HiddenStateExtractor) -> list[AnsweredPrompt]:
    """Prompts of different lengths, each with answers of different lengths, some of them missing or equal."""
    asked = []
    for number, place in enumerate(QUESTIONS):
        rendered = RENDERED.replace("Italy", place)
        prompt = Prompt((("system", "Be brief."), ("user", f"What is the capital of {place}?")), seed=1)
        answers: list[Sequence[int] | None] = [ids_of(extractor, answer) for answer in ANSWERS[number:]]
        asked.append(AnsweredPrompt(prompt, prompt_sha256(rendered), [None, *answers, answers[0]]))
    return asked


def test_questions_that_are_read_together_have_the_states_of_a_plain_pass(
    extractor: HiddenStateExtractor,
) -> None:
    passes: list[tuple[int, ...]] = []

    def note(module: torch.nn.Module, args: object, given: dict[str, torch.Tensor]) -> None:
        passes.append(tuple(given["input_ids"].shape))

    states_of(extractor, [])  # the first one stands alone: its cache shows what the model keeps
    hook = extractor._checkpoint.model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        found = extractor.states(asked_of(extractor), stop=["\n"])
    finally:
        hook.remove()
    # A row for each question, none with much padding, however many answers it has.
    assert sum(rows for rows, _ in passes) == 4 and len(passes) < 4
    for number, (place, states) in enumerate(zip(QUESTIONS, found, strict=True)):
        assert isinstance(states, AnswerStates)
        rendered = RENDERED.replace("Italy", place)
        np.testing.assert_allclose(states.tbg, plain(extractor, rendered)[:, -1], rtol=HALF, atol=HALF)
        assert np.isnan(states.last[:, 0]).all()
        for at, answer in enumerate([*ANSWERS[number:], ANSWERS[number]], start=1):
            expected = plain(extractor, rendered + answer)
            np.testing.assert_allclose(states.last[:, at], expected[:, -1], rtol=HALF, atol=HALF)


def test_a_question_has_the_same_states_alone_and_among_others(extractor: HiddenStateExtractor) -> None:
    asked = asked_of(extractor)
    together = extractor.states(asked)
    for states, one in zip(together, asked, strict=True):
        (alone,) = extractor.states([one])
        assert isinstance(states, AnswerStates) and isinstance(alone, AnswerStates)
        for name in ("last", "slt", "tbg"):
            np.testing.assert_allclose(getattr(states, name), getattr(alone, name), rtol=HALF, atol=HALF)


def test_questions_stand_in_one_pass_as_far_as_they_fit(extractor: HiddenStateExtractor) -> None:
    together = extractor.states(asked_of(extractor))
    budget, width = extractor._pass_tokens, len(ids_of(extractor, RENDERED.replace("Italy", QUESTIONS[3])))
    rows: list[int] = []
    hook = extractor._checkpoint.model.register_forward_pre_hook(
        lambda module, args, given: rows.append(len(given["input_ids"])), with_kwargs=True
    )
    try:
        extractor._pass_tokens = 2 * (width + 30)
        found = extractor.states(asked_of(extractor))
    finally:
        extractor._pass_tokens = budget
        hook.remove()
    assert max(rows) == 2
    for one, other in zip(found, together, strict=True):
        assert isinstance(one, AnswerStates) and isinstance(other, AnswerStates)
        np.testing.assert_allclose(one.last, other.last, rtol=HALF, atol=HALF)


def test_questions_of_different_lengths_are_read_apart_rather_than_padded(
    extractor: HiddenStateExtractor,
) -> None:
    states_of(extractor, [])
    lengths = [30, 3, 31, 5, 300, 4, 29]
    questions = [
        AnsweredQuestion(place, RenderedPrompt("", (5,) * length, ""), [])
        for place, length in enumerate(lengths)
    ]
    groups = [[question.n_tokens for question in group] for group in extractor._groups(questions)]
    assert groups == [[3, 4, 5], [29, 30, 31], [300]]
    assert all(max(group) * len(group) - sum(group) <= PASS_PADDING for group in groups)


def test_a_state_beyond_float16_is_refused_and_named(extractor: HiddenStateExtractor) -> None:
    weight = extractor._checkpoint.model.model.norm.weight
    before = weight.detach().clone()
    with torch.no_grad():
        weight.mul_(1e6)
    try:
        with pytest.raises(ValueError, match=r"layer 2 reaches .* float16 ends at 65504"):
            states_of(extractor, [ids_of(extractor, "Rome")])
    finally:
        with torch.no_grad():
            weight.copy_(before)


def test_batches_ascend_and_keep_to_the_bound() -> None:
    lengths = [1, 1, 2, 3, 3, 9]
    assert [lengths[batch] for batch in padded_batches(lengths, 0, 6)] == [[1, 1, 2], [3, 3], [9]]
    assert [lengths[batch] for batch in padded_batches(lengths, 2, 12)] == [[1, 1, 2], [3, 3], [9]]


def test_the_packaged_model_reads_as_in_a_plain_pass() -> None:
    from sgpu.study.models import engine_config, model_card
    from sgpu.study.resolve import resolve

    config = engine_config(model_card("smollm2-135m-instruct"), resolve("cpu"))
    extractor = HiddenStateExtractor(config, [15, 30])
    prompt = Prompt((("user", "What is the capital of Italy?"),), seed=1)
    (text,) = extractor._checkpoint.render([prompt], 8)
    answers = [ids_of(extractor, answer) for answer in ("Rome", "The capital of Italy is Rome.")]
    (found,) = extractor.states([AnsweredPrompt(prompt, text.sha256, answers)])
    assert isinstance(found, AnswerStates)
    assert found.last.shape == (2, 2, 576)
    for place, answer in enumerate(answers):
        with torch.inference_mode():
            hidden = extractor._checkpoint.model(
                torch.tensor([[*text.token_ids, *answer]]), use_cache=False, output_hidden_states=True
            ).hidden_states
        assert len(hidden) == 31
        for row, layer in enumerate((15, 30)):
            expected = hidden[layer][0, -1].float().numpy()
            own = found.last[row, place].astype(np.float32)
            cosine = own @ expected / np.linalg.norm(own) / np.linalg.norm(expected)
            assert cosine > 0.999  # bfloat16


def test_the_side_on_which_the_tokenizer_pads_does_not_matter(
    extractor: HiddenStateExtractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [ids_of(extractor, answer) for answer in ANSWERS]
    found = []
    for side in ("left", "right"):
        monkeypatch.setattr(extractor._checkpoint.tokenizer, "padding_side", side)
        found.append(states_of(extractor, answers).last)
    np.testing.assert_array_equal(*found)
