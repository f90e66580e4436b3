"""The model's card, which imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sgpu.models.cards import ImageLimits, ModelCard
from sgpu.models.weights import MadeWeights, PackagedFile


def train(questions: Path, folder: Path, say: Callable[[str], None]) -> None:
    """Train the model on ``questions`` and save it into ``folder``."""
    from easy_vqa_model.llava import write

    write(questions, folder, say)


CARD = ModelCard(
    name="easy-vqa-llava",
    source="trained:easy-vqa-llava",
    licence="Apache-2.0 (ours; its data: MIT)",
    memory_gib=0.01,
    engine="transformers",
    dtype="float32",
    parameters=0.000736,
    shape=(2, 128),
    kv_bytes_per_token=2048,
    max_model_len=512,
    image=ImageLimits(max_pixels=64 * 64, tokens="one-tile"),
    weights=MadeWeights(
        PackagedFile(
            "easy-vqa==1.0",
            "easy_vqa",
            "data/train/questions.json",
            "bb67697636aed0e65631d4266824aebeae5c833b0f37ed781e20752e85617ec5",
        ),
        train,
        "training, one to two minutes",
    ),
)
