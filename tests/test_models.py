from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sgpu import models
from sgpu.engines.base import ENGINES
from sgpu.errors import UsageError
from sgpu.models import MODELS, engine_config, model_card


@pytest.fixture
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_, **__: None)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_card_names_itself_and_a_known_engine(name: str) -> None:
    assert model_card(name).name == name
    assert model_card(name).engine in ENGINES


def test_unknown_model_gets_the_nearest_spelling() -> None:
    with pytest.raises(UsageError, match=r"Did you mean 'llama-3\.1-8b-instruct'"):
        model_card("llama-3.1-8b")


def test_embedded_source_becomes_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "embedded_weights", lambda name: Path("/cache") / name)
    config = engine_config(model_card("smollm2-135m-instruct"), device="cpu")
    assert (config.model, config.device) == ("/cache/smollm2-135m-instruct", "cpu")


def test_limits_of_the_card_reach_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    card = replace(MODELS["qwen2.5-3b-instruct"], max_model_len=77, tensor_parallel_size=2, revision="abc")
    config = engine_config(card)
    assert config.model == "Qwen/Qwen2.5-3B-Instruct"
    assert (config.max_model_len, config.tensor_parallel_size, config.revision) == (77, 2, "abc")


@pytest.mark.usefixtures("no_token")
def test_gated_model_without_token_fails_early() -> None:
    with pytest.raises(
        UsageError, match=r"gated.*huggingface\.co/meta-llama/Llama-3\.1-8B-Instruct.*HF_TOKEN"
    ):
        engine_config(model_card("llama-3.1-8b-instruct"))


def test_gated_model_with_token_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_, **__: None)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_x")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    config = engine_config(model_card("llama-3.1-8b-instruct"))
    # The template must not write today's date into the prompt.
    assert config.options == {"chat_options": {"date_string": "26 Jul 2024"}}


def test_gated_model_in_the_local_cache_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_, **__: "/cache/config.json")
    assert engine_config(model_card("llama-3.1-8b-instruct")).model == "meta-llama/Llama-3.1-8B-Instruct"


def test_folder_of_weights_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    card = model_card(str(tmp_path))
    assert (card.name, engine_config(card).model) == (tmp_path.name, str(tmp_path))


def test_folder_of_pickled_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"no \.safetensors"):
        model_card(str(tmp_path))
