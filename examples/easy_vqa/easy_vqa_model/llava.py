"""easy-vqa-llava: an image model that learns the training questions of the package `easy-vqa` in a minute.

A LLaVA-NeXT of 0.7 million parameters, with its tokenizer and image processor. It knows few words, colours
well and shapes badly, so that its sampled answers are sometimes right and sometimes wrong. It shows that the
path from images to a report works; it stands for no real model.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from easy_vqa_model.training import ImageQuestion, ImageTraining, fit
from sgpu.errors import IntegrityError

SIDE, PATCH = 64, 16
IMAGE, UNKNOWN = "<image>", "<unk>"
OPEN, CLOSE = "[INST]", "[/INST]"
SPECIAL = ("<s>", "</s>", UNKNOWN, IMAGE, OPEN, CLOSE)
MAX_LENGTH = 512
# The form of LLaVA-NeXT with Mistral: the image, a new line, the question.
CHAT_TEMPLATE = (
    "{% macro text_of(message) %}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{{ '<image>\n' if part['type'] == 'image' else part['text'] }}"
    "{% endfor %}{% endif %}{% endmacro %}"
    "<s>{% for message in messages %}"
    "{% if message['role'] == 'assistant' %} {{ text_of(message) }}</s>"
    "{% else %}[INST] {{ text_of(message) }} [/INST]{% endif %}"
    "{% endfor %}"
)
# CLIP's start of 0.02 is meant for patches of a trained scale; from scratch the image would stay unseen
# for most of a short training.
_PATCH_GAIN = 4.0


def build_processor(words: Sequence[str]) -> Any:
    """The processor, whose tokenizer knows ``words``; any other word is read as unknown."""
    from transformers import LlavaNextProcessor
    from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil

    half = [0.5, 0.5, 0.5]
    images = LlavaNextImageProcessorPil(
        size={"shortest_edge": SIDE},
        crop_size={"height": SIDE, "width": SIDE},
        image_grid_pinpoints=[[SIDE, SIDE]],
        image_mean=half,
        image_std=half,
    )
    return LlavaNextProcessor(
        images,
        _tokenizer(words),
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        image_token=IMAGE,
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    )


def _tokenizer(words: Sequence[str]) -> Any:
    """One token a word or punctuation mark, in lower case."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token=UNKNOWN,
        pad_token="</s>",
        additional_special_tokens=[IMAGE, OPEN, CLOSE],
    )


def build_model(tokenizer: Any) -> Any:
    """The untrained model; its weights are drawn from torch's present random state."""
    from transformers import (
        CLIPVisionConfig,
        LlavaNextConfig,
        LlavaNextForConditionalGeneration,
        MistralConfig,
    )

    size = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = MistralConfig(
        vocab_size=len(tokenizer),
        num_key_value_heads=4,
        max_position_embeddings=MAX_LENGTH,
        sliding_window=None,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **size,
    )
    model = LlavaNextForConditionalGeneration(
        LlavaNextConfig(
            vision_config=CLIPVisionConfig(image_size=SIDE, patch_size=PATCH, **size),
            text_config=text,
            image_token_index=tokenizer.convert_tokens_to_ids(IMAGE),
            image_grid_pinpoints=[[SIDE, SIDE]],
            vision_feature_layer=-1,
            image_seq_length=(SIDE // PATCH) ** 2,
        )
    )
    with torch.no_grad():
        model.model.vision_tower.embeddings.patch_embedding.weight.mul_(_PATCH_GAIN)
    return model


RECORD = "training.json"


def write(
    questions: Path, folder: Path, say: Callable[[str], None], training: ImageTraining | None = None
) -> None:
    """Train on ``questions`` (the package's train/questions.json, images beside it) and save into ``folder``.

    The folder loads with AutoProcessor and AutoModelForImageTextToText. Raises IntegrityError for an image
    that is missing or damaged, and TrainingError as `easy_vqa_model.training.fit`.
    """
    training = training or ImageTraining()
    started = time.monotonic()
    examples = read_questions(questions)
    pixels = read_images(questions.parent / "images", 1 + max(item.image for item in examples))
    say(f"training easy-vqa-llava on {len(examples)} questions, a minute or two")
    processor = build_processor(vocabulary(examples))
    model, loss = fit(partial(build_model, processor.tokenizer), processor, pixels, examples, training, say)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    record = asdict(training) | {
        "final_loss": loss,
        "seconds": round(time.monotonic() - started, 1),
        "torch": str(torch.__version__),
        "parameters": sum(weight.numel() for weight in model.parameters()),
    }
    (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n")


def read_questions(path: Path) -> list[ImageQuestion]:
    """The questions of one pool, in the file's order."""
    return [ImageQuestion(*row) for row in json.loads(path.read_text(encoding="utf-8"))]


def read_images(folder: Path, count: int) -> torch.Tensor:
    """Images 0.png to ``count`` - 1 as uint8 (count, 3, 64, 64)."""
    return torch.stack([_pixels(folder / f"{number}.png") for number in range(count)])


def vocabulary(examples: list[ImageQuestion]) -> list[str]:
    """Every word and mark of the questions and answers, sorted."""
    texts = {text for item in examples for text in (item.question, item.answer)}
    return sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower())})


def _pixels(path: Path) -> torch.Tensor:
    import numpy as np
    from PIL import Image

    try:
        with Image.open(path) as image:
            pixels: Any = np.array(image.convert("RGB"))
    except OSError as error:
        raise IntegrityError(f"{path} cannot be read ({error}). Install easy-vqa 1.0 again.") from error
    if pixels.shape != (SIDE, SIDE, 3):
        raise IntegrityError(
            f"{path} has {pixels.shape[1]} x {pixels.shape[0]} pixels, expected {SIDE} x {SIDE}. "
            "Install easy-vqa 1.0 again."
        )
    return torch.from_numpy(pixels).permute(2, 0, 1)
