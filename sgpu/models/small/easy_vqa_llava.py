"""easy-vqa-llava: an image model that learns the training questions of the package `easy-vqa` in a minute.

It knows few words, colours well and shapes badly, so that its sampled answers are sometimes right and
sometimes wrong. It shows that the path from images to a report works; it stands for no real model.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sgpu.errors import IntegrityError
from sgpu.models.small.architecture import SIDE, build_model, build_processor
from sgpu.models.small.training import Asked, Training, fit

RECORD = "training.json"


def write(
    questions: Path, folder: Path, say: Callable[[str], None], training: Training | None = None
) -> None:
    """Train on ``questions`` (the package's train/questions.json, images beside it) and save into ``folder``.

    The folder loads with AutoProcessor and AutoModelForImageTextToText. Raises IntegrityError for an image
    that is missing or damaged, and TrainingError as `sgpu.models.small.training.fit`.
    """
    training = training or Training()
    started = time.monotonic()
    asked = read_questions(questions)
    pixels = read_images(questions.parent / "images", 1 + max(item.image for item in asked))
    say(f"training easy-vqa-llava on {len(asked)} questions, a minute or two")
    processor = build_processor(vocabulary(asked))
    model, loss = fit(partial(build_model, processor.tokenizer), processor, pixels, asked, training, say)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    record = asdict(training) | {
        "final_loss": loss,
        "seconds": round(time.monotonic() - started, 1),
        "torch": str(torch.__version__),
        "parameters": sum(weight.numel() for weight in model.parameters()),
    }
    (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n")


def read_questions(path: Path) -> list[Asked]:
    """The questions of one pool, in the file's order."""
    return [Asked(*row) for row in json.loads(path.read_text(encoding="utf-8"))]


def read_images(folder: Path, count: int) -> torch.Tensor:
    """Images 0.png to ``count`` - 1 as uint8 (count, 3, 64, 64)."""
    return torch.stack([_pixels(folder / f"{number}.png") for number in range(count)])


def vocabulary(asked: list[Asked]) -> list[str]:
    """Every word and mark of the questions and answers, sorted."""
    texts = {text for item in asked for text in (item.question, item.answer)}
    return sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower())})


def _pixels(path: Path) -> torch.Tensor:
    import numpy as np
    from PIL import Image

    try:
        with Image.open(path) as image:
            found: Any = np.array(image.convert("RGB"))
    except OSError as error:
        raise IntegrityError(f"{path} cannot be read ({error}). Install easy-vqa 1.0 again.") from error
    if found.shape != (SIDE, SIDE, 3):
        raise IntegrityError(
            f"{path} has {found.shape[1]} x {found.shape[0]} pixels, expected {SIDE} x {SIDE}. "
            "Install easy-vqa 1.0 again."
        )
    return torch.from_numpy(found).permute(2, 0, 1)
