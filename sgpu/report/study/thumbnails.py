"""Small pictures for the report, drawn anew from the pixels: nothing of the file itself reaches the page."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

from PIL import Image

from sgpu.errors import DataError
from sgpu.stages.stored_questions import StoredQuestions
from sgpu.storage.store import Published

PIXELS = 200 * 200


def thumbnails(questions: Published, question_ids: Sequence[str]) -> dict[str, str]:
    """Data URIs of the images of these questions; without those that have none or cannot be read."""
    stored = StoredQuestions(questions.files, {"max_pixels": PIXELS})
    found = {}
    for question_id in question_ids:
        try:
            _, image = stored.get(question_id)
        except DataError:
            continue
        if image is not None:
            found[question_id] = _data_uri(image)
    return found


def _data_uri(pixels: bytes) -> str:
    buffer = io.BytesIO()
    Image.open(io.BytesIO(pixels)).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
