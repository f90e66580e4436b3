"""Image models of random weights with the files that their families have, small enough to build in a test."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import processors
from transformers import (
    AutoTokenizer,
    CLIPVisionConfig,
    Idefics2Config,
    Idefics2ForConditionalGeneration,
    LlamaConfig,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)
from transformers.models.idefics2.image_processing_pil_idefics2 import Idefics2ImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from tests.engines.tiny_llama import build

# Heads of 32, which is the least that attention on a GPU takes.
SIZE = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
# The usual 0.02 would make every token as likely as any other, whatever the image.
SPREAD = {"initializer_range": 0.3}

# After the families' own: LLaVA-NeXT and Idefics2 leave <s> to the tokenizer.
LLAVA_NEXT_TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'user' %}[INST] {% else %}<<SYS>>\n{% endif %}"
    "{% for part in m['content'] if part['type'] == 'image' %}<image>\n{% endfor %}"
    "{% for part in m['content'] if part['type'] == 'text' %}{{ part['text'] }}{% endfor %}"
    "{% if m['role'] == 'user' %} [/INST]{% else %}\n<</SYS>>\n\n{% endif %}{% endfor %}"
)
QWEN_TEMPLATE = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}"
    "<|im_start|>system\nYou help.<|im_end|>\n{% endif %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for part in m['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}"
    "{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
IDEFICS2_TEMPLATE = (
    "{% for m in messages %}{{ m['role'].capitalize() }}"
    "{{ ':' if m['content'][0]['type'] == 'image' else ': ' }}{% for part in m['content'] %}"
    "{{ '<image>' if part['type'] == 'image' else part['text'] }}{% endfor %}<end_of_utterance>\n"
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)


def build_llava_next(folder: Path) -> Path:
    """Sees 16 x 16 pixels as one tile of 2 x 2 patches, and larger images as further tiles."""
    tokenizer = _tokenizer(folder, ["<image>"], bos=True)
    pinpoints = [[16, 32], [32, 16], [32, 32]]
    LlavaNextImageProcessorPil(
        size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}, image_grid_pinpoints=pinpoints
    ).save_pretrained(folder)
    settings = {
        "processor_class": "LlavaNextProcessor",
        "patch_size": 8,
        "vision_feature_select_strategy": "default",
        "num_additional_image_tokens": 1,
        "image_token": "<image>",
    }
    _write_processor(folder, tokenizer, LLAVA_NEXT_TEMPLATE, settings)
    torch.manual_seed(11)
    config = LlavaNextConfig(
        vision_config=CLIPVisionConfig(image_size=16, patch_size=8, projection_dim=32, **SIZE),
        text_config=LlamaConfig(vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=1, **SIZE, **SPREAD),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_grid_pinpoints=pinpoints,
    )
    LlavaNextForConditionalGeneration(config).save_pretrained(folder)
    # The names of the checkpoints on the Hub, which transformers still reads and vLLM expects.
    weights = load_file(folder / "model.safetensors")
    named = {
        re.sub("vision_tower.(?!vision_model)", "vision_tower.vision_model.", k): v
        for k, v in weights.items()
    }
    save_file(named, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def build_qwen2_5_vl(folder: Path) -> Path:
    """One token for each 28 x 28 pixels, with positions in three dimensions."""
    marks = [
        "<|im_start|>",
        "<|im_end|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|image_pad|>",
        "<|video_pad|>",
    ]
    tokenizer = _tokenizer(folder, marks)
    Qwen2VLImageProcessorPil(min_pixels=28 * 28, max_pixels=64 * 28 * 28).save_pretrained(folder)
    _write_processor(folder, tokenizer, QWEN_TEMPLATE, {"processor_class": "Qwen2_5_VLProcessor"})
    torch.manual_seed(14)
    ids = dict(zip(marks, tokenizer.convert_tokens_to_ids(marks), strict=True))
    config = Qwen2_5_VLConfig(
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": 64,
            "fullatt_block_indexes": [1],
        },
        text_config={
            "vocab_size": len(tokenizer),
            "num_key_value_heads": 1,
            "rope_parameters": {"rope_type": "default", "mrope_section": [4, 6, 6], "rope_theta": 100.0},
            "bos_token_id": 0,
            "eos_token_id": 1,
            **SIZE,
            **SPREAD,
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )
    Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)
    return folder


def build_idefics2(folder: Path) -> Path:
    """Four latents a tile, of any aspect: padded pixels carry a mask."""
    tokenizer = _tokenizer(folder, ["<fake_token_around_image>", "<image>", "<end_of_utterance>"], bos=True)
    Idefics2ImageProcessorPil(size={"shortest_edge": 16, "longest_edge": 32}).save_pretrained(folder)
    settings = {"processor_class": "Idefics2Processor", "image_seq_len": 4}
    _write_processor(folder, tokenizer, IDEFICS2_TEMPLATE, settings)
    torch.manual_seed(17)
    config = Idefics2Config(
        vision_config={**SIZE, "image_size": 32, "patch_size": 8},
        perceiver_config={
            "hidden_size": 64,
            "resampler_n_latents": 4,
            "resampler_depth": 1,
            "resampler_n_heads": 2,
            "resampler_head_dim": 32,
            "num_key_value_heads": 1,
        },
        text_config=MistralConfig(
            vocab_size=len(tokenizer),
            num_key_value_heads=1,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=0,
            sliding_window=None,
            **SIZE,
            **SPREAD,
        ),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
    )
    Idefics2ForConditionalGeneration(config).save_pretrained(folder)
    return folder


FAMILIES: dict[str, Callable[[Path], Path]] = {
    "llava_next": build_llava_next,
    "qwen2_5_vl": build_qwen2_5_vl,
    "idefics2": build_idefics2,
}


def picture(seed: int, width: int = 90, height: int = 60) -> bytes:
    """Random pixels as a binary PPM."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PPM")
    return buffer.getvalue()


def _tokenizer(folder: Path, marks: Sequence[str], bos: bool = False) -> Any:
    """That of the tiny Llama with the family's special tokens; ``bos``: begins every text with <s>."""
    tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(build(folder))
    tokenizer.add_special_tokens({"additional_special_tokens": list(marks)})
    if bos:
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)]
        )
    return tokenizer


def _write_processor(folder: Path, tokenizer: Any, template: str, settings: dict[str, Any]) -> None:
    """As on the Hub: the template and the settings in files of their own, beside those of the parts."""
    tokenizer.chat_template = None
    tokenizer.save_pretrained(folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    (folder / "processor_config.json").write_text(json.dumps(settings))
