"""Images on their way through a stage: decoded by actors of their own, unusable ones quarantined."""

from __future__ import annotations

import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from sgpu.errors import UsageError
from sgpu.report.study.questions import thumbnails
from sgpu.stages.decode import BLOCK_BYTES, DecodeWorker, StoredQuestions, image_preparation
from sgpu.stages.run import Run
from sgpu.storage.store import Partition, Published
from sgpu.storage.tables import QUESTIONS
from sgpu.study.benchmark import Cell, Study
from sgpu.study.models import MODELS
from tests.stages.quiet_runs import quiet_run, table_of

IMAGES, TEXT = "qwen2.5-vl-3b-instruct", "smollm2-135m-instruct"


def picture(side: int, seed: int = 0) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def batch(*images: bytes | None) -> pa.Table:
    rows = [{"question_id": f"q{i}", "question": "?", "image": image} for i, image in enumerate(images)]
    return pa.Table.from_pylist(rows, pa.schema([QUESTIONS.schema.field(n) for n in rows[0]]))


def study(model: str, **dataset: Any) -> Study:
    return Study.model_validate(
        {"models": [model], "datasets": [{"kind": "vqa-rad", **dataset}], "tracking": {"mlflow": "none"}}
    )


def published(folder: Path, image: bytes | None, **rest: Any) -> tuple[Run, Published]:
    run = quiet_run(study(**rest), folder)
    row = {
        "question_id": "q", "question": "?", "split": "test", "position": 0, "image": image,
        "image_sha256": "ab" if image else None,
    }  # fmt: skip
    table = table_of(QUESTIONS.schema, [row])
    return run, run.store.write(QUESTIONS, Partition.of(dataset="vqa-rad"), table, "a" * 12, {})


def test_an_unusable_image_fails_its_row_with_the_reason_and_the_others_go_on() -> None:
    out = DecodeWorker(10_000, None)(batch(picture(20), b"no image", b"", picture(300), None)).to_pylist()
    assert [row["status"] for row in out] == ["ok", "failed", "failed", "ok", "ok"]
    assert out[1]["error"].startswith("image: ") and out[1]["image"] is None
    assert out[4]["image"] is None
    assert Image.open(io.BytesIO(out[3]["image"])).size == (100, 100)  # scaled down to 10,000 pixels


def test_a_block_holds_no_more_pixels_than_its_bound(tmp_path: Path) -> None:
    run, questions = published(tmp_path, picture(8), model=IMAGES)
    step, rows = image_preparation(run, Cell(IMAGES, "vqa-rad"), questions)
    limits = MODELS[IMAGES].image
    assert step is not None and rows is not None and limits is not None
    assert step.worker == DecodeWorker(limits.max_pixels)
    assert rows * 3 * limits.max_pixels <= BLOCK_BYTES


def test_a_data_set_may_have_its_own_bound_and_scaling(tmp_path: Path) -> None:
    images = DecodeWorker(50_000, 224)
    run, questions = published(tmp_path, picture(8), model=IMAGES, images=asdict(images))
    step, _ = image_preparation(run, Cell(IMAGES, "vqa-rad"), questions)
    assert step is not None and step.worker == images


def test_questions_without_images_need_no_decoding(tmp_path: Path) -> None:
    run, questions = published(tmp_path, None, model=TEXT)
    assert image_preparation(run, Cell(TEXT, "vqa-rad"), questions) == (None, None)


def test_a_model_that_reads_text_only_is_refused(tmp_path: Path) -> None:
    run, questions = published(tmp_path, picture(8), model=TEXT)
    with pytest.raises(UsageError, match="reads text only, but data set 'vqa-rad' has images"):
        image_preparation(run, Cell(TEXT, "vqa-rad"), questions)


def test_a_later_stage_gets_the_same_pixels(tmp_path: Path) -> None:
    data = picture(50, seed=3)
    _, questions = published(tmp_path, data, model=IMAGES)
    stored = StoredQuestions(questions.files, DecodeWorker(900))
    (expected,) = DecodeWorker(900, None)(batch(data))["image"].to_pylist()
    assert stored.get("q") == ("?", expected)
    with stored.prefetched(["q"]):
        assert stored.get("q") == ("?", expected)


def test_a_thumbnail_is_a_small_png_of_our_own(tmp_path: Path) -> None:
    _, questions = published(tmp_path, picture(1000), model=IMAGES)
    uri = thumbnails(questions, ["q"])["q"]
    assert uri.startswith("data:image/png;base64,")
    _, broken = published(tmp_path / "b", b"<svg onload=alert(1)>", model=IMAGES)
    assert thumbnails(broken, ["q"]) == {}
