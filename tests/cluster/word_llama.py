"""A Llama of random weights that answers in one word, and questions that it is more or less sure of.

The reference of a question is the word that the model holds for the most likely one. So what is right is
known from the weights, and answers that agree are right more often than answers that do not.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from sgpu.engines.base import EngineConfig, Prompt
from sgpu.engines.transformers import TransformersEngine
from tests.engines.tiny_llama import TEMPLATE, make_llama

SPECIAL = ("<s>", "</s>", "<unk>")
ROLES = ("user", "assistant")
WORDS = (
    *("Paris", "Rome", "Madrid", "Berlin", "Vienna", "Lisbon", "Oslo", "Athens", "Dublin", "Warsaw"),
    *("river", "stone", "candle", "window", "garden", "thunder", "pepper", "violin", "anchor", "meadow"),
    *("seven", "twelve", "forty", "purple", "yellow", "silver", "quickly", "gently", "never", "always"),
)


def build(folder: Path) -> Path:
    """Write the model into ``folder``, as Hugging Face lays it out."""
    vocabulary = {token: i for i, token in enumerate((*SPECIAL, *ROLES, *WORDS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    marks = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=TEMPLATE, **marks)
    fast.save_pretrained(folder)
    # The usual range of 0.02 would make every word as likely as any other.
    model = make_llama(7, len(vocabulary), max_position_embeddings=64, initializer_range=0.4)
    with torch.no_grad():  # words only: of any other token the text would be empty
        model.lm_head.weight[: len(SPECIAL) + len(ROLES)] = 0.0
    model.save_pretrained(folder)
    return folder


def write_questions(model: Path, file: Path, number: int, seed: int) -> Path:
    """Questions of three words each, with the model's own best word as reference."""
    draw = random.Random(seed)
    questions = [" ".join(draw.sample(WORDS, 3)) for _ in range(number)]
    engine = TransformersEngine(EngineConfig(model=str(model), dtype="float32", device="cpu"))
    prompts = [Prompt((("user", question),), 0) for question in questions]
    best = [WORDS[row.index(max(row))] for row in engine.next_token_logprobs(prompts, WORDS)]
    engine.close()
    rows = [
        {"question_id": f"q{i:03d}", "question": question, "references": [word]}
        for i, (question, word) in enumerate(zip(questions, best, strict=True))
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file
