"""Which token stands for a candidate answer of an LLM judge; real chat templates against prompts by hand,
and a template that has changed."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, ProcessorMixin

from sgpu.engines.base import Prompt
from sgpu.engines.prompts import (
    PROMPT_FAMILIES,
    RenderedPrompt,
    candidate_token_ids,
    check_prompt_form,
    first_difference,
    prompt_family,
    render_prompt,
)
from sgpu.errors import UsageError
from sgpu.judges.prompt import judge_prompt
from sgpu.study.models import MODELS


class _Tokenizer:
    """Ignores case; knows two words."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [{"yes": 5, "no": 7}.get(word, 1) for word in text.lower().split("-")]


def test_a_candidate_of_several_tokens_has_none() -> None:
    assert candidate_token_ids(_Tokenizer(), ["yes", "yes-no"]) == [5, None]


def test_two_spellings_of_one_token_count_once() -> None:
    assert candidate_token_ids(_Tokenizer(), ["yes", "no", "Yes"]) == [5, 7, None]


TEMPLATES = Path(__file__).parent / "chat_templates"
# What opens a sequence, and what stands for an image, in the tokenizer of each family.
FIRST_TOKEN = {
    "llama-3.1": "<|begin_of_text|>",
    "llama-3.1-base": "<|begin_of_text|>",
    "llava-next-mistral": "<s>",
    "idefics2": "<s>",
}
IMAGE_TOKEN = {"qwen2.5-vl": "<|image_pad|>", "llava-next-mistral": "<image>", "idefics2": "<image>"}
SYSTEM, USER = "Be brief.", "What is it?\nOne word."

# (family, system prompt, image) -> the prompt as the model cards and the examples of the models print it.
GOLDEN = {
    ("qwen2.5-vl", None, True): (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What is it?\nOne word.<|im_end|>\n"
        "<|im_start|>assistant\n"
    ),
    ("qwen2.5-vl", SYSTEM, True): (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What is it?\nOne word.<|im_end|>\n"
        "<|im_start|>assistant\n"
    ),
    ("qwen2.5-vl", None, False): (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nWhat is it?\nOne word.<|im_end|>\n<|im_start|>assistant\n"
    ),
    ("llava-next-mistral", None, True): "[INST] <image>\nWhat is it?\nOne word. [/INST]",
    ("llava-next-mistral", None, False): "[INST] What is it?\nOne word. [/INST]",
    ("idefics2", None, True): "User:<image>What is it?\nOne word.<end_of_utterance>\nAssistant:",
    ("idefics2", None, False): "User: What is it?\nOne word.<end_of_utterance>\nAssistant:",
    ("idefics2", SYSTEM, True): (
        "System: Be brief.<end_of_utterance>\n"
        "User:<image>What is it?\nOne word.<end_of_utterance>\nAssistant:"
    ),
    ("llama-3.1", None, False): (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
        "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nWhat is it?\nOne word.<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    ("llama-3.1", SYSTEM, False): (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
        "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nWhat is it?\nOne word.<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    ("llama-3.1-base", None, False): "<|begin_of_text|>What is it?\nOne word.",
    ("qwen2.5", None, False): (
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nWhat is it?\nOne word.<|im_end|>\n<|im_start|>assistant\n"
    ),
    ("qwen2.5", SYSTEM, False): (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nWhat is it?\nOne word.<|im_end|>\n<|im_start|>assistant\n"
    ),
    ("smollm2", None, False): (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhat is it?\nOne word.<|im_end|>\n<|im_start|>assistant\n"
    ),
    ("smollm2", SYSTEM, False): (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nWhat is it?\nOne word.<|im_end|>\n<|im_start|>assistant\n"
    ),
}


class _Processor(ProcessorMixin):
    """A processor with the real handling of chat templates, and four tokens for every image."""

    def __init__(
        self, tokenizer: Any = None, chat_template: str | None = None, image_token: str = ""
    ) -> None:
        super().__init__(tokenizer, chat_template=chat_template)
        self.image_token = image_token
        self.image_token_id = tokenizer.convert_tokens_to_ids(image_token)

    def _get_num_multimodal_tokens(self, image_sizes: Any) -> dict[str, list[int]]:
        return {"num_image_tokens": [4 for _ in image_sizes]}


def template_of(family: str) -> str | None:
    """The chat template of a family's checkpoints; None for base models, whose cards bring one."""
    file = TEMPLATES / f"{family}.jinja"
    return file.read_text(encoding="utf-8") if file.is_file() else None


WITH_TEMPLATE = [family for family in PROMPT_FAMILIES if template_of(family)]


def tokenizer_of(family: str, template: str | None) -> Any:
    """One token a byte, with the family's first token and its image token."""
    alphabet = {token: i for i, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=FIRST_TOKEN.get(family),
        additional_special_tokens=[IMAGE_TOKEN[family]] if family in IMAGE_TOKEN else [],
        chat_template=template,
    )


def rendered(family: str, prompt: Prompt, template: str | None = None) -> RenderedPrompt:
    """The prompt as an engine renders it, with the chat options of the family's cards."""
    template = template or template_of(family)
    if family in IMAGE_TOKEN:
        tokenizer = tokenizer_of(family, None)
        front: Any = _Processor(tokenizer, chat_template=template, image_token=IMAGE_TOKEN[family])
    else:
        front = tokenizer = tokenizer_of(family, template)
    options = next(card.chat_options for card in MODELS.values() if card.prompt_form == family)
    return render_prompt(front, tokenizer, prompt, options, max_tokens=4096)


def picture() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "PNG")
    return buffer.getvalue()


def prompt_of(system: str | None, user: str, image: bool = False) -> Prompt:
    messages = (("user", user),) if system is None else (("system", system), ("user", user))
    return Prompt(messages, 0, picture() if image else None)


@pytest.mark.parametrize(("family", "system", "image"), GOLDEN)
def test_the_real_template_gives_the_prompt_typed_by_hand(
    family: str, system: str | None, image: bool
) -> None:
    assert rendered(family, prompt_of(system, USER, image)).text == GOLDEN[family, system, image]


@pytest.mark.parametrize(("family", "system", "image"), GOLDEN)
def test_the_form_gives_the_prompt_typed_by_hand(family: str, system: str | None, image: bool) -> None:
    assert prompt_family(family).form(system, USER, image) == GOLDEN[family, system, image]


def test_the_judges_question_stands_in_llamas_prompt_as_it_is() -> None:
    question = judge_prompt("Capital of France?", ["Paris"], "It is Paris.")
    assert rendered("llama-3.1", prompt_of(None, question)).text == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
        "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\n"
        "We are assessing the quality of answers to the following question: Capital of France?.\n"
        "The expected answer is: Paris.\n"
        "The proposed answer is: It is Paris..\n"
        "Within the context of the question, does the proposed answer mean the same as the expected answer?\n"
        "Respond only with yes or no.\n"
        "Response:<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


@pytest.mark.parametrize("family", PROMPT_FAMILIES)
def test_the_real_template_passes_the_check(family: str) -> None:
    check_prompt_form(family, lambda prompt: rendered(family, prompt).text)


def test_a_base_model_reads_one_first_token_and_plain_text() -> None:
    prompt = rendered("llama-3.1-base", prompt_of(None, "Question: 2 + 2?\nAnswer:"))
    first = tokenizer_of("llama-3.1-base", None).bos_token_id
    assert prompt.text == "<|begin_of_text|>Question: 2 + 2?\nAnswer:"
    assert [place for place, token in enumerate(prompt.token_ids) if token == first] == [0]


@pytest.mark.parametrize("family", WITH_TEMPLATE)
def test_a_template_that_says_one_thing_more_is_refused(family: str) -> None:
    changed = f"{template_of(family)}<think>"
    with pytest.raises(UsageError, match="is not that of the prompt form"):
        check_prompt_form(family, lambda prompt: rendered(family, prompt, changed).text)


def test_another_default_system_prompt_is_shown() -> None:
    changed = (template_of("qwen2.5") or "").replace("You are Qwen, created by Alibaba Cloud", "You are Qwen")
    with pytest.raises(
        UsageError, match=r"without a system prompt\): at character 31 it gives .*You are Qwen\. "
    ):
        check_prompt_form("qwen2.5", lambda prompt: rendered("qwen2.5", prompt, changed).text)


@pytest.mark.parametrize("family", ["llava-next-mistral", "idefics2"])
def test_a_text_that_the_template_drops_is_refused(family: str) -> None:
    """These templates read parts; given a plain string they write an empty question, without an error."""
    tokenizer = tokenizer_of(family, template_of(family))

    def as_string(prompt: Prompt) -> str:
        if prompt.image is not None:
            return rendered(family, prompt).text
        messages = [{"role": role, "content": text} for role, text in prompt.messages]
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    with pytest.raises(UsageError, match="without an image"):
        check_prompt_form(family, as_string)


def test_a_template_that_raises_is_refused_with_its_message() -> None:
    with pytest.raises(UsageError, match="it fails with TemplateError: no roles here"):
        check_prompt_form(
            "smollm2",
            lambda prompt: rendered("smollm2", prompt, "{{ raise_exception('no roles here') }}").text,
        )


def test_todays_date_in_llamas_prompt_is_refused() -> None:
    changed = (
        (template_of("llama-3.1") or "")
        .replace("if not date_string is defined", "if true")
        .replace('date_string = "26 Jul 2024"', "date_string = strftime_now('%d %b %Y')")
    )
    with pytest.raises(UsageError, match="Today Date"):
        check_prompt_form("llama-3.1", lambda prompt: rendered("llama-3.1", prompt, changed).text)


def test_a_system_prompt_for_llava_is_refused() -> None:
    with pytest.raises(UsageError, match="no system role"):
        prompt_family("llava-next-mistral").form(SYSTEM, USER, True)


def test_an_unknown_form_gets_the_nearest_spelling() -> None:
    with pytest.raises(UsageError, match=r"Did you mean 'llama-3\.1'"):
        check_prompt_form("llama-3", lambda prompt: "")


@pytest.mark.parametrize(
    ("text", "at"), [("abXd", 2), ("ab", 2), ("abcdef", 4)], ids=["other", "too short", "too long"]
)
def test_the_first_difference_is_where_the_texts_part(text: str, at: int) -> None:
    assert first_difference(text, "abcd").startswith(f"at character {at} ")


@pytest.mark.parametrize("card", MODELS.values(), ids=MODELS)
def test_the_form_of_every_card_exists_and_fits_its_images(card: Any) -> None:
    assert card.prompt_form in PROMPT_FAMILIES
    assert prompt_family(card.prompt_form).reads_images == (card.image is not None)


def test_an_engine_refuses_a_checkpoint_whose_template_is_another(tmp_path: Path) -> None:
    from sgpu.engines.base import EngineConfig
    from sgpu.engines.transformers import TransformersEngine
    from tests.engines.tiny_llama import build

    folder = str(build(tmp_path))
    with pytest.raises(UsageError, match=r"llama-3\.1"):
        TransformersEngine(EngineConfig(model=folder, dtype="float32", device="cpu", prompt_form="llama-3.1"))
