"""What one image costs a model, from its width and height: a rule for each family of vision models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from sgpu.errors import UsageError
from sgpu.images import scaled_size
from sgpu.registry import unknown_name

# Qwen2.5-VL: patches of 14 pixels, four of them one token.
QWEN_PATCH, QWEN_SIDE, QWEN_MIN_PIXELS = 14, 28, 56 * 56
# LLaVA-NeXT: the tiles of the checkpoint (height, width), 24 x 24 tokens each.
LLAVA_TILE, LLAVA_TILE_SIDE = 336, 24
LLAVA_GRID = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))
# Idefics2: shorter and longer side after resizing, tokens a tile, tiles with the whole image.
IDEFICS_SHORT, IDEFICS_LONG, IDEFICS_PATCH = 378, 980, 14
IDEFICS_TILE_TOKENS, IDEFICS_TILES = 64, 5
Options = Mapping[str, object]  # of a model's processor


class ImageCost(NamedTuple):
    """``tokens`` that the language model reads, ``patches`` that the vision tower reads."""

    tokens: int
    patches: int


NO_IMAGE = ImageCost(0, 0)


class ImageRule(NamedTuple):
    """How a family counts one image, and its tower's size.

    ``cost`` takes width, height, the largest number of pixels, and the options of the model's processor.
    """

    cost: Callable[[int, int, int, Options], ImageCost]
    tower_parameters: float  # in units of 1e9


def qwen_cost(width: int, height: int, max_pixels: int, options: Options) -> ImageCost:
    """Sides become multiples of 28 between the two bounds; one token for 28 x 28 pixels."""
    min_pixels = int(str(options.get("min_pixels", QWEN_MIN_PIXELS)))
    wide, high = (max(1, round(side / QWEN_SIDE)) for side in (width, height))
    pixels = wide * high * QWEN_SIDE**2
    if pixels > max_pixels:
        shrink = math.sqrt(width * height / max_pixels)
        wide, high = (max(1, math.floor(side / shrink / QWEN_SIDE)) for side in (width, height))
    elif pixels < min_pixels:
        grow = math.sqrt(min_pixels / (width * height))
        wide, high = (math.ceil(side * grow / QWEN_SIDE) for side in (width, height))
    return ImageCost(wide * high, wide * high * (QWEN_SIDE // QWEN_PATCH) ** 2)


def llava_next_cost(width: int, height: int, max_pixels: int, options: Options) -> ImageCost:
    """The whole image as one tile, and the tiles of the best grid without their padding, a newline a row."""
    width, height = scaled_size(width, height, max_pixels)
    grid_height, grid_width = _best_grid(width, height)
    rows, columns = (side // LLAVA_TILE * LLAVA_TILE_SIDE for side in (grid_height, grid_width))
    if width / height > columns / rows:
        rows -= (rows - int(round(height * columns / width, 7))) // 2 * 2
    else:
        columns -= (columns - int(round(width * rows / height, 7))) // 2 * 2
    tiles = 1 + grid_height * grid_width // LLAVA_TILE**2
    return ImageCost(LLAVA_TILE_SIDE**2 + rows * columns + rows, tiles * LLAVA_TILE_SIDE**2)


def _best_grid(width: int, height: int) -> tuple[int, int]:
    """The grid that keeps most of the image's pixels, the least wasteful of these."""

    def kept_and_waste(grid: tuple[int, int]) -> tuple[int, int]:
        scale = min(grid[1] / width, grid[0] / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        return kept, kept - grid[0] * grid[1]

    return max(LLAVA_GRID, key=kept_and_waste)


def idefics2_cost(width: int, height: int, max_pixels: int, options: Options) -> ImageCost:
    """64 tokens a tile: the whole image, and its four quarters where it is split."""
    width, height = scaled_size(width, height, max_pixels)
    split = bool(options.get("do_image_splitting", True))
    tiles = IDEFICS_TILES if split else 1
    sizes = [(width, height), *([(width - width // 2, height - height // 2)] if split else [])]
    # Tiles of one image are padded to the largest of them.
    wide, high = (max(sides) for sides in zip(*(_idefics_size(*size) for size in sizes), strict=True))
    patches = (wide // IDEFICS_PATCH) * (high // IDEFICS_PATCH)
    return ImageCost(tiles * IDEFICS_TILE_TOKENS, tiles * patches)


def _idefics_size(width: int, height: int) -> tuple[int, int]:
    long, ratio = IDEFICS_LONG, width / height
    if max(width, height) > long:
        width, height = (long, int(long / ratio)) if width >= height else (int(long * ratio), long)
    return max(width, IDEFICS_SHORT), max(height, IDEFICS_SHORT)


RULES = {
    # The image demo's model reads any image as one tile of 4 x 4 patches, twice, and a column.
    "one-tile": ImageRule(lambda *_: ImageCost(36, 32), 0.0001),
    "qwen2.5-vl": ImageRule(qwen_cost, 0.68),
    "llava-next": ImageRule(llava_next_cost, 0.30),
    "idefics2": ImageRule(idefics2_cost, 0.43),
}


def image_rule(name: str) -> ImageRule:
    """The rule that a model card names; UsageError lists what exists."""
    if name not in RULES:
        raise UsageError(unknown_name("rule of image tokens", name, sorted(RULES)))
    return RULES[name]
