"""Twenty answers to one prompt with an image: our engine, which reads the prompt once, and plain `generate`;
and twenty answers to each of four prompts, continued together and one prompt at a time.

Run it with `python -m bench.shared_prefill`.
`generate(num_return_sequences=20)` repeats prompt and pixels twenty times before it reads them.
"""

from __future__ import annotations

import io
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    PreTrainedTokenizerFast,
)
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil

from sgpu.engines.base import EngineConfig, Prompt, Sampling
from sgpu.engines.transformers import TransformersEngine

N, PROMPT_TOKENS, ANSWER_TOKENS = 20, 1000, 12
REPEATS = 2
BOUND = 1 / 0.35
TOGETHER, TOGETHER_BOUND = 4, 1.3
TILE, PATCH = 112, 14
TEMPLATE = (
    "{% for m in messages %}{% for part in m['content'] %}"
    "{{ '<image>' if part['type'] == 'image' else part['text'] }}{% endfor %}{% endfor %}"
)


def random_model(folder: Path) -> None:
    """A LLaVA-NeXT that reads an image as 336 tokens. It has no end token, so answers have their full length.

    Its language model has 8 layers of width 512, its vision model 2 of width 64.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(["<image>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, additional_special_tokens=["<image>"], chat_template=TEMPLATE
    ).save_pretrained(folder)
    grid = [[2 * TILE, 2 * TILE]]
    LlavaNextImageProcessorPil(
        size={"shortest_edge": TILE}, crop_size={"height": TILE, "width": TILE}, image_grid_pinpoints=grid
    ).save_pretrained(folder)
    settings = {
        "processor_class": "LlavaNextProcessor",
        "patch_size": PATCH,
        "vision_feature_select_strategy": "default",
        "num_additional_image_tokens": 1,
    }
    (folder / "processor_config.json").write_text(json.dumps(settings))
    torch.manual_seed(0)
    config = LlavaNextConfig(
        vision_config=CLIPVisionConfig(
            image_size=TILE,
            patch_size=PATCH,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
        ),
        text_config=LlamaConfig(
            vocab_size=len(vocabulary),
            hidden_size=512,
            intermediate_size=1376,
            num_hidden_layers=8,
            num_attention_heads=8,
            bos_token_id=None,
            eos_token_id=None,
        ),
        image_token_index=0,
        image_grid_pinpoints=grid,
    )
    LlavaNextForConditionalGeneration(config).save_pretrained(folder)


def prompt() -> Prompt:
    """An image of 336 tokens: 8 x 8 patches, then 16 x 16 with a line end each; and a text for the rest."""
    pixels = np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PPM")
    return Prompt((("user", "a" * (PROMPT_TOKENS - 336)),), seed=0, image=buffer.getvalue())


def seconds(call: Callable[[], Any]) -> float:
    """CPU seconds of the fastest repeat: this machine has other work."""
    taken = []
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return min(taken)


def measured(engine: TransformersEngine) -> tuple[float, float]:
    """Seconds that our engine takes, and `generate`."""
    asked, sampling = prompt(), Sampling(n=N, max_tokens=ANSWER_TOKENS)
    (text,) = engine._checkpoint.render([asked], ANSWER_TOKENS)

    def ours() -> None:
        (generation,) = engine.sample([asked], sampling)
        assert generation.n_prompt_tokens == PROMPT_TOKENS
        assert {answer.n_tokens for answer in generation.answers} == {ANSWER_TOKENS}

    def theirs() -> None:
        output = engine._model.generate(
            **engine._checkpoint.inputs(asked, text),
            do_sample=True,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            num_return_sequences=N,
            max_new_tokens=ANSWER_TOKENS,
        )
        assert output.shape == (N, PROMPT_TOKENS + ANSWER_TOKENS)

    return seconds(ours), seconds(theirs)


def measured_together(config: EngineConfig) -> tuple[float, float]:
    """Seconds for texts of 60 to 75 tokens that are continued together, and one by one."""
    prompts = [Prompt((("user", "a" * (60 + 5 * i)),), seed=i) for i in range(TOGETHER)]
    sampling = Sampling(n=N, max_tokens=ANSWER_TOKENS)

    def taken(together: int) -> float:
        engine = TransformersEngine(replace(config, options={"prompts_together": together}))
        return seconds(lambda: engine.sample(prompts, sampling))

    return taken(TOGETHER), taken(1)


def run() -> list[Any]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            random_model(Path(folder))
            config = EngineConfig(model=folder, dtype="float32", device="cpu", max_model_len=2048)
            ours, theirs = measured(TransformersEngine(config))
            together, apart = measured_together(config)
    finally:
        torch.set_num_threads(threads)
    return [
        {
            "name": f"shared prefill, {N} answers of {ANSWER_TOKENS} tokens",
            "ours": ours,
            "baseline": theirs,
            "ratio": theirs / ours,
            "bound": BOUND,
            "unit": "CPU seconds, one thread",
            "note": f"random LLaVA-NeXT, float32, prompt of {PROMPT_TOKENS} tokens with an image; "
            f"baseline: generate(num_return_sequences={N}); ours takes {ours / theirs:.0%} of it",
        },
        {
            "name": f"prompts together, {TOGETHER} x {N} answers of {ANSWER_TOKENS} tokens",
            "ours": together,
            "baseline": apart,
            "ratio": apart / together,
            "bound": TOGETHER_BOUND,
            "unit": "CPU seconds, one thread",
            "note": f"same model, texts of 60 to 75 tokens; {TOGETHER * N * ANSWER_TOKENS / together:.0f} "
            "tokens/s; baseline: one prompt at a time",
        },
    ]


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
