"""A checkpoint as transformers runs it: the weights, and what turns prompts into their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sgpu.engines.base import EngineConfig, Prompt
from sgpu.engines.prompts import RenderedPrompt, open_image, render


class Pretrained:
    """A text or an image model on its device, with its tokenizer and chat template.

    Sampling and hidden states share it, so that both read exactly the same input.
    """

    def __init__(self, config: EngineConfig) -> None:
        from transformers import (
            AutoConfig,
            AutoModelForCausalLM,
            AutoModelForImageTextToText,
            AutoProcessor,
            AutoTokenizer,
        )

        self.config = config
        options = dict(config.options)
        self._chat_options: Any = options.pop("chat_options", {})
        self.device = _device(config.device)
        model_config = AutoConfig.from_pretrained(config.model, revision=config.revision)
        self.reads_images = type(model_config) in AutoModelForImageTextToText._model_mapping
        loader = AutoModelForImageTextToText if self.reads_images else AutoModelForCausalLM
        self.model: Any = loader.from_pretrained(
            config.model,
            revision=config.revision,
            dtype=getattr(torch, config.dtype),
            use_safetensors=True,
            **options,
        )
        self.model.to(self.device).eval()
        front = AutoProcessor if self.reads_images else AutoTokenizer
        self._front: Any = front.from_pretrained(config.model, revision=config.revision)
        self.tokenizer: Any = self._front.tokenizer if self.reads_images else self._front

    def render(self, prompts: Sequence[Prompt], max_new_tokens: int) -> list[RenderedPrompt]:
        """The prompts after the chat template, in order.

        Raises ValueError for an image that the model cannot read, and as `sgpu.engines.prompts.render`.
        """
        for prompt in prompts:
            if prompt.image is not None and not self.reads_images:
                raise ValueError(
                    f"{self.config.model} cannot read the image of the prompt {prompt.messages!r}"
                )
        limit = self.config.max_model_len - max_new_tokens
        return [render(self._front, self.tokenizer, prompt, self._chat_options, limit) for prompt in prompts]

    def inputs(self, prompt: Prompt, text: RenderedPrompt) -> Any:
        """What the model's forward pass takes, on its device: token ids (1, T), and pixels of an image."""
        if prompt.image is None:
            return {"input_ids": torch.tensor([text.token_ids], device=self.device)}
        return self._front(
            text=text.text,
            images=[open_image(prompt.image)],
            add_special_tokens=False,
            return_tensors="pt",
        ).to(self.device, dtype=self.model.dtype)


def _device(device: str) -> str:
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"
