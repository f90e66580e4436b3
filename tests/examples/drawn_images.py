"""Images of one colour with questions on it, laid out as the package easy-vqa lays out its training pool."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image

COLOURS = {"red": (220, 20, 20), "blue": (20, 20, 220)}


def draw(folder: Path, count: int = 16) -> Path:
    """Write ``count`` images and questions.json beneath ``folder``; the path of the latter."""
    (folder / "images").mkdir(parents=True)
    questions: list[tuple[str, str, int]] = []
    for number in range(count):
        colour = sorted(COLOURS)[number % 2]
        shade = tuple(value + number for value in COLOURS[colour])
        Image.new("RGB", (64, 64), shade).save(folder / "images" / f"{number}.png")
        questions.append(("what color is the image?", colour, number))
        questions.append(("is there a red shape in the image?", "yes" if colour == "red" else "no", number))
        questions.append(
            ("does the image not contain a red shape?", "no" if colour == "red" else "yes", number)
        )
    path = folder / "questions.json"
    path.write_text(json.dumps(questions))
    return path
