"""A LLaVA-NeXT of 0.7 million parameters, with its tokenizer and image processor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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

    vocabulary = {word: place for place, word in enumerate([*SPECIAL, *words])}
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
    import torch
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
