"""What an image costs, against the libraries' own code and against sizes that were counted with it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from transformers.models.idefics2.image_processing_pil_idefics2 import Idefics2ImageProcessorPil
from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from sgpu.errors import UsageError
from sgpu.models.cards import CARDS
from sgpu.plan.image_tokens import (
    LLAVA_GRID,
    idefics2_cost,
    image_rule,
    llava_next_cost,
    qwen_cost,
)

CHECKPOINT_CAP, CAP = 12_845_056, 1280 * 28 * 28
LARGE = 10**12
SIZES = [(32, 32), (160, 213), (427, 320), (500, 375), (640, 480), (512, 512), (1024, 1024), (968, 1296),
         (1224, 1632), (3000, 4000), (4000, 3000), (90, 1000), (1000, 90), (333, 777)]  # fmt: skip


@pytest.mark.parametrize("max_pixels", [CHECKPOINT_CAP, CAP])
@pytest.mark.parametrize("size", SIZES)
def test_qwen_tokens_are_those_of_the_library(size: tuple[int, int], max_pixels: int) -> None:
    height, width = smart_resize(size[1], size[0], 28, min_pixels=56 * 56, max_pixels=max_pixels)
    cost = qwen_cost(*size, max_pixels, {})
    assert (cost.tokens, cost.patches) == (height * width // 784, height * width // 196)


def test_qwen_reads_its_lower_bound_from_the_processor_options() -> None:
    height, width = smart_resize(32, 32, 28, min_pixels=784, max_pixels=CAP)
    assert qwen_cost(32, 32, CAP, {"min_pixels": 784}).tokens == height * width // 784


@pytest.mark.parametrize("size", SIZES)
def test_llava_next_tokens_are_those_of_the_library(size: tuple[int, int]) -> None:
    processor = LlavaNextProcessor.__new__(LlavaNextProcessor)
    processor.image_processor = SimpleNamespace(image_grid_pinpoints=[list(grid) for grid in LLAVA_GRID])
    processor.patch_size = 14
    # CLIP's class token is dropped by the checkpoint's way of choosing features.
    processor.num_additional_image_tokens = 0
    expected = processor._get_number_of_features(size[1], size[0], 336, 336)
    assert llava_next_cost(*size, LARGE, {}).tokens == expected


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("size", [(32, 32), (427, 320), (640, 480), (333, 777), (1224, 1632)])
def test_idefics2_patches_are_those_of_the_library(size: tuple[int, int], split: bool) -> None:
    image = np.zeros((size[1], size[0], 3), dtype=np.uint8)
    pixels = Idefics2ImageProcessorPil(do_image_splitting=split)(image, return_tensors="np")["pixel_values"]
    _, tiles, _, height, width = pixels.shape
    cost = idefics2_cost(*size, LARGE, {"do_image_splitting": split})
    assert (cost.tokens, cost.patches) == (64 * tiles, tiles * (height // 14) * (width // 14))


def test_an_unknown_rule_names_what_exists() -> None:
    with pytest.raises(UsageError, match="Did you mean 'llava-next'"):
        image_rule("llava-nxt")


@pytest.mark.parametrize("card", [card for card in CARDS if card.image], ids=lambda card: card.name)
def test_every_card_names_a_rule_that_exists(card: object) -> None:
    assert image_rule(card.image.tokens).tower_parameters < card.parameters  # type: ignore[attr-defined]
