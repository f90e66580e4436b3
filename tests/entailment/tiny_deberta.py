"""A DeBERTa classifier with random weights, in a folder laid out as Microsoft's: no tokenizer.json."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import DebertaConfig, DebertaForSequenceClassification

SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")
# Every byte is a token, as it is in DeBERTa's vocabulary before the first merge.
VOCABULARY = {token: i for i, token in enumerate([*SPECIAL, *sorted(ByteLevel.alphabet())])}
MNLI_LABELS = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
MAX_LENGTH = 128


def write_deberta(folder: Path, labels: tuple[str, ...] = MNLI_LABELS, seed: int = 0) -> Path:
    """The folder; equal seeds give equal weights, whatever the labels."""
    torch.manual_seed(seed)
    config = DebertaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=MAX_LENGTH,
        type_vocab_size=0,
        relative_attention=True,
        position_biased_input=False,
        pos_att_type=["c2p", "p2c"],
        initializer_range=0.2,  # large enough for verdicts that differ
        id2label=dict(enumerate(labels)),
        label2id={label: i for i, label in enumerate(labels)},
    )
    DebertaForSequenceClassification(config).save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps(VOCABULARY))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "DebertaTokenizer", "model_max_length": MAX_LENGTH})
    )
    return folder


def token_ids(premise: str, hypothesis: str) -> list[int]:
    """[CLS] premise [SEP] hypothesis [SEP], written out byte by byte without a tokenizer."""
    byte_tokens = ByteLevel(add_prefix_space=False, use_regex=False)

    def ids(text: str) -> list[int]:
        return [VOCABULARY[char] for part, _ in byte_tokens.pre_tokenize_str(text) for char in part]

    cls, sep = VOCABULARY["[CLS]"], VOCABULARY["[SEP]"]
    return [cls, *ids(premise), sep, *ids(hypothesis), sep]


@cache
def _model(folder: Path) -> Any:
    return DebertaForSequenceClassification.from_pretrained(folder).eval()


@torch.inference_mode()
def plain_verdict(folder: Path, premise: str, hypothesis: str, columns: tuple[int, ...]) -> Any:
    """What transformers says of one pair, alone and without padding, in the order of ``columns``."""
    logits = _model(folder)(input_ids=torch.tensor([token_ids(premise, hypothesis)])).logits
    return np.asarray(logits[0, list(columns)].double().softmax(dim=-1))
