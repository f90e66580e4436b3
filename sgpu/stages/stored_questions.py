"""Questions and their images by id, for stages that read the answers and need what was asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from sgpu.datasets.image_files import ParquetImage
from sgpu.images import prepare_image
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import read_rows


class StoredQuestions:
    """The texts are in memory, images stay on disk until their turn.

    ``settings`` are those of `sgpu.images.prepare_image`; None where the data set has no images.
    """

    def __init__(self, files: Sequence[str], settings: Mapping[str, Any] | None) -> None:
        self._settings = settings
        self._text: dict[str, str] = {}
        self._image: dict[str, ParquetImage] = {}
        self._coming: dict[str, Future[bytes]] = {}
        columns = ["question_id", "question", *(["image_sha256"] if settings else [])]
        for file in files:
            rows = read_rows(file, columns).to_pylist()
            for place, row in enumerate(rows):
                self._text[row["question_id"]] = row["question"]
                if row.get("image_sha256"):
                    self._image[row["question_id"]] = ParquetImage(Location.of(file), place)

    def get(self, question_id: str) -> tuple[str, bytes | None]:
        """The question and the image as the model was given it; ImageError or DataError if it is unusable."""
        if question_id not in self._image:
            return self._text[question_id], None
        coming = self._coming.get(question_id)
        image = coming.result() if coming else self._prepare(self._image[question_id].read())
        return self._text[question_id], image

    @contextmanager
    def prefetched(self, question_ids: Sequence[str]) -> Iterator[None]:
        """Decode these questions' images while the first are worked on; in one thread: decoding locks."""
        with ThreadPoolExecutor(max_workers=1) as pool:
            for question_id in question_ids:
                if question_id in self._image:
                    data = self._image[question_id].read()
                    self._coming[question_id] = pool.submit(self._prepare, data)
            try:
                yield
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
                self._coming.clear()

    def _prepare(self, data: bytes) -> bytes:
        return prepare_image(data, **(self._settings or {}))
