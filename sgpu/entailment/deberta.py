"""Entailment by a cross-encoder that was trained on MNLI, run by transformers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers.processors import TemplateProcessing
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from sgpu.entailment.base import AnswerPair, Floats
from sgpu.entailment.checkpoint import DEFAULT_MODEL, locate, safetensors_folder
from sgpu.errors import IntegrityError
from sgpu.models.machine import device_for, dtype_for

# Tokens, padding included, in one forward pass.
TOKEN_BUDGET = {"cpu": 2048, "cuda": 32768}
DTYPES = ("float32", "float16", "bfloat16")
CLASSES = ("entail", "neutral", "contradict")  # in the order of a verdict, as labels begin


class DebertaBackend:
    """Softmax over the three classes of a sequence-pair classifier.

    ``model`` is a hub id that is on this machine, or a folder; ``revision`` pins a hub id. With
    ``prefix_question`` the question stands before both texts, as in Farquhar et al. 2024. What is longer
    than the model reads is cut, the longer text first. ``dtype`` "auto" is float16 on a GPU, in which
    DeBERTa was trained, bfloat16 on a CPU that multiplies it natively, else float32.

    Raises DataError (weights not here), IntegrityError (weights that are not tensors, labels that are not
    the three classes) and UsageError (dtype, device).
    """

    name = "deberta"
    built_from = "checkpoint"

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        revision: str | None = None,
        prefix_question: bool = True,
        dtype: str = "auto",
        device: str = "auto",
    ) -> None:
        folder = locate(model, revision)
        self._device = device_for("entailment", device)
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        self._columns = class_columns(config.id2label, str(folder))
        self._tokenizer = _pair_tokenizer(folder, config.model_type)
        self._max_length = min(self._tokenizer.model_max_length, config.max_position_embeddings)
        dtype = dtype_for("entailment", dtype, self._device, DTYPES, lambda: "float16")
        loaded = AutoModelForSequenceClassification.from_pretrained(
            safetensors_folder(folder),
            config=config,
            dtype=getattr(torch, dtype),
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
        )
        # Once more, because DeBERTa's attention biases are made as float32 whatever is asked for.
        self._model = loaded.eval().to(self._device, loaded.dtype)
        self.reads_question = prefix_question
        self.dtype = str(loaded.dtype).removeprefix("torch.")

    def classify(self, pairs: Sequence[AnswerPair]) -> Floats:
        """See `sgpu.entailment.base.Backend`. Pairs of about one length share a forward pass."""
        verdicts = np.empty((len(pairs), 3))
        if not pairs:
            return verdicts
        encoded = self._tokenizer(
            [self._text(pair.question, pair.premise) for pair in pairs],
            [self._text(pair.question, pair.hypothesis) for pair in pairs],
            truncation=True,
            max_length=self._max_length,
            padding=False,
            split_special_tokens=True,  # "[SEP]" in an answer is five characters, not the token
        )
        lengths = [len(ids) for ids in encoded["input_ids"]]
        for batch in batch_padded_lengths(lengths, TOKEN_BUDGET[self._device]):
            rows = {name: [column[i] for i in batch] for name, column in encoded.items()}
            verdicts[batch] = self._forward(rows)
        return verdicts

    def _text(self, question: str, answer: str) -> str:
        return f"{question} {answer}" if self.reads_question else answer

    @torch.inference_mode()
    def _forward(self, rows: dict[str, list[list[int]]]) -> Floats:
        inputs = self._tokenizer.pad(rows, return_tensors="pt").to(self._device)
        logits = self._model(**inputs).logits[:, self._columns]
        return logits.double().softmax(dim=-1).cpu().numpy()


def batch_padded_lengths(lengths: Sequence[int], token_budget: int) -> Iterator[NDArray[np.intp]]:
    """Yield places of the items, the longest first, in batches that fill the padded budget (or one item)."""
    order = np.argsort(-np.asarray(lengths), kind="stable")
    start = 0
    while start < len(order):
        size = max(1, token_budget // lengths[order[start]])
        yield order[start : start + size]
        start += size


def class_columns(id2label: Mapping[int, str], source: str) -> list[int]:
    """Where a classifier's logits for entail, neutral and contradict stand, read from its labels.

    Checkpoints differ: microsoft/deberta-large-mnli has contradiction first, others entailment. Raises
    IntegrityError if the labels are not one of each.
    """
    names = {int(column): str(label).lower() for column, label in id2label.items()}
    columns = [[column for column, name in names.items() if name.startswith(kind)] for kind in CLASSES]
    if len(names) != len(CLASSES) or any(len(places) != 1 for places in columns):
        raise IntegrityError(
            f"the classifier in {source} has the labels {list(id2label.values())}; entailment, neutral and "
            "contradiction are needed, once each. Use a checkpoint trained on MNLI, or correct id2label in "
            "its config.json."
        )
    return [places[0] for places in columns]


def _pair_tokenizer(folder: Any, model_type: str) -> Any:
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if model_type == "deberta":
        # DeBERTa was trained on "[CLS] A [SEP] B [SEP]"; transformers 5 puts a second [SEP] between A and B
        # when it builds this tokenizer from vocab.json and merges.txt, all that Microsoft's folders have.
        cls, sep = tokenizer.cls_token, tokenizer.sep_token
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{cls}:0 $A:0 {sep}:0",
            pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
            special_tokens=[(cls, tokenizer.cls_token_id), (sep, tokenizer.sep_token_id)],
        )
    return tokenizer
