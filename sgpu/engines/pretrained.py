"""A checkpoint as transformers runs it: the weights, and what turns prompts into their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sgpu.engines.base import EngineConfig, Prompt, locate_weights
from sgpu.engines.prompts import RenderedPrompt, check_prompt_form, render_all
from sgpu.errors import UsageError
from sgpu.models.machine import on_cpu


class Pretrained:
    """A text or an image model on its device, with its tokenizer and chat template.

    Sampling and hidden states share it, so that both read exactly the same input. Of ``EngineConfig.options``
    ``chat_options`` go to the chat template, ``processor_options`` to the image processor, the others to
    ``from_pretrained``. Code that a checkpoint brings along is never run.
    """

    def __init__(self, config: EngineConfig) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

        self.config = config = locate_weights(config)
        options = dict(config.options)
        self._chat_options: Any = options.pop("chat_options", {})
        processor_options: Any = options.pop("processor_options", {})
        options.pop("prompts_together", None)  # of the sampling engine alone
        self.device = "cpu" if on_cpu(config.device) else "cuda" if config.device == "auto" else config.device
        model_config = AutoConfig.from_pretrained(
            config.model, revision=config.revision, trust_remote_code=False
        )
        self.reads_images = reads_images(model_config)
        self._front: Any = load_front(config, model_config, processor_options)
        self.tokenizer: Any = self._front.tokenizer if self.reads_images else self._front
        if config.prompt_form:  # before the weights are loaded, which takes minutes
            check_prompt_form(config.prompt_form, lambda prompt: self.render([prompt], 1)[0].text)
        loader = AutoModelForImageTextToText if self.reads_images else AutoModelForCausalLM
        self.model: Any = loader.from_pretrained(
            config.model,
            revision=config.revision,
            dtype=getattr(torch, config.dtype),
            use_safetensors=True,
            trust_remote_code=False,
            **options,
        )
        self.model.to(self.device).eval()
        self._shifted = [module for module in self.model.modules() if hasattr(module, "rope_deltas")]

    def render(self, prompts: Sequence[Prompt], max_new_tokens: int) -> list[RenderedPrompt]:
        """The prompts after the chat template, in order.

        Raises ValueError for an image that the model cannot read, and as `render_prompt`.
        """
        for prompt in prompts:
            if prompt.image is not None and not self.reads_images:
                raise ValueError(
                    f"{self.config.model} cannot read the image of the prompt {prompt.messages!r}"
                )
        limit = self.config.max_model_len - max_new_tokens
        return render_all(self._front, self.tokenizer, prompts, self._chat_options, limit)

    def inputs(self, text: RenderedPrompt) -> Any:
        """Return what the model's forward pass takes, on its device: token ids (1, T), pixels of an image.

        The next forward pass without a cache must be that of this prompt.
        """
        # Qwen-VL remembers by how much its last image shifted the positions after it. A text that came next
        # would be continued with that shift.
        for module in self._shifted:
            module.rope_deltas = None
        if text.image is None:
            return {"input_ids": torch.tensor([text.token_ids], device=self.device)}
        return self._front(
            text=text.text,
            images=[text.image],
            add_special_tokens=text.special_tokens,
            return_tensors="pt",
        ).to(self.device, dtype=self.model.dtype)


def reads_images(model_config: Any) -> bool:
    """Whether transformers knows the architecture as one that answers about images."""
    from transformers import AutoModelForImageTextToText

    return type(model_config) in AutoModelForImageTextToText._model_mapping


def load_front(config: EngineConfig, model_config: Any, processor_options: dict[str, Any]) -> Any:
    """The tokenizer of a text model; of an image model the processor, which holds the tokenizer.

    Raises UsageError for an option that the image processor does not have.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(config.model, revision=config.revision, trust_remote_code=False)
    if reads_images(model_config):
        return _processor(config, model_config, tokenizer, processor_options)
    if processor_options:
        raise UsageError(f"{config.model} reads no images, so it takes no processor_options")
    return tokenizer


def _processor(config: EngineConfig, model_config: Any, tokenizer: Any, options: dict[str, Any]) -> Any:
    """Built from its parts: `AutoProcessor` would also build a reader of videos, which needs torchvision.

    Pixels are scaled by PIL whatever else is installed, so that every machine gives the model the same ones.
    """
    from transformers import AutoImageProcessor, ProcessorMixin
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING, processor_class_from_name

    images = AutoImageProcessor.from_pretrained(
        config.model, backend="pil", revision=config.revision, trust_remote_code=False, **options
    )
    accepted = sorted(type(images).valid_kwargs.__annotations__)
    if unknown := sorted(set(options) - set(accepted)):
        raise UsageError(
            f"unknown processor_options {', '.join(unknown)} of {config.model}. Known: {', '.join(accepted)}."
        )
    settings, _ = ProcessorMixin.get_processor_dict(config.model, revision=config.revision)
    # The class that the checkpoint names, if transformers itself has it, else that of its architecture.
    named = processor_class_from_name(settings.get("processor_class") or "")
    kind: Any = named or PROCESSOR_MAPPING[type(model_config)]
    parts = {"tokenizer": tokenizer, "image_processor": images, "video_processor": None}
    if missing := [part for part in kind.get_attributes() if part not in parts]:
        raise UsageError(
            f"{kind.__name__} of {config.model} needs {', '.join(missing)}, which is not supported"
        )
    processor = _without_videos(kind).from_args_and_dict(
        [parts[part] for part in kind.get_attributes()], settings
    )
    processor.chat_template = processor.chat_template or tokenizer.chat_template
    return processor


def _without_videos(kind: Any) -> Any:
    """The processor's class, taking None for its reader of videos, whose class needs torchvision too."""

    class WithoutVideos(kind):
        def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> Any:
            if argument is None and argument_name == "video_processor":
                return None
            return super().check_argument_for_proper_class(argument_name, argument)

    return WithoutVideos
