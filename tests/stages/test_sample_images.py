"""From image files in Parquet to answers, under a real local Ray, for every family of image models."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sgpu.runtime.session import ray_session
from sgpu.stages.hidden import plan_hidden_states
from sgpu.stages.questions import prepare_questions
from sgpu.stages.run import Run, check_quarantine
from sgpu.stages.sample import plan_sampling
from sgpu.study.benchmark import Cell
from tests.engines.tiny_image_models import build_idefics2, build_llava_next, build_qwen2_5_vl
from tests.stages.quiet_runs import do, quiet_run

FAMILIES: dict[str, Callable[[Path], Path]] = {
    "llava-next": build_llava_next,
    "qwen2.5-vl": build_qwen2_5_vl,
    "idefics2": build_idefics2,
}
GOOD, CELL = 8, Cell("tiny", "own")
BOMB_SIDE = 12_000  # one bit a pixel: 20 KB that decode to 432 MB


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    with ray_session(None):
        yield


def encoded(seed: int, mode: str = "RGB", kind: str = "PNG") -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, kind)
    return buffer.getvalue()


def bomb() -> bytes:
    buffer = io.BytesIO()
    Image.new("1", (BOMB_SIDE, BOMB_SIDE)).save(buffer, "PNG")
    return buffer.getvalue()


def images() -> dict[str, bytes]:
    """Usable ones of several kinds, then three that are not."""
    kinds = [("RGB", "PNG"), ("L", "PNG"), ("P", "GIF"), ("CMYK", "JPEG"), ("RGBA", "WEBP"), ("RGB", "JPEG")]
    usable = {f"good{i}": encoded(i, *kinds[i % len(kinds)]) for i in range(GOOD)}
    return usable | {"cut": encoded(9)[:300], "bomb": bomb(), "html": b"<script>alert(1)</script>"}


def made(folder: Path, model: Path) -> Run:
    rows = [
        {"question_id": name, "question": "What is it?", "references": ["a cat"], "image": data}
        for name, data in images().items()
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "own.parquet")
    study: dict[str, Any] = {
        "models": [{"name": "tiny", "card": str(model), "engine": "transformers"}],
        "datasets": [
            {"kind": "parquet", "name": "own", "path": str(folder / "own.parquet"), "n_train": 5, "n_test": 6,
             "images": {"max_pixels": 1200}, "sampling": {"n": 3, "max_tokens": 4, "prompt": "plain"}}
        ],
        "methods": ["cov_eigenscore"],
        "hidden": {"layers": ["last"]},
        "resources": {"device": "cpu"},
        "tracking": {"mlflow": "none"},
    }  # fmt: skip
    return quiet_run(study, folder / "out")


@pytest.mark.parametrize("family", FAMILIES)
def test_usable_images_are_answered_and_the_others_quarantined(family: str, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    run = made(tmp_path, FAMILIES[family](model))
    assert prepare_questions(run, "own").rows == len(images())
    rows = {row["question_id"]: row for row in do(plan_sampling, run, CELL).published.read().to_pylist()}
    answered = {name for name, row in rows.items() if row["status"] == "ok"}
    assert answered == {f"good{i}" for i in range(GOOD)}
    assert all(len(rows[name]["answers"]) == 3 for name in answered)
    assert all(rows[name]["error"].startswith("image: ") for name in rows.keys() - answered)
    assert "12000 x 12000" in rows["bomb"]["error"].replace(",", "")
    # The second pass must see the same pixels: it checks the hash of prompt and image.
    outcome = do(plan_hidden_states, run, CELL)
    assert outcome is not None
    assert outcome.rows_by_status == {"ok": GOOD, "missing": 3}
    with pytest.raises(Exception, match="quarantined 3 of 11"):
        check_quarantine(run)
