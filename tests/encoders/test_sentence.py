"""The reference is sentence-transformers, run on the same files."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import AutoModel, ModernBertConfig, PreTrainedTokenizerFast

from sgpu.encoders import Encoder, load_encoder
from sgpu.encoders.sentence import batch_equal_lengths
from sgpu.errors import IntegrityError, UsageError
from sgpu.models.machine import cpu_dtype
from sgpu.spectrum import spectrum

MINILM = "all-MiniLM-L6-v2"
TEXTS = [
    "Paris",
    "",
    "The answer is 42.",
    " leading and trailing space ",
    "line\nbreaks\tand tabs",
    "Zürich 東京 🎉",
    "It is the city of Ouagadougou, which is not what you asked.",
    "word " * 400,  # far past the limit of 256 tokens
    *(f"number {i} is {'very ' * (i % 9)}large" for i in range(40)),
]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load_encoder(MINILM, dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def vectors(encoder: Encoder) -> np.ndarray:
    return encoder.encode(TEXTS)


@pytest.fixture(scope="module")
def reference(encoder: Encoder) -> np.ndarray:
    return SentenceTransformer(str(encoder.folder), device="cpu").encode(TEXTS)


def test_vectors_equal_sentence_transformers(vectors: np.ndarray, reference: np.ndarray) -> None:
    assert vectors == pytest.approx(reference, abs=1e-6)
    assert np.all((vectors * reference).sum(axis=1) > 1 - 1e-6)


def test_bfloat16_stays_within_its_known_error(vectors: np.ndarray) -> None:
    half = load_encoder(MINILM, dtype="bfloat16", device="cpu")
    rows = half.encode(TEXTS)
    assert half.dtype == "bfloat16"
    assert rows.dtype == np.float32
    assert np.all((rows * vectors).sum(axis=1) > 1 - 4e-4)
    assert spectrum(rows[:40].reshape(2, 20, -1)) == pytest.approx(
        spectrum(vectors[:40].reshape(2, 20, -1)), abs=0.06
    )
    # Were these the float32 weights, the rows would agree to 1e-6.
    assert np.abs(rows - vectors).max() > 1e-5


def test_rows_are_unit(vectors: np.ndarray) -> None:
    assert vectors.shape == (len(TEXTS), 384)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-6)


def test_equal_texts_get_equal_bits(encoder: Encoder) -> None:
    rows = encoder.encode(["Paris", "Rome", "a much longer answer than the others", "Paris"])
    assert rows[0].tobytes() == rows[3].tobytes()
    assert spectrum(rows[[0, 3]])[1] < 1e-13


def test_texts_that_an_uncased_encoder_cannot_tell_apart_get_equal_bits(encoder: Encoder) -> None:
    rows = encoder.encode(["Paris", "Lima", " paris", "PARIS"])
    assert rows[0].tobytes() == rows[2].tobytes() == rows[3].tobytes()


def test_other_texts_in_the_call_change_only_rounding(encoder: Encoder, vectors: np.ndarray) -> None:
    alone = np.vstack([encoder.encode([text]) for text in TEXTS[:12]])
    assert alone == pytest.approx(vectors[:12], abs=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_in_fixed_batches_a_vector_depends_on_its_text_alone(dtype: str) -> None:
    fixed = load_encoder(MINILM, dtype=dtype, device="cpu", fixed_batches=True)
    texts = [
        f"It is {city}, {word}" for city in TEXTS[:30] for word in ("I think", "or so", "no doubt of it")
    ]
    parts = [texts[:1], texts[1:3], texts[7:40][::-1], texts[::2]]
    if dtype == "bfloat16" and cpu_dtype() != dtype:  # emulated, a batch takes half a minute
        texts, parts = texts[:20], [texts[:1], texts[3:20][::-1]]
    together = fixed.encode(texts)
    for part in parts:
        places = [texts.index(text) for text in part]
        assert fixed.encode(part).tobytes() == together[places].tobytes()


def test_fixed_batches_change_only_rounding(vectors: np.ndarray) -> None:
    fixed = load_encoder(MINILM, dtype="float32", device="cpu", fixed_batches=True)
    assert fixed.encode(TEXTS) == pytest.approx(vectors, abs=1e-6)


def test_no_texts_give_no_rows(encoder: Encoder) -> None:
    assert encoder.encode([]).shape == (0, 384)


def test_fingerprint_is_the_sha256_of_the_weights(encoder: Encoder) -> None:
    content = (encoder.folder / "model.safetensors").read_bytes()
    assert encoder.fingerprint == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("has_bf16", [True, False])
def test_auto_takes_bfloat16_only_where_the_cpu_has_it(
    monkeypatch: pytest.MonkeyPatch, has_bf16: bool
) -> None:
    from sgpu.encoders.sentence import DTYPES, _dtype_on_gpu
    from sgpu.models.machine import dtype_for

    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": has_bf16})
    assert dtype_for("encoder", "auto", "cpu", DTYPES, _dtype_on_gpu) == (
        "bfloat16" if has_bf16 else "float32"
    )


@pytest.mark.parametrize("settings", [{"dtype": "int8"}, {"device": "tpu"}])
def test_unknown_dtype_or_device_is_a_usage_error(settings: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=next(iter(settings.values()))):
        load_encoder(MINILM, **settings)


def test_batches_hold_one_length_within_the_budget_and_every_item_once() -> None:
    lengths = [3, 7, 3, 50, 3, 7, 3]
    batches = [batch.tolist() for batch in batch_equal_lengths(lengths, token_budget=9)]
    assert batches == [[0, 2, 4], [6], [1], [5], [3]]


def save_tiny_modernbert(folder: Path, pooling: str) -> Path:
    """Random weights in the architecture of modernbert-embed-large, with local and global attention."""
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", ":", "_", "search", "document", *"abcdefgh"]
    vocabulary = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    vocabulary.pre_tokenizer = Whitespace()
    vocabulary.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    torch.manual_seed(0)
    model = AutoModel.from_config(
        ModernBertConfig(
            vocab_size=len(words),
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=4,
            num_attention_heads=4,
            max_position_embeddings=64,
            local_attention=8,
            pad_token_id=0,
            cls_token_id=1,
            sep_token_id=2,
        )
    )
    model.save_pretrained(folder / "plain")
    PreTrainedTokenizerFast(
        tokenizer_object=vocabulary, pad_token="[PAD]", unk_token="[UNK]", model_max_length=40
    ).save_pretrained(folder / "plain")
    parts = [
        modules.Transformer(str(folder / "plain")),
        modules.Pooling(32, pooling_mode=pooling),
        modules.Normalize(),
    ]
    prompts = {"document": "search_document: "}
    SentenceTransformer(modules=parts, prompts=prompts, default_prompt_name="document", device="cpu").save(
        str(folder / "tiny")
    )
    return folder / "tiny"


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_modernbert_with_a_prefix_equals_sentence_transformers(tmp_path: Path, pooling: str) -> None:
    folder = save_tiny_modernbert(tmp_path, pooling)
    texts = ["a b c", "", "h", "b a c", "unseen words", "a b c d e f g h " * 9]
    rows = load_encoder(str(folder), dtype="float32", device="cpu").encode(texts)
    reference = SentenceTransformer(str(folder), device="cpu")
    assert rows == pytest.approx(reference.encode(texts), abs=1e-5)
    without = reference.encode(texts, prompt="")
    assert np.abs(rows - without).max() > 1e-3  # the prefix does count


def test_a_prompt_that_is_not_pooled_is_refused(tmp_path: Path) -> None:
    file = save_tiny_modernbert(tmp_path, "mean") / "1_Pooling" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "include_prompt": False}))
    with pytest.raises(IntegrityError, match="leaves its prompt 'search_document: ' out of pooling"):
        load_encoder(str(file.parent.parent))


def test_folder_without_safetensors_is_refused(tmp_path: Path) -> None:
    folder = save_tiny_modernbert(tmp_path, "mean")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(IntegrityError, match=r"model\.safetensors is missing"):
        load_encoder(str(folder))
