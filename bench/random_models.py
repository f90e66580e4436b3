"""Checkpoints of random weights in the sizes of real ones: what a rate depends on without any download."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CHAT = (
    "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())
# Heads of 64, which every attention kernel has.
SMALL_LLAMA = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA_8B = {
    "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8,
}  # fmt: skip
TINY_BERT = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
}  # fmt: skip
MINILM = {
    "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536,
}  # fmt: skip
LARGE_BERT = {
    "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
}  # fmt: skip


def write_llama(folder: Path, size: dict[str, int] = SMALL_LLAMA, device: str = "cpu") -> Path:
    """A language model whose tokens are bytes; a large one has the vocabulary of Llama 3.1, for its cost."""
    special = ["<s>", "</s>"]
    _tokenizer([*special, *LETTERS], bos_token="<s>", eos_token="</s>", chat_template=CHAT).save_pretrained(
        folder
    )
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=len(special) + len(LETTERS) if size is SMALL_LLAMA else 128_256,
        max_position_embeddings=4096,
        bos_token_id=0,
        eos_token_id=1,
        # The usual 0.02 would make every token of a small model as likely as any other.
        initializer_range=0.3 if size is SMALL_LLAMA else 0.02,
        **size,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32 if size is SMALL_LLAMA else torch.bfloat16)
    try:
        with torch.device(device):
            LlamaForCausalLM(config).save_pretrained(folder)
    finally:
        torch.set_default_dtype(before)
    return folder


def write_bert(folder: Path, size: dict[str, int] = TINY_BERT) -> Path:
    """A sentence encoder in the layout of sentence-transformers, mean pooling."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer = _tokenizer([*special, *LETTERS], unk_token="[UNK]", pad_token="[PAD]")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(7)
    config = BertConfig(vocab_size=30_522, max_position_embeddings=512, initializer_range=0.1, **size)
    BertModel(config).save_pretrained(folder)
    return folder


def _tokenizer(tokens: list[str], **settings: str) -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=inner, **settings)
