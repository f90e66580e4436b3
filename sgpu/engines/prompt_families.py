"""What each family of models must read, letter by letter: checked when an engine is built.

A chat template comes with the checkpoint and can change upstream, which would change every answer without
a word. A card's ``prompt_form`` names the family that its checkpoint must render like.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sgpu.engines.base import Prompt
from sgpu.errors import UsageError
from sgpu.registry import unknown_name

# (system prompt or None, the user's text, whether an image stands before it) -> the rendered prompt
PromptForm = Callable[[str | None, str, bool], str]


@dataclass(frozen=True)
class PromptFamily:
    """The prompt form of one family; ``has_system_role`` is False where a system prompt has no place."""

    form: PromptForm
    reads_images: bool = False
    has_system_role: bool = True


def qwen2_5_vl(system: str | None, user: str, image: bool) -> str:
    """ChatML, with a default system prompt; the image is one placeholder between two marks."""
    if system is None:
        system = "You are a helpful assistant."
    picture = "<|vision_start|><|image_pad|><|vision_end|>" if image else ""
    return (
        f"<|im_start|>system\n{system}<|im_end|>\n"
        f"<|im_start|>user\n{picture}{user}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def qwen2_5(system: str | None, user: str, image: bool = False) -> str:
    """ChatML, with a default system prompt."""
    if system is None:
        system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    return (
        f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
    )


def smollm2(system: str | None, user: str, image: bool = False) -> str:
    """ChatML, with a default system prompt."""
    if system is None:
        system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    return (
        f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
    )


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
    "qwen2.5-vl": PromptFamily(qwen2_5_vl, reads_images=True),
    "llava-next-mistral": PromptFamily(llava_next_mistral, reads_images=True, has_system_role=False),
    "idefics2": PromptFamily(idefics2, reads_images=True),
    "llama-3.1": PromptFamily(llama_3_1),
    "qwen2.5": PromptFamily(qwen2_5),
    "smollm2": PromptFamily(smollm2),
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


def first_difference(text: str, expected: str, around: int = 30) -> str:
    """Where ``text`` leaves ``expected``, with ``around`` characters of both on each side."""
    at = next(
        (i for i, (left, right) in enumerate(zip(text, expected, strict=False)) if left != right),
        min(len(text), len(expected)),
    )
    near = slice(max(0, at - around), at + around)
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
