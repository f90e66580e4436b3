"""From chat messages to the exact text and token ids that a local model reads."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sgpu.engines.base import Prompt


@dataclass(frozen=True)
class RenderedPrompt:
    """The text after the chat template; ``sha256`` covers the text and, if there is one, the image."""

    text: str
    token_ids: tuple[int, ...]
    sha256: str


def render(
    template: Any, tokenizer: Any, prompt: Prompt, chat_options: Mapping[str, object], max_tokens: int
) -> RenderedPrompt:
    """Apply the chat template of ``template`` (a tokenizer, or the processor of an image model).

    A template may add a default system prompt; a system message in the prompt replaces it. Raises
    ValueError if there are no messages, no template, or more than ``max_tokens`` tokens.
    """
    if not prompt.messages:
        raise ValueError(f"the prompt with seed {prompt.seed} has no messages")
    if not template.chat_template:
        raise ValueError(
            f"{tokenizer.name_or_path} has no chat template, so messages cannot be turned into its input. "
            "Use the instruction-tuned version of the model."
        )
    text = template.apply_chat_template(
        chat_messages(prompt), tokenize=False, add_generation_prompt=True, **chat_options
    )
    # The template wrote the special tokens; adding them again would double the first one.
    token_ids = tuple(tokenizer(text, add_special_tokens=False).input_ids)
    if len(token_ids) > max_tokens:
        raise ValueError(
            f"the prompt {prompt.messages[-1][1][:80]!r} has {len(token_ids)} tokens; at most {max_tokens} "
            "leave room for an answer. Shorten it or raise max_model_len."
        )
    return RenderedPrompt(text, token_ids, prompt_sha256(text, prompt.image))


def chat_messages(prompt: Prompt) -> list[dict[str, Any]]:
    """The messages as chat templates take them; an image stands before the text of the last one."""
    messages: list[dict[str, Any]] = [{"role": role, "content": text} for role, text in prompt.messages]
    if prompt.image is not None:
        messages = [m | {"content": [{"type": "text", "text": m["content"]}]} for m in messages]
        messages[-1]["content"].insert(0, {"type": "image"})
    return messages


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
    """The image as PIL holds it, in RGB."""
    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGB")


def candidate_token_ids(tokenizer: Any, candidates: Sequence[str]) -> list[int | None]:
    """The token of each candidate; None where it is not one token, or a token that an earlier one has.

    Two spellings that share a token would otherwise be counted twice when their probabilities are added.
    """
    ids = [single_token_id(tokenizer, candidate) for candidate in candidates]
    return [token if token not in ids[:position] else None for position, token in enumerate(ids)]
