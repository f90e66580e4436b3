"""A DeBERTa classifier with random weights, in a folder laid out as Microsoft's: no tokenizer.json."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import DebertaConfig, DebertaForSequenceClassification

SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")
# Every byte is a token, as it is in DeBERTa's vocabulary before the first merge.
VOCABULARY = {token: i for i, token in enumerate([*SPECIAL, *sorted(ByteLevel.alphabet())])}
MNLI_LABELS = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}


def write_deberta(
    folder: Path,
    labels: tuple[str, ...] = MNLI_LABELS,
    seed: int = 0,
    size: dict[str, int] = TINY,
    max_length: int = 128,
) -> Path:
    """The folder; equal seeds give equal weights, whatever the labels."""
    torch.manual_seed(seed)
    config = DebertaConfig(
        vocab_size=len(VOCABULARY),
        **size,
        max_position_embeddings=max_length,
        type_vocab_size=0,
        relative_attention=True,
        position_biased_input=False,
        pos_att_type=["c2p", "p2c"],
        # Large enough for verdicts that differ, in a small model; the library's default in a large one.
        initializer_range=0.2 if size is TINY else 0.02,
        id2label=dict(enumerate(labels)),
        label2id={label: i for i, label in enumerate(labels)},
    )
    DebertaForSequenceClassification(config).save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps(VOCABULARY))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "DebertaTokenizer", "model_max_length": max_length})
    )
    return folder
