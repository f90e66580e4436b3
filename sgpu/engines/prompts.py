"""From chat messages to the exact text and token ids that a local model reads.

A chat template comes with the checkpoint and can change upstream, which would change every answer without
a word. So a card's ``prompt_form`` names the family that its checkpoint must render like, letter by letter:
that is checked when an engine is built.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from sgpu.engines.base import Prompt
from sgpu.errors import PromptError, UsageError
from sgpu.images import FORMATS
from sgpu.registry import unknown_name


@dataclass(frozen=True)
class RenderedPrompt:
    """A prompt after the chat template, its image decoded; ``sha256`` covers text and image.

    In ``token_ids`` an image is still one token; the model's processor puts its own number in that place.
    """

    text: str
    token_ids: tuple[int, ...]
    sha256: str
    special_tokens: bool = False  # whether the tokenizer adds those that the template left out
    image: Any = field(default=None, compare=False, repr=False)  # PIL, RGB: decoded once for all answers


def render_all(
    template: Any,
    tokenizer: Any,
    prompts: Sequence[Prompt],
    chat_options: Mapping[str, object],
    max_tokens: int,
) -> list[RenderedPrompt]:
    """Render each prompt, see `render_prompt`. Raises PromptError, with a reason for each that it cannot."""
    rendered, reasons = [], {}
    for index, prompt in enumerate(prompts):
        try:
            rendered.append(render_prompt(template, tokenizer, prompt, chat_options, max_tokens))
        except ValueError as error:
            reasons[index] = str(error)
    if reasons:
        raise PromptError(reasons)
    return rendered


def render_prompt(
    template: Any, tokenizer: Any, prompt: Prompt, chat_options: Mapping[str, object], max_tokens: int
) -> RenderedPrompt:
    """Apply the chat template of ``template`` (a tokenizer, or the processor of an image model).

    A template may add a default system prompt; a system message in the prompt replaces it. Raises
    ValueError if there are no messages, no template, an image that cannot be opened or that the text has no
    single place for, or more than ``max_tokens`` tokens, those of the image included.
    """
    if not prompt.messages:
        raise ValueError(f"the prompt with seed {prompt.seed} has no messages")
    if not template.chat_template and "chat_template" not in chat_options:
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
    image = None if prompt.image is None else open_image(prompt.image)
    rendered = RenderedPrompt(text, token_ids, prompt_sha256(text, prompt.image), special, image)
    n_tokens = len(token_ids) if image is None else _n_expanded(template, rendered, prompt)
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
    # What vLLM asks processors for: the count without any work on pixels. Idefics2 does not have it.
    count = getattr(processor, "_get_num_multimodal_tokens", None)
    if count is not None:
        size = rendered.image.height, rendered.image.width
        n_image_tokens = count(image_sizes=[size])["num_image_tokens"][0]
        return len(rendered.token_ids) - 1 + int(n_image_tokens)
    inputs = processor(
        text=rendered.text, images=[rendered.image], add_special_tokens=rendered.special_tokens
    )
    return len(inputs["input_ids"][0])


def prompt_sha256(text: str, image: bytes | None = None) -> str:
    digest = hashlib.sha256(text.encode())
    if image is not None:
        digest.update(hashlib.sha256(image).digest())
    return digest.hexdigest()


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
    encoded = [tokenizer.encode(candidate, add_special_tokens=False) for candidate in candidates]
    ids = [int(tokens[0]) if len(tokens) == 1 else None for tokens in encoded]
    return [token if token not in ids[:position] else None for position, token in enumerate(ids)]


# (system prompt or None, the user's text, whether an image stands before it) -> the rendered prompt
PromptForm = Callable[[str | None, str, bool], str]


@dataclass(frozen=True)
class PromptFamily:
    """The prompt form of one family; ``has_system_role`` is False where a system prompt has no place."""

    form: PromptForm
    reads_images: bool = False
    has_system_role: bool = True


def chatml(default_system: str) -> PromptForm:
    """ChatML, with a default system prompt; the image is one placeholder between two marks."""

    def form(system: str | None, user: str, image: bool) -> str:
        picture = "<|vision_start|><|image_pad|><|vision_end|>" if image else ""
        return (
            f"<|im_start|>system\n{default_system if system is None else system}<|im_end|>\n"
            f"<|im_start|>user\n{picture}{user}<|im_end|>\n"
            "<|im_start|>assistant\n"
        )

    return form


def llama_3_1(system: str | None, user: str, image: bool = False) -> str:
    """Llama 3.1 and 3.3: two lines of dates open the system prompt, and texts lose outer white space."""
    return (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
        "Cutting Knowledge Date: December 2023\n"
        "Today Date: 26 Jul 2024\n\n"
        f"{(system or '').strip()}<|eot_id|>"
        f"<|start_header_id|>user<|end_header_id|>\n\n{user.strip()}<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def llama_3_1_base(system: str | None, user: str, image: bool = False) -> str:
    """Return the text as it is, behind the first token; UsageError for a system prompt."""
    if system is not None:
        raise UsageError(
            "the prompt form 'llama-3.1-base' has no system role: write the text into the prompt"
        )
    return f"<|begin_of_text|>{user}"


def llava_next_mistral(system: str | None, user: str, image: bool) -> str:
    """Mistral's instruction marks around image and text.

    Raises UsageError for a system prompt: Mistral was trained on none, and the checkpoint's template would
    put it in front of the instruction, in marks of Llama 2 that this model does not know.
    """
    if system is not None:
        raise UsageError(
            "the prompt form 'llava-next-mistral' has no system role. Write the text into the prompt of the "
            "question (sampling.prompt) instead."
        )
    picture = "<image>\n" if image else ""
    return f"[INST] {picture}{user} [/INST]"


def idefics2(system: str | None, user: str, image: bool) -> str:
    """Roles as words; a text that opens a turn stands after a space, an image does not."""
    opening = "" if system is None else f"System: {system}<end_of_utterance>\n"
    picture = "<image>" if image else " "
    return f"{opening}User:{picture}{user}<end_of_utterance>\nAssistant:"


PROMPT_FAMILIES: dict[str, PromptFamily] = {
    "qwen2.5-vl": PromptFamily(chatml("You are a helpful assistant."), reads_images=True),
    "llava-next-mistral": PromptFamily(llava_next_mistral, reads_images=True, has_system_role=False),
    "idefics2": PromptFamily(idefics2, reads_images=True),
    "llama-3.1": PromptFamily(llama_3_1),
    "llama-3.1-base": PromptFamily(llama_3_1_base, has_system_role=False),
    "qwen2.5": PromptFamily(chatml("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.")),
    "smollm2": PromptFamily(chatml("You are a helpful AI assistant named SmolLM, trained by Hugging Face")),
}


def prompt_family(name: str) -> PromptFamily:
    """The family of a card's ``prompt_form``; UsageError for an unknown name."""
    if name not in PROMPT_FAMILIES:
        raise UsageError(unknown_name("prompt form", name, sorted(PROMPT_FAMILIES)))
    return PROMPT_FAMILIES[name]


def check_prompt_form(name: str, render: Callable[[Prompt], str]) -> None:
    """Render probe messages with ``render`` and compare them with the family's form.

    Raises UsageError that shows the first difference, or the template's own error: this checkpoint's chat
    template is not the one that the family stands for.
    """
    for prompt, expected in _probes(prompt_family(name)):
        case = f"{'with' if prompt.image is not None else 'without'} an image, " + (
            "with a system prompt" if len(prompt.messages) > 1 else "without a system prompt"
        )
        try:
            text = render(prompt)
        except Exception as error:  # a template may raise what it likes
            raise _mismatch(name, case, f"it fails with {type(error).__name__}: {error}") from error
        if text != expected:
            raise _mismatch(name, case, first_difference(text, expected))


def first_difference(text: str, expected: str) -> str:
    """Where ``text`` leaves ``expected``, with 30 characters of both on each side."""
    pairs = zip(text, expected, strict=False)
    at = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    near = slice(max(0, at - 30), at + 30)
    return f"at character {at} it gives {text[near]!r}, expected is {expected[near]!r}"


def _probes(family: PromptFamily) -> Iterator[tuple[Prompt, str]]:
    user = "What is shown?\nAnswer in one word."
    for image in (True, False) if family.reads_images else (False,):
        for system in (None, "Be brief.") if family.has_system_role else (None,):
            messages = (("user", user),) if system is None else (("system", system), ("user", user))
            yield Prompt(messages, 0, _probe_image() if image else None), family.form(system, user, image)


def _probe_image() -> bytes:
    """A picture that every image processor can read: rendering may count its tokens."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (64, 64)).save(buffer, "PNG")
    return buffer.getvalue()


def _mismatch(name: str, case: str, difference: str) -> UsageError:
    return UsageError(
        f"the chat template of this checkpoint is not that of the prompt form {name!r} ({case}): "
        f"{difference}. Its prompts, and so all answers, would differ from those of earlier runs. Pin "
        "the revision of the model, or copy the weights to a folder with a name of its own: prompts of a "
        "model without a card are not checked."
    )
