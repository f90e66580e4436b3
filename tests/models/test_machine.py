"""Weights that cannot be had or held are named before anything starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sgpu.errors import UsageError
from sgpu.models import machine as access
from sgpu.models.cards import ModelCard
from sgpu.models.machine import check_access, check_memory
from sgpu.models.weights import locate_model
from sgpu.study.models import MODELS

LLAMA, QWEN = MODELS["llama-3.1-8b-instruct"], MODELS["qwen2.5-3b-instruct"]
LLAMA_33 = MODELS["llama-3.3-70b-instruct"]


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, no token, online; a test adds what it needs."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def put_into_cache(hub: Path, card: ModelCard, files: dict[str, str]) -> None:
    commit = card.revision or "0" * 40
    repository = hub / f"models--{card.source.replace('/', '--')}"
    folder = repository / "snapshots" / commit
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)


def gpus(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(access, "visible_gpus", lambda: list(lines))


def test_a_gated_model_without_token_is_refused_with_what_to_do() -> None:
    wanted = r"gated.*huggingface\.co/meta-llama/Llama-3\.1-8B-Instruct.*HF_TOKEN"
    with pytest.raises(UsageError, match=wanted) as said:
        check_access([LLAMA])
    assert "local folder" in str(said.value)


def test_every_model_that_cannot_be_had_is_named_at_once() -> None:
    with pytest.raises(UsageError, match="2 of 3 models") as said:
        check_access([LLAMA, QWEN, LLAMA_33])
    assert LLAMA.name in str(said.value) and LLAMA_33.name in str(said.value)
    assert QWEN.name not in str(said.value)


def test_a_token_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_x")
    check_access([LLAMA, LLAMA_33])


def test_a_complete_copy_in_the_cache_is_enough(hub: Path) -> None:
    put_into_cache(hub, LLAMA, {"config.json": "{}", "model.safetensors": ""})
    check_access([LLAMA])


def test_a_copy_of_another_revision_is_not(hub: Path) -> None:
    put_into_cache(hub, replace(LLAMA, revision="1" * 40), {"config.json": "{}", "model.safetensors": ""})
    with pytest.raises(UsageError, match=f"no copy of {LLAMA.source} at revision {LLAMA.revision}"):
        check_access([LLAMA])


def test_a_download_that_stopped_halfway_is_not_a_copy(hub: Path) -> None:
    index = {"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "2.safetensors"}}
    files = {"config.json": "{}", "model.safetensors.index.json": json.dumps(index), "1.safetensors": ""}
    put_into_cache(hub, LLAMA, files)
    with pytest.raises(UsageError, match="1 of 2 weight files are not in"):
        check_access([LLAMA])


def test_offline_with_nothing_cached_is_refused_also_without_a_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_x")
    with pytest.raises(UsageError, match="2 of 2 models") as said:
        check_access([QWEN, LLAMA])
    assert f"hf download {QWEN.source} --revision {QWEN.revision}" in str(said.value)


def test_a_whole_copy_is_loaded_from_its_folder_unless_its_branch_may_have_moved(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_into_cache(hub, QWEN, {"config.json": "{}", "model.safetensors": ""})
    put_into_cache(hub, LLAMA, {"config.json": "{}"})
    folder = str(hub / "models--Qwen--Qwen2.5-3B-Instruct" / "snapshots" / str(QWEN.revision))
    assert locate_model(QWEN.source, QWEN.revision) == folder
    assert locate_model(QWEN.source, None) == QWEN.source
    assert locate_model(LLAMA.source, LLAMA.revision) == LLAMA.source
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert locate_model(QWEN.source, None) == folder
    assert locate_model(str(hub), None) == str(hub)


def test_weights_of_a_package_and_of_a_folder_need_no_hub(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    check_access([MODELS["smollm2-135m-instruct"], replace(LLAMA, source=str(tmp_path))])


def test_weights_larger_than_their_gpus_are_refused_with_both_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, *["NVIDIA A100-SXM4-40GB, 40960 MiB"] * 4)
    # 131.5 GiB over 4 GPUs: 32.9 each, and 90 % of 40 is 36. The one of 15 GiB fits as well.
    check_memory([LLAMA_33, LLAMA])
    gpus(monkeypatch, *["NVIDIA L4, 23034 MiB"] * 4)
    sizes = r"llama-3\.3-70b-instruct: 32\.9 GiB .* each of 4 GPUs; 20\.2 GiB"
    with pytest.raises(UsageError, match=sizes) as said:
        check_memory([LLAMA_33, LLAMA])
    assert LLAMA.name not in str(said.value)


def test_fewer_gpus_than_the_weights_are_split_over_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, "NVIDIA H100 80GB HBM3, 81559 MiB", "NVIDIA H100 80GB HBM3, 81559 MiB")
    with pytest.raises(UsageError, match="split over 4 GPUs, and 2 are visible"):
        check_memory([LLAMA_33])
    check_memory([MODELS["llama-3.3-70b-instruct-fp8"], MODELS["qwen2.5-32b-instruct"]])


def test_gpus_that_cuda_may_not_use_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, *["NVIDIA H100 80GB HBM3, 81559 MiB"] * 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    with pytest.raises(UsageError, match="and 2 are visible"):
        check_memory([LLAMA_33])


def test_a_machine_without_gpus_says_nothing_about_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch)
    check_memory([LLAMA_33])
    gpus(monkeypatch, "NVIDIA GB10, [N/A]")
    check_memory([LLAMA_33])
