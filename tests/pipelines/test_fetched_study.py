"""A study whose models, judge, entailment classifier, encoder and data only a hub has, away from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from bench.random_deberta import write_deberta
from bench.random_models import write_llama
from sgpu.models.weights import embedded_encoder
from tests.models.fake_hub import FakeHub, serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
STUDY = """
models: [{name: sampled, card: qwen2.5-3b-instruct, engine: transformers}]
datasets: [{kind: gsm8k, n_train: 6, n_test: 6, check_rows: false}]
judge: {name: llm, model: qwen2.5-3b-instruct, min_mass: 0}
encoder: {name: sentence-transformers/all-MiniLM-L12-v2}
entailment: {backend: deberta}
methods: [spectral_entropy, semantic_entropy, cov_eigenscore]
sampling: {n: 3, max_tokens: 6}
evaluation: {bootstrap: 100}
resources: {device: cpu}
tracking: {mlflow: none}
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeHub]:
    root = tmp_path_factory.mktemp("hub")
    write_model(root / "models" / "Qwen" / "Qwen2.5-3B-Instruct")
    classifier = write_deberta(root / "models" / "microsoft" / "deberta-large-mnli")
    weights = classifier / "model.safetensors"
    torch.save(load_file(weights), classifier / "pytorch_model.bin")
    weights.unlink()
    encoder = root / "models" / "sentence-transformers"
    encoder.mkdir()
    (encoder / "all-MiniLM-L12-v2").symlink_to(embedded_encoder("all-MiniLM-L6-v2"))
    data = root / "datasets" / "openai" / "gsm8k" / "main"
    data.mkdir(parents=True)
    for split in ("train", "test"):
        rows = [{"question": f"What is {n} and 2?", "answer": f"So it is #### {n + 2}"} for n in range(8)]
        pl.DataFrame(rows).write_parquet(data / f"{split}-00000-of-00001.parquet")
    with serve(root) as hub:
        yield hub


def write_model(folder: Path) -> None:
    """A Llama with the chat template of the card's family, and with tokens for a judge's words."""
    write_llama(folder)
    template = ROOT / "tests" / "engines" / "chat_templates" / "qwen2.5.jinja"
    tokenizer = AutoTokenizer.from_pretrained(folder, chat_template=template.read_text())
    tokenizer.add_tokens(["yes", "no"])
    tokenizer.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(folder)


def sgpu(folder: Path, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {"SGPU_CACHE": str(folder / "cache"), "PYTHONPATH": str(ROOT), **settings}
    return subprocess.run(
        [sys.executable, "-c", "from sgpu.cli import main; main()", *words],
        env={**os.environ, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
    )


def test_what_was_fetched_is_all_that_a_study_needs(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    fetched = sgpu(
        tmp_path, "fetch", "study.yaml", "--to", "home", HF_ENDPOINT=hub.address, HF_HUB_OFFLINE="0"
    )
    assert fetched.returncode == 0, fetched.stderr
    assert Path(fetched.stdout.strip()) == tmp_path / "home" / "fetched.json"
    # As through a bucket, which knows no links.
    shutil.copytree(tmp_path / "home", tmp_path / "copy", ignore=shutil.ignore_patterns("blobs"))
    shutil.rmtree(tmp_path / "home")
    closed = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "copy")}
    compared = sgpu(tmp_path, "fetch", "study.yaml", "--to", "copy", **closed)
    assert compared.returncode == 0, compared.stderr
    done = sgpu(tmp_path, "benchmark", "study.yaml", "--out", "out", **closed)
    assert done.returncode == 0, done.stderr
    rows = pl.read_delta(str(tmp_path / "out" / "tables" / "predictions"))
    assert set(rows.drop_nulls("confidence")["method"]) == {
        "spectral_entropy",
        "semantic_entropy",
        "cov_eigenscore",
    }
