from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sgpu.engines.base import ENGINES
from sgpu.errors import UsageError
from sgpu.models.cards import ModelCard
from sgpu.study import models
from sgpu.study.models import MODELS, card_of, engine_config, model_card, served_config
from sgpu.study.resolve import resolve
from sgpu.study.specs import ModelSpec

# Of the checkpoints' config.json: layers, key-value heads, dimension of a head.
ATTENTION = {
    "smollm2-135m-instruct": (30, 3, 64),
    "qwen2.5-vl-3b-instruct": (36, 2, 128),
    "qwen2.5-vl-7b-instruct": (28, 4, 128),
    "llava-1.6-mistral-7b": (32, 8, 128),
    "idefics2-8b-chatty": (32, 8, 128),
    "qwen2.5-3b-instruct": (36, 2, 128),
    "qwen2.5-32b-instruct": (64, 8, 128),
    "llama-3.1-8b": (32, 8, 128),
    "llama-3.1-8b-instruct": (32, 8, 128),
    "llama-3.1-70b-instruct": (80, 8, 128),
    "llama-3.1-70b-instruct-fp8": (80, 8, 128),
    "llama-3.3-70b-instruct": (80, 8, 128),
    "llama-3.3-70b-instruct-fp8": (80, 8, 128),
}
NOT_COMMERCIAL = ("qwen2.5-vl-3b-instruct", "qwen2.5-3b-instruct")
IMAGE_MODELS = [name for name, card in MODELS.items() if card.image]


@pytest.mark.parametrize("name", MODELS)
def test_card_names_itself_and_a_known_engine(name: str) -> None:
    assert model_card(name).name == name
    assert model_card(name).engine in ENGINES


@pytest.mark.parametrize("name", MODELS)
def test_a_token_of_the_cache_takes_what_the_attention_keeps(name: str) -> None:
    layers, heads, dimension = ATTENTION[name]
    assert model_card(name).kv_bytes_per_token == layers * heads * dimension * 2 * 2
    assert (model_card(name).shape or ())[0] == layers


@pytest.mark.parametrize("name", MODELS)
def test_the_weights_take_the_bytes_of_their_parameters(name: str) -> None:
    card = model_card(name)
    # In FP8 the first and the last layer stay in bfloat16.
    bytes_each, tolerance = (1, 0.05) if name.endswith("-fp8") else (2, 0.02)
    gib = card.parameters * 1e9 * bytes_each / 2**30
    assert card.memory_gib == pytest.approx(gib, rel=tolerance, abs=0.06)


@pytest.mark.parametrize("name", MODELS)
def test_a_revision_is_a_commit_or_the_main_branch(name: str) -> None:
    revision = model_card(name).revision
    assert revision is None or re.fullmatch(r"[0-9a-f]{40}", revision)


def test_no_two_cards_share_weights() -> None:
    assert len({card.source for card in MODELS.values()}) == len(MODELS)
    revisions = [card.revision for card in MODELS.values() if card.revision]
    assert len(set(revisions)) == len(revisions)


@pytest.mark.parametrize("name", MODELS)
def test_what_the_vendor_asks_for_is_on_the_card(name: str) -> None:
    card = model_card(name)
    assert card.gated == card.source.startswith("meta-llama/")
    assert ("non-commercial" in card.licence) == (name in NOT_COMMERCIAL)
    assert (card.checkpoint_repetition_penalty == 1.05) == card.source.startswith("Qwen/")


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_what_the_image_processor_is_told_reaches_the_engine(name: str) -> None:
    card = model_card(name)
    assert card.image is not None
    assert engine_config(card).options.get("processor_options", {}) == card.image.processor_options


def test_qwens_processor_scales_a_photograph_to_the_cards_limit(tmp_path: Path) -> None:
    """Also where the checkpoint's own file sets other limits, as Qwen2.5-VL's does."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    (tmp_path / "preprocessor_config.json").write_text(
        '{"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "merge_size": 2}'
    )
    limits = MODELS["qwen2.5-vl-7b-instruct"].image
    assert limits is not None
    processor = Qwen2VLImageProcessorPil.from_pretrained(tmp_path, **limits.processor_options)
    patches = processor.get_number_of_image_patches(3024, 4032)
    # Four patches of 14 x 14 pixels make a token; at most 1280 tokens.
    assert 1200 < patches / 4 <= 1280


def test_unknown_model_gets_the_nearest_spelling() -> None:
    with pytest.raises(UsageError, match=r"Did you mean 'llama-3\.1-8b-instruct'"):
        model_card("llama-3.1-8b-instuct")


def test_embedded_source_becomes_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "embedded_weights", lambda name: Path("/cache") / name)
    config = engine_config(model_card("smollm2-135m-instruct"), resolve("cpu"))
    assert (config.model, config.device) == ("/cache/smollm2-135m-instruct", "cpu")


def test_limits_of_the_card_reach_the_engine() -> None:
    card = replace(MODELS["qwen2.5-3b-instruct"], max_model_len=77, tensor_parallel_size=2, revision="abc")
    config = engine_config(card)
    assert config.model == "Qwen/Qwen2.5-3B-Instruct"
    assert (config.max_model_len, config.tensor_parallel_size, config.revision) == (77, 2, "abc")
    assert config.prompt_form == "qwen2.5"


def test_llamas_template_is_told_a_date() -> None:
    # The template must not write today's date into the prompt.
    config = engine_config(model_card("llama-3.1-8b-instruct"))
    assert config.options == {"chat_options": {"date_string": "26 Jul 2024"}}


def weights(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(1000))
    return folder


def test_folder_of_weights_is_a_model(tmp_path: Path) -> None:
    card = model_card(str(weights(tmp_path)))
    assert (card.name, engine_config(card).model) == (tmp_path.name, str(tmp_path))
    assert (card.prompt_form, card.licence) == (None, "unknown")


@pytest.mark.parametrize(
    "folder",
    ["Llama-3.1-70B-Instruct", "models--meta-llama--Llama-3.1-70B-Instruct/snapshots/0123abc"],
    ids=["plain", "snapshot in the cache"],
)
def test_folder_called_like_a_registered_model_keeps_its_settings(tmp_path: Path, folder: str) -> None:
    card = model_card(str(weights(tmp_path / folder)))
    assert (card.source, card.revision, card.gated) == (str(tmp_path / folder), None, False)
    registered: ModelCard = MODELS["llama-3.1-70b-instruct"]
    for setting in ("prompt_form", "chat_options", "tensor_parallel_size", "licence", "kv_bytes_per_token"):
        assert getattr(card, setting) == getattr(registered, setting)


def test_folder_of_pickled_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"no \.safetensors"):
        model_card(str(tmp_path))


def test_a_servers_model_needs_no_card_and_is_called_as_the_study_says() -> None:
    spec = ModelSpec(name="mini", engine="openai", model="vendor/gpt-4o-mini:free", base_url="https://a/v1")
    config = served_config(spec)
    assert (config.model, config.base_url) == ("vendor/gpt-4o-mini:free", "https://a/v1")
    assert config.options == {"vllm_fields": False}
    assert served_config(ModelSpec(name="gpt-4o", engine="openai")).model == "gpt-4o"


def test_a_packaged_card_of_a_server_is_sent_by_name_and_not_as_a_folder_of_this_machine() -> None:
    spec = ModelSpec(name="served", engine="openai", card="smollm2-135m-instruct")
    assert served_config(spec).model == "smollm2-135m-instruct"


def test_a_card_that_vllm_serves_is_asked_as_before() -> None:
    spec = ModelSpec(name="llama-3.1-8b-instruct", engine="openai", base_url="http://localhost:8000/v1")
    card = model_card(spec.name)
    assert served_config(spec) == replace(
        engine_config(card), base_url=spec.base_url, dtype=card.dtype, device="auto"
    )


def test_a_name_that_only_a_server_can_know_says_so() -> None:
    with pytest.raises(UsageError, match="engine: openai"):
        card_of(ModelSpec(name="gpt-4o"))
