"""From chat messages to the exact text and token ids that a local model reads."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sgpu.engines.base import Prompt
from sgpu.images import FORMATS


@dataclass(frozen=True)
class RenderedPrompt:
    """The text after the chat template; ``sha256`` covers the text and, if there is one, the image.

    In ``token_ids`` an image is still one token; the model's processor puts its own number in that place.
    """

    text: str
    token_ids: tuple[int, ...]
    sha256: str
    special_tokens: bool = False  # whether the tokenizer adds those that the template left out


def render(
    template: Any, tokenizer: Any, prompt: Prompt, chat_options: Mapping[str, object], max_tokens: int
) -> RenderedPrompt:
    """Apply the chat template of ``template`` (a tokenizer, or the processor of an image model).

    A template may add a default system prompt; a system message in the prompt replaces it. Raises
    ValueError if there are no messages, no template, an image that cannot be opened or that the text has no
    single place for, or more than ``max_tokens`` tokens, those of the image included.
    """
    if not prompt.messages:
        raise ValueError(f"the prompt with seed {prompt.seed} has no messages")
    if not template.chat_template:
        raise ValueError(
            f"{tokenizer.name_or_path} has no chat template, so messages cannot be turned into its input. "
            "Use the instruction-tuned version of the model."
        )
    is_processor = template is not tokenizer
    text = template.apply_chat_template(
        chat_messages(prompt, as_parts=is_processor),
        tokenize=False,
        add_generation_prompt=True,
        **chat_options,
    )
    # A tokenizer's template writes every special token, and adding them again would double the first one.
    # Templates of processors may leave the first one to the tokenizer (LLaVA-NeXT and Idefics2 do).
    bos = tokenizer.bos_token
    special = is_processor and not (bos and text.startswith(bos))
    token_ids = tuple(tokenizer(text, add_special_tokens=special).input_ids)
    rendered = RenderedPrompt(text, token_ids, prompt_sha256(text, prompt.image), special)
    n_tokens = len(token_ids) if prompt.image is None else _n_expanded(template, rendered, prompt)
    if n_tokens > max_tokens:
        of_image = "" if prompt.image is None else f", {n_tokens - len(token_ids) + 1} of them for its image"
        remedy = "Shorten it" if prompt.image is None else "Shorten it, lower the pixels of its image,"
        raise ValueError(
            f"the prompt {prompt.messages[-1][1][:80]!r} has {n_tokens} tokens{of_image}; at most "
            f"{max_tokens} leave room for an answer. {remedy} or raise max_model_len."
        )
    return rendered


def chat_messages(prompt: Prompt, as_parts: bool = False) -> list[dict[str, Any]]:
    """The messages as chat templates take them; an image stands before the text of the last one.

    ``as_parts`` writes texts as lists too: the templates of processors read nothing else.
    """
    messages: list[dict[str, Any]] = [{"role": role, "content": text} for role, text in prompt.messages]
    if as_parts or prompt.image is not None:
        messages = [m | {"content": [{"type": "text", "text": m["content"]}]} for m in messages]
    if prompt.image is not None:
        messages[-1]["content"].insert(0, {"type": "image"})
    return messages


def _n_expanded(processor: Any, rendered: RenderedPrompt, prompt: Prompt) -> int:
    """How many tokens the model reads once the processor has expanded the image's place in the text."""
    places = rendered.token_ids.count(processor.image_token_id)
    if places != 1:
        raise ValueError(
            f"the prompt {prompt.messages[-1][1][:80]!r} has one image and {places} places for it: its text "
            f"may not contain {processor.image_token!r}, and the chat template must write it once"
        )
    image = open_image(prompt.image or b"")
    # What vLLM asks processors for: the count without any work on pixels. Idefics2 does not have it.
    count = getattr(processor, "_get_num_multimodal_tokens", None)
    if count is not None:
        n_image_tokens = count(image_sizes=[(image.height, image.width)])["num_image_tokens"][0]
        return len(rendered.token_ids) - 1 + int(n_image_tokens)
    inputs = processor(text=rendered.text, images=[image], add_special_tokens=rendered.special_tokens)
    return len(inputs["input_ids"][0])


def prompt_sha256(text: str, image: bytes | None = None) -> str:
    digest = hashlib.sha256(text.encode())
    if image is not None:
        digest.update(hashlib.sha256(image).digest())
    return digest.hexdigest()


def single_token_id(tokenizer: Any, text: str) -> int | None:
    """The id of ``text`` if it is exactly one token, else None."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    return int(ids[0]) if len(ids) == 1 else None


def open_image(data: bytes) -> Any:
    """The image as PIL holds it, in RGB. Raises ValueError for bytes that are no image of a known format."""
    from PIL import Image

    try:
        return Image.open(io.BytesIO(data), formats=FORMATS).convert("RGB")
    except Exception as error:  # decoders raise whatever their parsers do
        raise ValueError(
            f"the image of a prompt ({len(data)} bytes that start with {data[:8]!r}) cannot be opened: "
            f"{type(error).__name__}: {error}. Prepare it with `sgpu.images.prepare_image`."
        ) from error


def candidate_token_ids(tokenizer: Any, candidates: Sequence[str]) -> list[int | None]:
    """The token of each candidate; None where it is not one token, or a token that an earlier one has.

    Two spellings that share a token would otherwise be counted twice when their probabilities are added.
    """
    ids = [single_token_id(tokenizer, candidate) for candidate in candidates]
    return [token if token not in ids[:position] else None for position, token in enumerate(ids)]
