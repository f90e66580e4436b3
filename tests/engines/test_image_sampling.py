"""Image models sample what plain `generate` samples, though each prompt is read once for all its answers."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from scipy.stats import chi2_contingency
from transformers import AutoModelForImageTextToText

from sgpu.engines.base import EngineConfig, Prompt, Sampling
from sgpu.engines.transformers import TransformersEngine
from sgpu.errors import UsageError
from sgpu.hidden.extractor import HiddenStateExtractor
from sgpu.hidden.rows import AnsweredPrompt, AnswerStates
from tests.contracts.engine_contract import EngineContract
from tests.engines.tiny_image_models import FAMILIES, picture
from tests.engines.tiny_llama import build

WHAT = (("user", "What is it?"),)
# Texts between images, because a model may remember something of the last image.
PROMPTS = [
    Prompt(WHAT, 1, picture(0)),
    Prompt(WHAT, 2),
    Prompt((("system", "Be brief."), *WHAT), 3, picture(1, 40, 130)),
    Prompt((("user", "And now?"),), 4),
]
GREEDY = Sampling(n=3, temperature=0.0, max_tokens=8)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {family: build_(tmp_path_factory.mktemp(family)) for family, build_ in FAMILIES.items()}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def config(folder: Path, **changes: Any) -> EngineConfig:
    return replace(EngineConfig(model=str(folder), dtype="float32", device="cpu"), **changes)


@pytest.fixture(scope="module")
def engine(folders: dict[str, Path], family: str) -> Iterator[TransformersEngine]:
    engine = TransformersEngine(config(folders[family]))
    yield engine
    engine.close()


def inputs_of(engine: TransformersEngine, prompt: Prompt) -> dict[str, Any]:
    checkpoint = engine._checkpoint
    (text,) = checkpoint.render([prompt], 1)
    return dict(checkpoint.inputs(text))


def fresh_model(folder: Path) -> Any:
    """As transformers loads it, with nothing remembered."""
    return AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()


class TestContract(EngineContract):
    """With prompts of text alone."""


def test_greedy_answers_are_those_of_generate(
    engine: TransformersEngine, folders: dict[str, Path], family: str
) -> None:
    generations = engine.sample(PROMPTS, GREEDY)
    for prompt, generation in zip(PROMPTS, generations, strict=True):
        inputs = inputs_of(engine, prompt)
        n_prompt = inputs["input_ids"].shape[1]
        # Else it would guess which tokens are padding, and leave out <s>.
        inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
        output = fresh_model(folders[family]).generate(
            **inputs, do_sample=False, max_new_tokens=8, return_dict_in_generate=True, output_logits=True
        )
        logprobs = torch.stack(output.logits, dim=1)[0].log_softmax(-1)
        assert generation.n_prompt_tokens == n_prompt
        for answer in generation.answers:
            expected = output.sequences[0, n_prompt : n_prompt + answer.n_tokens]
            assert list(answer.token_ids) == expected.tolist()
            chosen = logprobs[: answer.n_tokens].gather(1, expected[:, None])[:, 0]
            np.testing.assert_allclose(answer.token_logprobs, chosen, atol=2e-5)


def test_an_image_is_decoded_once_for_all_its_answers(engine: TransformersEngine, monkeypatch: Any) -> None:
    opened, decode = [], PIL.Image.open
    monkeypatch.setattr(PIL.Image, "open", lambda *a, **k: opened.append(1) or decode(*a, **k))
    engine.sample(PROMPTS, GREEDY)
    assert len(opened) == sum(prompt.image is not None for prompt in PROMPTS)


def test_candidates_have_the_log_probabilities_of_generate(
    engine: TransformersEngine, folders: dict[str, Path], family: str
) -> None:
    rows = engine.next_token_logprobs(PROMPTS, ["A", "B"])
    for prompt, row in zip(PROMPTS, rows, strict=True):
        with torch.inference_mode():
            logits = fresh_model(folders[family])(**inputs_of(engine, prompt)).logits[0, -1]
        ids = engine._tokenizer.convert_tokens_to_ids(["A", "B"])
        np.testing.assert_allclose(row, logits.log_softmax(-1)[ids], atol=2e-5)


def test_forgotten_shift_of_an_image_would_be_seen(folders: dict[str, Path], monkeypatch: Any) -> None:
    # Prompts that are continued together are told their positions.
    engine = TransformersEngine(config(folders["qwen2_5_vl"], options={"prompts_together": 1}))
    right = engine.sample(PROMPTS[:2], GREEDY)[1]
    monkeypatch.setattr(engine._checkpoint, "_shifted", [])
    wrong = engine.sample(PROMPTS[:2], GREEDY)[1]
    first, others = right.answers[0].token_logprobs[0], right.answers[0].token_logprobs[1:]
    assert wrong.answers[0].token_logprobs[0] == pytest.approx(first, abs=1e-5)  # before anything is decoded
    assert wrong.answers[0].token_logprobs[1:] != pytest.approx(others, abs=1e-3)


def pairs(sequences: Sequence[Sequence[int]], end: int) -> Counter[tuple[int, ...]]:
    """How often each pair of first tokens came; an answer that ended at once has one."""
    return Counter((one[0],) if one[0] == end else tuple(one[:2]) for one in sequences)


def p_value(first: Counter[tuple[int, ...]], second: Counter[tuple[int, ...]]) -> float:
    """Of a chi-square test that both came from one distribution; rare pairs are counted together."""
    common = [pair for pair in first | second if first[pair] + second[pair] >= 20]
    table = np.array([[counts[pair] for pair in common] for counts in (first, second)])
    rest = np.array([[first.total()], [second.total()]]) - table.sum(axis=1, keepdims=True)
    table = np.hstack([table, rest]) if rest.any() else table
    assert table.shape[1] >= 5
    return float(chi2_contingency(table).pvalue)


@pytest.mark.parametrize("together", [1, 3])
def test_sampled_answers_are_distributed_as_those_of_generate(
    folders: dict[str, Path], family: str, together: int
) -> None:
    engine = TransformersEngine(config(folders[family], options={"prompts_together": together}))
    n, prompt = 3000, Prompt(WHAT, 7, picture(2, 56, 28))
    filters = {"temperature": 0.8, "top_p": 0.9, "top_k": 6}
    end = engine._tokenizer.eos_token_id

    def ours(**changes: float) -> Counter[tuple[int, ...]]:
        sampling = Sampling(n=n, max_tokens=2, **(filters | changes))  # type: ignore[arg-type]
        beside = [PROMPTS[2], PROMPTS[1]] if together > 1 else []
        found = engine.sample([prompt, *beside], sampling)[0]
        return pairs([answer.token_ids for answer in found.answers], end)

    inputs, model = inputs_of(engine, prompt), fresh_model(folders[family])
    torch.manual_seed(19)
    drawn = [
        model.generate(**inputs, do_sample=True, max_new_tokens=2, num_return_sequences=500, **filters)
        for _ in range(n // 500)
    ]
    theirs = pairs(torch.cat(drawn)[:, inputs["input_ids"].shape[1] :].tolist(), end)
    assert p_value(ours(), theirs) > 0.01
    # The same test sees another temperature, so it would see another distribution.
    assert p_value(ours(temperature=1.6), theirs) < 1e-6


def test_hidden_states_are_those_of_a_plain_pass(
    engine: TransformersEngine, folders: dict[str, Path], family: str
) -> None:
    extractor = HiddenStateExtractor(config(folders[family]), [1, 2])
    answers = [[40, 41, 42, 60], [77]]
    for prompt in PROMPTS:
        (text,) = extractor._checkpoint.render([prompt], 8)
        (found,) = extractor.states([AnsweredPrompt(prompt, text.sha256, answers)])
        assert isinstance(found, AnswerStates)
        inputs = inputs_of(engine, prompt)
        n_prompt = inputs["input_ids"].shape[1]
        for place, answer in enumerate(answers):
            longer = dict(inputs)
            # Of text: no part of an image, and nothing of it hidden.
            for name, value in {"input_ids": None, "attention_mask": 1, "mm_token_type_ids": 0}.items():
                if name in inputs:
                    own = torch.tensor([answer if value is None else [value] * len(answer)])
                    longer[name] = torch.cat([inputs[name], own], dim=1)
            with torch.inference_mode():
                output = fresh_model(folders[family])(**longer, use_cache=False, output_hidden_states=True)
            hidden = torch.stack([output.hidden_states[layer][0] for layer in (1, 2)]).numpy()
            np.testing.assert_allclose(found.last[:, place], hidden[:, -1], rtol=2e-3, atol=2e-3)
            np.testing.assert_allclose(found.tbg, hidden[:, n_prompt - 1], rtol=2e-3, atol=2e-3)


# An image of 90 x 60. LLaVA-NeXT: 4 of the whole; scaled to 32 x 21 in a grid of 4 x 4 patches, of which two
# rows of 4 are left, each with a line end. Qwen: 3 x 2 fields of 28. Idefics2: 4 latents between two marks.
READ = {
    "llava_next": f"<s>[INST] {'<image>' * 14}\nWhat is it? [/INST]",
    "qwen2_5_vl": "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\n<|vision_start|>"
    f"{'<|image_pad|>' * 6}<|vision_end|>What is it?<|im_end|>\n<|im_start|>assistant\n",
    "idefics2": f"<s>User:<fake_token_around_image>{'<image>' * 4}<fake_token_around_image> What is it?"
    "<end_of_utterance>\nAssistant:",
}
READ_TEXT = {
    "llava_next": "<s>[INST] What is it? [/INST]",
    "qwen2_5_vl": "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nWhat is it?<|im_end|>\n"
    "<|im_start|>assistant\n",
    "idefics2": "<s>User: What is it?<end_of_utterance>\nAssistant:",
}


@pytest.mark.parametrize(
    ("prompt", "texts"), [(PROMPTS[0], READ), (PROMPTS[1], READ_TEXT)], ids=["image", "text"]
)
def test_model_reads_the_prompt_of_its_family(
    engine: TransformersEngine, family: str, prompt: Prompt, texts: dict[str, str]
) -> None:
    ids = inputs_of(engine, prompt)["input_ids"][0]
    assert engine._tokenizer.decode(ids) == texts[family]


@pytest.mark.parametrize("size", [(16, 16), (30, 90), (200, 60), (301, 299)])
def test_length_is_checked_with_the_tokens_of_the_image(
    engine: TransformersEngine, monkeypatch: Any, size: tuple[int, int]
) -> None:
    prompt = Prompt(WHAT, 1, picture(3, *size))
    n_prompt = inputs_of(engine, prompt)["input_ids"].shape[1]
    checkpoint = engine._checkpoint
    monkeypatch.setattr(checkpoint, "config", replace(engine.config, max_model_len=n_prompt + 5))
    assert checkpoint.render([prompt], 5)
    with pytest.raises(
        ValueError, match=rf"has {n_prompt} tokens, \d+ of them for its image; at most {n_prompt - 1}"
    ):
        checkpoint.render([prompt], 6)


def test_answers_depend_on_the_image(engine: TransformersEngine) -> None:
    prompts = [Prompt(WHAT, 1, picture(seed)) for seed in (0, 1)]
    first, second = engine.sample(prompts, GREEDY)
    assert first.answers[0].token_logprobs != pytest.approx(second.answers[0].token_logprobs, abs=1e-3)
    assert first.prompt_sha256 != second.prompt_sha256


def test_image_mark_in_the_question_is_refused(engine: TransformersEngine) -> None:
    mark = engine._checkpoint._front.image_token
    with pytest.raises(ValueError, match=f"one image and 2 places.*{re.escape(mark)}"):
        engine.sample([Prompt((("user", f"What is {mark}?"),), 1, picture(0))], GREEDY)


@pytest.mark.parametrize(
    "data", [b"no image", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", picture(0)[:99]]
)
def test_bytes_that_are_no_image_are_refused(engine: TransformersEngine, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"cannot be opened.*prepare_image"):
        engine.sample([Prompt(WHAT, 1, data)], GREEDY)


@pytest.mark.parametrize(
    ("name", "options", "n_tokens"),
    [
        ("qwen2_5_vl", {"max_pixels": 4 * 28 * 28, "min_pixels": 28 * 28}, 2),  # 90 x 60 -> 56 x 28
        ("idefics2", {"do_image_splitting": True}, 5 * 4 + 6),  # five tiles, with a mark around each
    ],
)
def test_processor_options_reach_the_processor(
    folders: dict[str, Path], name: str, options: dict[str, Any], n_tokens: int
) -> None:
    engine = TransformersEngine(config(folders[name], options={"processor_options": options}))
    prompt = Prompt(WHAT, 1, picture(0))
    ids = inputs_of(engine, prompt)["input_ids"][0].tolist()
    marks = {"<image>", "<|image_pad|>", "<fake_token_around_image>"}
    assert sum(token in marks for token in engine._tokenizer.convert_ids_to_tokens(ids)) == n_tokens
    (generation,) = engine.sample([prompt], GREEDY)
    assert generation.n_prompt_tokens == len(ids)


def test_unknown_processor_option_is_refused(folders: dict[str, Path], family: str) -> None:
    with pytest.raises(UsageError, match=r"max_pixel of .*Known: .*do_resize"):
        TransformersEngine(config(folders[family], options={"processor_options": {"max_pixel": 9}}))


def test_processor_options_of_a_text_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="reads no images"):
        TransformersEngine(config(build(tmp_path), options={"processor_options": {"max_pixels": 9}}))


def test_code_of_a_checkpoint_is_never_run(tmp_path: Path, family: str) -> None:
    folder, trace = FAMILIES[family](tmp_path / "model"), tmp_path / "ran"
    (folder / "own.py").write_text(f"open({str(trace)!r}, 'w')\nclass Own: pass\n")
    kinds = {
        "config.json": ["AutoConfig", "AutoModelForImageTextToText"],
        "tokenizer_config.json": ["AutoTokenizer"],
        "processor_config.json": ["AutoProcessor"],
        "preprocessor_config.json": ["AutoImageProcessor"],
    }
    for name, autos in kinds.items():
        content = json.loads((folder / name).read_text())
        content["auto_map"] = dict.fromkeys(autos, "own.Own")
        (folder / name).write_text(json.dumps(content))
    assert TransformersEngine(config(folder)).sample([PROMPTS[0]], GREEDY)
    (folder / "config.json").write_text(
        json.dumps({"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}})
    )
    with pytest.raises(ValueError):
        TransformersEngine(config(folder))
    assert not trace.exists()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["llava_next", "qwen2_5_vl"])
def test_vllm_reads_the_same_prompt_and_image(folders: dict[str, Path], name: str) -> None:
    """The image models of vLLM import torchvision, which comes with its CUDA wheels alone."""
    pytest.importorskip("vllm")
    pytest.importorskip("torchvision")
    from sgpu.engines.vllm import VLLMEngine

    expected = TransformersEngine(config(folders[name])).sample(PROMPTS, GREEDY)
    served = VLLMEngine(config(folders[name], device="auto", max_num_seqs=16))
    found = served.sample(PROMPTS, GREEDY)
    with pytest.raises(ValueError, match="of them for its image"):
        served.sample(PROMPTS[:1], replace(GREEDY, max_tokens=served.config.max_model_len - 40))
    served.close()
    for ours, theirs in zip(expected, found, strict=True):
        assert (ours.prompt_sha256, ours.n_prompt_tokens) == (theirs.prompt_sha256, theirs.n_prompt_tokens)
        # The first token is the same model's on the same input; kernels differ in the last bits.
        assert ours.answers[0].token_ids[0] == theirs.answers[0].token_ids[0]
        first = ours.answers[0].token_logprobs[0]
        assert theirs.answers[0].token_logprobs[0] == pytest.approx(first, abs=0.05)
