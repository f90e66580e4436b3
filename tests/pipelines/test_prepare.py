"""`sgpu data prepare` on every data set of the paper, each from files laid out as its source has them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sgpu.images import prepare_image
from sgpu.storage.store import Partition, Published, Store
from tests.datasets import class_fixtures, text_fixtures, vqa_fixtures

SOURCES: dict[str, Callable[[Path], Path]] = {
    "advqa": lambda folder: vqa_fixtures.write_advqa(folder, zipped=True),
    "vqa-rad": vqa_fixtures.write_vqa_rad,
    "ok-vqa": lambda folder: vqa_fixtures.write_ok_vqa(folder, layout="raw"),
    "vizwiz": lambda folder: vqa_fixtures.write_vizwiz(folder, layout="raw", zipped=True),
    "cifar-10": class_fixtures.write_cifar10_binary,
    "imagenette": lambda folder: class_fixtures.write_imagenette(folder, packed=True),
    "triviaqa": text_fixtures.write_triviaqa,
    "popqa": text_fixtures.write_popqa,
    "gsm8k": text_fixtures.write_gsm8k,
}
WITH_IMAGES = ("advqa", "vqa-rad", "ok-vqa", "vizwiz", "cifar-10", "imagenette")
Done = tuple[Path, "subprocess.CompletedProcess[str]"]


def prepared(out: Path, kind: str) -> Published:
    return Store(out).require("questions", Partition.of(dataset=kind))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("sources")
    entries = []
    for kind, write in SOURCES.items():
        (folder / kind).mkdir()
        write(folder / kind)
        entries.append(f"  - {{kind: {kind}, path: {kind}, n_train: 6, n_test: 4, check_rows: false}}")
    study = folder / "all.yaml"
    study.write_text("models: [qwen2.5-vl-3b-instruct]\ndatasets:\n" + "\n".join(entries) + "\n")
    command = [sys.executable, "-c", "from sgpu.cli import main; main()"]
    words = ["data", "prepare", str(study), "--out", str(folder / "out")]
    run = subprocess.run([*command, *words], capture_output=True, text=True, timeout=300, cwd=folder)
    assert run.returncode == 0, run.stderr
    return folder / "out", run


def test_every_data_set_is_granted_and_printed(done: Done) -> None:
    out, run = done
    for kind in SOURCES:
        granted = {row["split"]: row["granted"] for row in prepared(out, kind).manifest["granted"]}
        assert granted["train"] + granted["validation"] <= 6 and 1 <= granted["test"] <= 4
        assert kind in run.stdout


@pytest.mark.parametrize("kind", WITH_IMAGES)
def test_images_are_in_the_shards_and_can_be_decoded(done: Done, kind: str) -> None:
    published = prepared(done[0], kind)
    for row in published.read(["image", "image_sha256", "row_sha256"]).to_pylist():
        assert prepare_image(row["image"], max_pixels=10_000).startswith(b"P6")
        assert len(row["image_sha256"]) == len(row["row_sha256"]) == 64


def test_every_question_has_a_reference_and_a_place(done: Done) -> None:
    for kind in SOURCES:
        for row in prepared(done[0], kind).read(["question", "references", "split", "position"]).to_pylist():
            assert row["question"].strip() and all(row["references"])
            assert row["split"] in {"train", "validation", "test"} and row["position"] >= 0


def test_the_shards_are_plain_parquet(done: Done) -> None:
    (file, *_) = prepared(done[0], "ok-vqa").files
    assert {"question_id", "image", "references"} <= set(pq.read_schema(file).names)
