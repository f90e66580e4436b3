"""Many questions in one row cost less and mean the same as one question at a time."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from easy_vqa_model.llava import build_model, build_processor, read_images, read_questions, vocabulary
from easy_vqa_model.training import (
    IGNORED,
    ImageQuestion,
    ImageTraining,
    answer_loss,
    fit,
    normalised,
    picture,
    prompt,
    tokenise,
)

from sgpu.errors import TrainingError, UsageError
from tests.examples.drawn_images import draw

Drawn = tuple[list[ImageQuestion], torch.Tensor, Any]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    questions = draw(tmp_path_factory.mktemp("drawn"))
    asked = read_questions(questions)
    return asked, read_images(questions.parent / "images", 16), build_processor(vocabulary(asked))


def trained(drawn: Drawn, training: ImageTraining) -> tuple[Any, float]:
    asked, pixels, processor = drawn
    return fit(partial(build_model, processor.tokenizer), processor, pixels, asked, training, lambda _: None)


def test_questions_in_a_row_have_the_loss_of_questions_asked_alone(drawn: Drawn) -> None:
    asked, pixels, processor = drawn
    torch.manual_seed(1)
    model = build_model(processor.tokenizer).eval()
    rows = tokenise(processor, pixels[0], asked)
    chosen = torch.tensor([[0, 1, 2], [5, 4, 3]])
    with torch.inference_mode():
        found = answer_loss(model, normalised(processor, pixels[:2]), rows, chosen, rows.attention(3))
        alone = []
        for item in (asked[row] for row in chosen.flatten().tolist()):
            inputs = processor(
                text=f"{prompt(processor, item.question)} {item.answer}</s>",
                images=[picture(pixels[item.image])],
                add_special_tokens=False,
                return_tensors="pt",
            )
            labels = inputs["input_ids"].clone()
            labels[:, :-2] = IGNORED
            alone.append(model(**inputs, labels=labels).loss)
    # Each answer has two tokens, so the mean of the means is the mean of all.
    torch.testing.assert_close(found, torch.stack(alone).mean(), rtol=1e-5, atol=1e-5)


def test_pixels_are_those_of_the_processor(drawn: Drawn) -> None:
    _, pixels, processor = drawn
    expected = processor.image_processor([picture(pixels[3])], return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(normalised(processor, pixels[3:4]), expected)


def test_the_loss_counts_the_answer_and_its_end_only(drawn: Drawn) -> None:
    asked, pixels, processor = drawn
    targets = tokenise(processor, pixels[0], asked[:1]).targets[0]
    assert processor.tokenizer.convert_ids_to_tokens(targets[targets != IGNORED].tolist()) == ["blue", "</s>"]


def test_the_same_seed_gives_the_same_weights(drawn: Drawn) -> None:
    training = ImageTraining(steps=3, images_per_step=4, questions_per_image=3)
    first, again = (trained(drawn, training)[0].state_dict() for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_another_seed_gives_other_weights(drawn: Drawn) -> None:
    first, other = (
        trained(drawn, ImageTraining(steps=1, images_per_step=4, seed=seed))[0].lm_head.weight
        for seed in (7, 8)
    )
    assert not torch.equal(first, other)


def test_the_process_keeps_its_random_state_and_threads(drawn: Drawn) -> None:
    before = torch.get_rng_state(), torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    trained(drawn, ImageTraining(steps=1, images_per_step=4, questions_per_image=3))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())


def test_training_lowers_the_loss(drawn: Drawn) -> None:
    start = trained(drawn, ImageTraining(steps=1, images_per_step=4, questions_per_image=3))[1]
    end = trained(drawn, ImageTraining(steps=60, images_per_step=4, questions_per_image=3))[1]
    assert end < start / 2


def test_a_loss_that_is_not_finite_stops_the_training(drawn: Drawn) -> None:
    with pytest.raises(TrainingError, match=r"the loss is nan at step \d+\. Lower learning_rate"):
        trained(drawn, ImageTraining(steps=5, images_per_step=4, learning_rate=1e30))


def test_no_steps_are_refused() -> None:
    with pytest.raises(UsageError, match="steps is 0; at least 1"):
        ImageTraining(steps=0)
