"""Training of a small image model from nothing: one optimiser, one seed, the loss on the answers only.

All questions drawn for an image stand in one row behind it: each sees the image and itself, not the others.
The image is then read once for all of them, which is what makes about a minute enough.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from sgpu.errors import TrainingError, UsageError

SECONDS_BETWEEN_REPORTS = 10.0
IGNORED = -100


@dataclass(frozen=True)
class ImageQuestion:
    """One question about the image at row ``image``, with its right answer."""

    question: str
    answer: str
    image: int


@dataclass(frozen=True, kw_only=True)
class ImageTraining:
    """How long and how to train.

    ``open_weight``: how often an open question is drawn per yes-or-no question at the start; 1 at the end.
    """

    seed: int = 7
    steps: int = 650
    images_per_step: int = 16
    questions_per_image: int = 8
    learning_rate: float = 1e-3
    weight_decay: float = 0.05
    open_weight: float = 5.0
    # Fixed, because another number of threads rounds sums otherwise; a second one gains a tenth only.
    threads: int = 1

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise UsageError(f"steps is {self.steps}; at least 1 is needed.")


@dataclass(frozen=True)
class TokenisedQuestions:
    """Token ids: ``prefix`` up to the end of the image, then each question with its answer, padded to L."""

    prefix: torch.Tensor  # (P,)
    ids: torch.Tensor  # (questions, L)
    targets: torch.Tensor  # (questions, L), IGNORED but for the answer and its end
    image_token: int

    def attention(self, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The mask (1, 1, T, T), added to the scores, and the positions (1, T) of ``n`` questions."""
        start, length = len(self.prefix), self.ids.shape[1]
        part = torch.cat([torch.zeros(start), torch.arange(1, n + 1).repeat_interleave(length)])
        visible = ((part[:, None] == part) | (part == 0)).tril()
        mask = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)
        positions = torch.cat([torch.arange(start), start + torch.arange(length).repeat(n)])
        return mask[None, None], positions[None]


def fit(
    model_of: Callable[[], Any],
    processor: Any,
    pixels: torch.Tensor,
    examples: Sequence[ImageQuestion],
    training: ImageTraining,
    say: Callable[[str], None],
) -> tuple[Any, float]:
    """The trained model and the mean loss of its last 50 steps. ``pixels`` are uint8 (images, 3, H, W).

    The same seed gives the same weights on the same machine and version of torch; elsewhere the order of
    floating-point sums differs, and with it the weights. Raises TrainingError if the loss is not finite.
    """
    with _repeatable(training):
        model = model_of().train()
        rows = tokenise(processor, pixels[0], examples)
        optimiser = torch.optim.AdamW(
            model.parameters(),
            lr=training.learning_rate,
            weight_decay=training.weight_decay,
            betas=(0.9, 0.98),
        )
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, training.learning_rate, total_steps=training.steps, pct_start=0.15
        )
        attention = rows.attention(training.questions_per_image)
        losses: list[float] = []
        started = reported = time.monotonic()
        for step, (images, chosen) in enumerate(_batches(len(pixels), examples, training), start=1):
            loss = answer_loss(model, normalised(processor, pixels[images]), rows, chosen, attention)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            losses.append(float(loss.detach()))
            if not losses[-1] < float("inf"):
                raise TrainingError(f"the loss is {losses[-1]} at step {step}. Lower learning_rate.")
            now = time.monotonic()
            if now - reported >= SECONDS_BETWEEN_REPORTS or step == training.steps:
                say(f"step {step} of {training.steps}, loss {losses[-1]:.2f}, {now - started:.0f} s")
                reported = now
    return model.eval(), sum(losses[-50:]) / len(losses[-50:])


def tokenise(processor: Any, pixels: torch.Tensor, examples: Sequence[ImageQuestion]) -> TokenisedQuestions:
    """The token ids of every question as the engine will send them, after its chat template."""
    tokenizer, image_token = processor.tokenizer, int(processor.image_token_id)
    cache: dict[tuple[str, str], tuple[list[int], int]] = {}
    for item in examples:
        if (item.question, item.answer) not in cache:
            ids = tokenizer(prompt(processor, item.question), add_special_tokens=False).input_ids
            answer = [*tokenizer(item.answer, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
            cache[item.question, item.answer] = ids[ids.index(image_token) + 1 :] + answer, len(answer)
    shape = len(examples), max(len(ids) for ids, _ in cache.values())
    ids_of_all = torch.full(shape, tokenizer.pad_token_id)
    targets = torch.full(shape, IGNORED)
    for row, item in enumerate(examples):
        ids, n_answer = cache[item.question, item.answer]
        ids_of_all[row, : len(ids)] = torch.tensor(ids)
        targets[row, len(ids) - n_answer : len(ids)] = torch.tensor(ids[-n_answer:])
    whole = processor(
        text=prompt(processor, examples[0].question), images=[picture(pixels)], add_special_tokens=False
    ).input_ids[0]
    end = len(whole) - list(whole)[::-1].index(image_token)
    return TokenisedQuestions(torch.tensor(whole[:end]), ids_of_all, targets, image_token)


def prompt(processor: Any, question: str) -> str:
    content = [{"type": "image"}, {"type": "text", "text": question}]
    return str(
        processor.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
    )


def picture(pixels: torch.Tensor) -> Any:
    from PIL import Image

    return Image.fromarray(pixels.permute(1, 2, 0).numpy())


def normalised(processor: Any, pixels: torch.Tensor) -> torch.Tensor:
    """What the processor makes of images that already have its size: (images, 2, 3, H, W).

    The overview and the single tile of LLaVA-NeXT are then the same picture.
    """
    front = processor.image_processor
    mean, deviation = (
        torch.tensor(front_value)[:, None, None] for front_value in (front.image_mean, front.image_std)
    )
    scaled = (pixels.float() * front.rescale_factor - mean) / deviation
    return scaled[:, None].expand(-1, 2, -1, -1, -1)


def answer_loss(
    model: Any,
    pixel_values: torch.Tensor,
    rows: TokenisedQuestions,
    chosen: torch.Tensor,
    attention: tuple[torch.Tensor, torch.Tensor],
) -> torch.Tensor:
    """Mean loss of the answer tokens. ``chosen`` (images, n) are the questions asked about each image."""
    n_images = len(chosen)
    prefix = rows.prefix.expand(n_images, -1)
    ids = torch.cat([prefix, rows.ids[chosen].flatten(1)], dim=1)
    targets = torch.cat([torch.full_like(prefix, IGNORED), rows.targets[chosen].flatten(1)], dim=1)
    sizes = torch.tensor([pixel_values.shape[-2:]] * n_images)
    features = torch.cat(model.model.get_image_features(pixel_values, sizes).pooler_output)
    embedded = model.get_input_embeddings()(ids)
    embedded = embedded.masked_scatter((ids == rows.image_token)[..., None], features)
    mask, positions = attention
    hidden = model.model.language_model(
        inputs_embeds=embedded,
        attention_mask=mask.expand(n_images, -1, -1, -1),
        position_ids=positions.expand(n_images, -1),
        use_cache=False,
    ).last_hidden_state
    counted = targets[:, 1:] != IGNORED
    return functional.cross_entropy(model.lm_head(hidden[:, :-1][counted]), targets[:, 1:][counted])


def _batches(
    n_images: int, examples: Sequence[ImageQuestion], training: ImageTraining
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """``steps`` times: image rows (B,), and question rows (B, n) drawn for them."""
    by_image: list[list[int]] = [[] for _ in range(n_images)]
    for row, item in enumerate(examples):
        by_image[item.image].append(row)
    is_open = torch.tensor([item.answer not in ("yes", "no") for item in examples])
    usable = torch.tensor([image for image, questions in enumerate(by_image) if questions])
    waiting = torch.empty(0, dtype=torch.long)
    for step in range(training.steps):
        # Open questions first, because yes or no can be guessed from the words long before it is seen.
        excess = (training.open_weight - 1) * (1 - step / training.steps)
        while len(waiting) < training.images_per_step:
            waiting = torch.cat([waiting, usable[torch.randperm(len(usable))]])
        images, waiting = waiting.split([training.images_per_step, len(waiting) - training.images_per_step])
        drawn = []
        for image in images.tolist():
            rows = torch.tensor(by_image[image])
            repeat = len(rows) < training.questions_per_image
            drawn.append(
                rows[torch.multinomial(1 + excess * is_open[rows], training.questions_per_image, repeat)]
            )
        yield images, torch.stack(drawn)


@contextmanager
def _repeatable(training: ImageTraining) -> Iterator[None]:
    """Fixed seed, threads and algorithms; what the process had before is restored."""
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(training.seed)
        torch.set_num_threads(training.threads)
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(strict)
            torch.set_num_threads(threads)
