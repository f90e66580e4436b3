"""The trained folder is a model like any other; what it answers depends on the image."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from easy_vqa_model.llava import read_images, read_questions, vocabulary, write
from easy_vqa_model.training import ImageQuestion, ImageTraining
from PIL import Image

from sgpu.engines.base import EngineConfig, Prompt, Sampling
from sgpu.engines.transformers import TransformersEngine
from sgpu.errors import IntegrityError
from tests.examples.drawn_images import draw

SHORT = ImageTraining(steps=60, images_per_step=4, questions_per_image=3)


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw(tmp_path_factory.mktemp("drawn"))


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def folder(questions: Path, said: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained")
    write(questions, path, said.append, SHORT)
    return path


def engine_of(folder: Path) -> TransformersEngine:
    config = EngineConfig(model=str(folder), dtype="float32", max_model_len=512, device="cpu")
    return TransformersEngine(config)


def answers(
    engine: TransformersEngine,
    asked: Sequence[ImageQuestion],
    images: Path,
    sampling: Sampling,
    shift: int = 0,
) -> list[list[str]]:
    """The answers to each question; ``shift`` > 0 shows the image of a later question."""
    shown = [(images / f"{item.image}.png").read_bytes() for item in asked]
    shown = shown[shift:] + shown[:shift]
    prompts = [
        Prompt((("user", item.question),), seed=row, image=image)
        for row, (item, image) in enumerate(zip(asked, shown, strict=True))
    ]
    return [[a.text for a in generation.answers] for generation in engine.sample(prompts, sampling)]


def accuracy(found: Sequence[Sequence[str]], asked: Sequence[ImageQuestion]) -> float:
    most = [max(sorted(set(texts)), key=list(texts).count) for texts in found]
    return float(np.mean([text == item.answer for text, item in zip(most, asked, strict=True)]))


def test_the_engine_samples_answers_that_end(folder: Path, questions: Path) -> None:
    asked = read_questions(questions)[:2]
    found = answers(engine_of(folder), asked, questions.parent / "images", Sampling(n=3, max_tokens=8))
    assert [len(texts) for texts in found] == [3, 3]
    assert {text for texts in found for text in texts} <= {"red", "blue", "yes", "no"}


def test_the_plain_question_becomes_an_instruction_with_the_image_before_it(
    folder: Path, questions: Path
) -> None:
    image = (questions.parent / "images" / "0.png").read_bytes()
    prompt = Prompt((("user", "what color is it?"),), seed=0, image=image)
    (text,) = engine_of(folder)._checkpoint.render([prompt], 8)
    assert text.text == "<s>[INST] <image>\nwhat color is it? [/INST]"


def test_a_question_without_an_image_can_be_asked(folder: Path) -> None:
    prompt = Prompt((("user", "what color is the image?"),), seed=0)
    (generation,) = engine_of(folder).sample([prompt], Sampling(n=2, max_tokens=4))
    assert len(generation.answers) == 2


@pytest.mark.parametrize("size", [(64, 64), (300, 120), (40, 200)])
def test_an_image_of_any_size_is_read(folder: Path, tmp_path: Path, size: tuple[int, int]) -> None:
    Image.new("RGB", size, "red").save(tmp_path / "0.png")
    found = answers(
        engine_of(folder),
        [ImageQuestion("what color is the image?", "red", 0)],
        tmp_path,
        Sampling(n=1, max_tokens=4),
    )
    assert len(found[0]) == 1


def test_the_record_names_seed_steps_and_final_loss(folder: Path) -> None:
    record = json.loads((folder / "training.json").read_text())
    assert (record["seed"], record["steps"], 0 < record["final_loss"] < 2) == (7, 60, True)


def test_the_last_step_is_reported(folder: Path, said: list[str]) -> None:
    assert said[-1].startswith("step 60 of 60, loss ")


def test_nothing_in_the_folder_needs_code_or_pickles(folder: Path) -> None:
    assert {path.suffix for path in folder.iterdir()} <= {".json", ".safetensors", ".jinja"}


def test_words_of_the_vocabulary_are_lower_case_and_sorted() -> None:
    assert vocabulary([ImageQuestion("Is it Red?", "no", 0)]) == ["?", "is", "it", "no", "red"]


def test_a_missing_image_is_named(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=r"0\.png cannot be read .*Install easy-vqa 1\.0 again"):
        read_images(tmp_path, 1)


def test_an_image_of_another_size_is_named(tmp_path: Path) -> None:
    Image.new("RGB", (32, 64)).save(tmp_path / "0.png")
    with pytest.raises(IntegrityError, match=r"0\.png has 32 x 64 pixels, expected 64 x 64"):
        read_images(tmp_path, 1)


@pytest.mark.slow
def test_the_full_training_learns_from_the_images(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("easy_vqa")
    assert spec is not None and spec.submodule_search_locations
    data = Path(spec.submodule_search_locations[0]) / "data"
    write(data / "train" / "questions.json", tmp_path, print)
    engine, images = engine_of(tmp_path), data / "test" / "images"
    pool = read_questions(data / "test" / "questions.json")
    asked = [pool[row] for row in np.random.default_rng(0).choice(len(pool), 400, replace=False)]
    greedy = Sampling(n=1, temperature=0.0, max_tokens=4)
    seen = accuracy(answers(engine, asked, images, greedy), asked)
    swapped = accuracy(answers(engine, asked, images, greedy, shift=1), asked)
    assert 0.6 <= seen <= 0.9
    # Two proportions of 400: 0.1 is about three standard errors.
    assert seen - swapped > 0.1
    drawn = answers(engine, asked[:50], images, Sampling(n=10, max_tokens=4))
    assert sum(len(set(texts)) > 1 for texts in drawn) >= 10
