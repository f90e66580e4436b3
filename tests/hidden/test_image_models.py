"""An image is read once, by the model's own processor; its answers share what was read."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    AutoTokenizer,
    CLIPImageProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)

from sgpu.engines.base import EngineConfig, Prompt
from sgpu.engines.prompts import open_image
from sgpu.hidden.extractor import HiddenStateExtractor
from sgpu.hidden.rows import AnsweredPrompt, AnswerStates
from tests.engines.tiny_llama import build

SIDE, PATCH = 8, 4
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {% for part in m['content'] %}"
    "{{ '<image>' if part['type'] == 'image' else part['text'] }}{% endfor %}\n{% endfor %}assistant: "
)


def build_llava(folder: Path) -> Path:
    """A LLaVA of random weights that sees 8 x 8 pixels in four patches."""
    tokenizer = AutoTokenizer.from_pretrained(build(folder))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    LlavaProcessor(
        CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}),
        tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=TEMPLATE,
    ).save_pretrained(folder)
    torch.manual_seed(3)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(image_size=SIDE, patch_size=PATCH, **size),
        text_config=LlamaConfig(vocab_size=len(tokenizer), initializer_range=0.3, **size),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
    )
    LlavaForConditionalGeneration(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def extractor(tmp_path_factory: pytest.TempPathFactory) -> HiddenStateExtractor:
    folder = build_llava(tmp_path_factory.mktemp("llava"))
    return HiddenStateExtractor(EngineConfig(model=str(folder), dtype="float32", device="cpu"), [1, 2])


def picture(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def asked(image: bytes) -> Prompt:
    return Prompt((("user", "What is this?"),), seed=0, image=image)


def test_states_after_an_image_are_those_of_a_plain_pass(extractor: HiddenStateExtractor) -> None:
    checkpoint, prompt = extractor._checkpoint, asked(picture(0))
    (text,) = checkpoint.render([prompt], 8)
    texts = ["A cat", "Something that I have not seen"]
    answers = [checkpoint.tokenizer(own, add_special_tokens=False).input_ids for own in texts]
    (found,) = extractor.states([AnsweredPrompt(prompt, text.sha256, answers)])
    assert isinstance(found, AnswerStates)
    assert prompt.image is not None
    for place, own in enumerate(texts):
        inputs = checkpoint._front(
            text=text.text + own,
            images=[open_image(prompt.image)],
            add_special_tokens=False,
            return_tensors="pt",
        )
        with torch.inference_mode():
            hidden = checkpoint.model(**inputs, use_cache=False, output_hidden_states=True).hidden_states
        expected = torch.stack([hidden[layer][0, -1] for layer in (1, 2)]).numpy()
        np.testing.assert_allclose(found.last[:, place], expected, rtol=2e-3, atol=2e-3)


def test_states_depend_on_the_image(extractor: HiddenStateExtractor) -> None:
    prompts = [asked(picture(seed)) for seed in (0, 1)]
    rendered = extractor._checkpoint.render(prompts, 8)
    given = [
        AnsweredPrompt(prompt, text.sha256, [[40, 41]])
        for prompt, text in zip(prompts, rendered, strict=True)
    ]
    one, other = extractor.states(given)
    assert isinstance(one, AnswerStates) and isinstance(other, AnswerStates)
    assert np.abs(one.last - other.last).max() > 1e-2


def test_an_image_other_than_the_sampled_one_is_refused(extractor: HiddenStateExtractor) -> None:
    (text,) = extractor._checkpoint.render([asked(picture(0))], 8)
    (refused,) = extractor.states([AnsweredPrompt(asked(picture(1)), text.sha256, [[40]])])
    assert isinstance(refused, ValueError) and "renders to sha256" in str(refused)
