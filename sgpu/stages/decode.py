"""Images on their way to a model: decoded and scaled by CPU actors, so that no engine waits for them.

Also questions and their images by id, for stages that read the answers and need what was asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sgpu.datasets.image_files import ParquetImage
from sgpu.errors import UsageError
from sgpu.images import ImageError, prepare_image
from sgpu.runtime.stage import Preparation
from sgpu.runtime.worker import StageWorker
from sgpu.stages.run import Run
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import read_rows
from sgpu.storage.store import Published
from sgpu.storage.tables import QUESTIONS, STATUS
from sgpu.study.benchmark import Cell, Study
from sgpu.study.data_specs import QuestionsSpec
from sgpu.study.models import card_of

# Decoded pixels of one block, three bytes each. Ray holds a few blocks at a time between the pools.
BLOCK_BYTES = 192 * 2**20
PREPARED = pa.schema(
    [
        pa.field("question_id", pa.string(), nullable=False),
        *STATUS,
        *(QUESTIONS.schema.field(name) for name in ("question", "image")),
    ]
)


@dataclass(frozen=True)
class DecodeWorker(StageWorker):
    """Turns stored image files into pixels; a file that is not a usable image fails its row, with the reason.

    For the fields see `sgpu.images.prepare_image`.
    """

    max_pixels: int
    upscale_to: int | None = None

    def decode(self, data: bytes) -> bytes:
        """Return the pixels of an image file; raises ImageError."""
        return prepare_image(data, max_pixels=self.max_pixels, upscale_to=self.upscale_to)

    def __call__(self, batch: pa.Table) -> pa.Table:
        rows = [self._row(row) for row in batch.to_pylist()]
        return pa.Table.from_pylist(rows, schema=PREPARED)

    def _row(self, row: dict[str, Any]) -> dict[str, Any]:
        if row["image"] is None:
            return {**row, "status": "ok"}
        try:
            return {**row, "status": "ok", "image": self.decode(row["image"])}
        except ImageError as error:
            return {**row, "status": "failed", "error": f"image: {error}", "image": None}


def image_decoder(study: Study, cell: Cell) -> DecodeWorker:
    """Return what decodes the images of this cell; UsageError if its model reads none."""
    spec, model = study.dataset(cell.dataset), study.model(cell.model)
    limits = card_of(model).image
    images = spec.images if isinstance(spec, QuestionsSpec) else None
    max_pixels = (images.max_pixels if images else None) or (limits.max_pixels if limits else None)
    if max_pixels is None:
        raise UsageError(
            f"model {cell.model!r} reads text only, but data set {cell.dataset!r} has images. Leave one "
            "of them out; for a folder of weights that reads images set `images: {max_pixels: ...}` in the "
            "data set."
        )
    return DecodeWorker(max_pixels, images.upscale_to if images else None)


def image_preparation(run: Run, cell: Cell, questions: Published) -> tuple[Preparation | None, int | None]:
    """Return the decoding step and the rows of a block whose pixels fit; two None for texts alone."""
    if not has_images(questions):
        return None, None
    decoder = image_decoder(run.study, cell)
    step = Preparation(decoder, PREPARED, run.study.resources.actors.get("decode", 1))
    return step, max(1, BLOCK_BYTES // (3 * decoder.max_pixels))


def has_images(questions: Published) -> bool:
    """Return whether any of these questions has one."""
    if "image_sha256" not in questions.columns:
        return False
    hashes = questions.read(["image_sha256"])["image_sha256"]
    return bool(hashes.null_count < len(hashes))


class StoredQuestions:
    """The ``texts`` are in memory, images stay on disk until their turn.

    ``decoder`` is that of the images; None where the data set has none.
    """

    def __init__(self, files: Sequence[str], decoder: DecodeWorker | None = None) -> None:
        self._decoder = decoder
        self.texts: dict[str, str] = {}  # by the question's id
        self._image: dict[str, ParquetImage] = {}
        self._coming: dict[str, Future[bytes]] = {}
        columns = ["question_id", "question", *(["image_sha256"] if decoder else [])]
        for file in files:
            rows = read_rows(file, columns).to_pylist()
            for position, row in enumerate(rows):
                self.texts[row["question_id"]] = row["question"]
                if row.get("image_sha256"):
                    self._image[row["question_id"]] = ParquetImage(Location.of(file), position)

    def get(self, question_id: str) -> tuple[str, bytes | None]:
        """The question and the image as the model was given it; ImageError or DataError if it is unusable."""
        if question_id not in self._image:
            return self.texts[question_id], None
        coming = self._coming.get(question_id)
        image = coming.result() if coming else self._decode(self._image[question_id].read())
        return self.texts[question_id], image

    @contextmanager
    def prefetched(self, question_ids: Sequence[str]) -> Iterator[None]:
        """Decode these questions' images while the first are worked on; in one thread: decoding locks."""
        with ThreadPoolExecutor(max_workers=1) as pool:
            for question_id in question_ids:
                if question_id in self._image:
                    data = self._image[question_id].read()
                    self._coming[question_id] = pool.submit(self._decode, data)
            try:
                yield
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
                self._coming.clear()

    def _decode(self, data: bytes) -> bytes:
        assert self._decoder is not None  # or no image was listed
        return self._decoder.decode(data)
