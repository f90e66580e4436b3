"""What is computed on a GPU is what the CPU computes, within the stated tolerance.

It needs torch, transformers, gpytorch and tokenizers, and no file of weights: models are random.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from bench.constructed import constructed_spectra
from bench.random_deberta import write_deberta
from bench.random_models import write_bert, write_llama
from sgpu.encoders.cards import read_card
from sgpu.encoders.sentence import SentenceEncoder
from sgpu.engines.base import EngineConfig, Prompt, Sampling
from sgpu.engines.transformers import TransformersEngine
from sgpu.entailment.base import AnswerPair
from sgpu.entailment.deberta import DebertaBackend
from sgpu.gp import GPClassifier
from sgpu.hidden.extractor import HiddenStateExtractor
from sgpu.hidden.rows import AnsweredPrompt
from sgpu.spectrum import spectrum
from tests.contracts.engine_contract import EngineContract
from tests.engines.tiny_image_models import FAMILIES, picture

# Of log-probabilities in float32: sums of another order, over logits of up to some tens.
LOGPROB = 2e-3
# Of float16, for numbers of the size of hidden states.
HALF = 4e-3
QUESTIONS = [f"What is the {i}th city of the list, and in which country does it lie?" for i in range(50)]
TEXTS = ["Paris", "", "It is Lyon.", "a rather longer answer, which is not to the point", "42", "Zürich 東京"]


def prompts(count: int) -> list[Prompt]:
    return [Prompt((("user", question),), 1024 * (1 + i)) for i, question in enumerate(QUESTIONS[:count])]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("llama"))


def config(folder: Path, device: str, dtype: str = "float32") -> EngineConfig:
    return EngineConfig(model=str(folder), dtype=dtype, device=device, max_model_len=1024, max_num_seqs=64)


class TestTransformersEngine(EngineContract):
    """Seeds, order, log-probabilities and prompts that are too long, on the device."""

    @pytest.fixture(scope="class")
    def engine(self, llama: Path, device: str) -> Iterator[TransformersEngine]:
        engine = TransformersEngine(config(llama, device))
        yield engine
        engine.close()


def plain_logprobs(folder: Path, prompt_ids: list[int], answer_ids: list[int]) -> np.ndarray:
    """Of each token of an answer, by one plain forward pass of transformers on the CPU."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        logits = model(torch.tensor([prompt_ids + answer_ids])).logits[0].log_softmax(dim=-1)
    places = torch.arange(len(prompt_ids) - 1, len(prompt_ids) + len(answer_ids) - 1)
    return logits[places, torch.tensor(answer_ids)].numpy()


def test_log_probabilities_of_50_prompts_are_those_of_transformers(llama: Path, device: str) -> None:
    engine = TransformersEngine(config(llama, device))
    asked = prompts(50)
    found = engine.sample(asked, Sampling(n=2, max_tokens=8))
    for rendered, generation in zip(engine._checkpoint.render(asked, 8), found, strict=True):
        for answer in generation.answers:
            expected = plain_logprobs(llama, list(rendered.token_ids), list(answer.token_ids))
            np.testing.assert_allclose(answer.token_logprobs, expected, atol=LOGPROB)
    engine.close()


def test_the_mass_of_a_judges_yes_and_no_is_that_of_transformers(llama: Path, device: str) -> None:
    engine = TransformersEngine(config(llama, device))
    asked = prompts(10)
    mass = engine.next_token_logprobs(asked, ["y", "n"])
    for rendered, found in zip(engine._checkpoint.render(asked, 1), mass, strict=True):
        ids = [engine._tokenizer.convert_tokens_to_ids(letter) for letter in "yn"]
        expected = [plain_logprobs(llama, list(rendered.token_ids), [token])[0] for token in ids]
        np.testing.assert_allclose(found, expected, atol=LOGPROB)
    engine.close()


def test_an_engine_that_was_ended_leaves_its_place_to_the_next(llama: Path, device: str) -> None:
    first = TransformersEngine(config(llama, device))
    said = first.sample(prompts(3), Sampling(n=4, max_tokens=6))
    first.close()
    del first
    if device == "cuda":
        assert torch.cuda.memory_allocated() < 2**26
    second = TransformersEngine(config(llama, device))
    assert second.sample(prompts(3), Sampling(n=4, max_tokens=6)) == said
    second.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_images_are_read_as_on_the_cpu(
    tmp_path_factory: pytest.TempPathFactory, device: str, family: str
) -> None:
    folder = FAMILIES[family](tmp_path_factory.mktemp(family))
    asked = [Prompt((("user", "What is it?"),), 1, picture(0)), Prompt((("user", "What is it?"),), 2)]
    greedy = Sampling(n=1, temperature=0.0, max_tokens=4)
    ours, reference = (
        TransformersEngine(config(folder, where)).sample(asked, greedy) for where in (device, "cpu")
    )
    for one, other in zip(ours, reference, strict=True):
        assert (one.prompt_sha256, one.n_prompt_tokens) == (other.prompt_sha256, other.n_prompt_tokens)
        assert one.answers[0].token_ids[0] == other.answers[0].token_ids[0]
        np.testing.assert_allclose(
            one.answers[0].token_logprobs[0], other.answers[0].token_logprobs[0], atol=LOGPROB
        )


def test_hidden_states_are_those_of_the_cpu(llama: Path, device: str) -> None:
    asked = prompts(4)
    states = []
    for where in (device, "cpu"):
        extractor = HiddenStateExtractor(config(llama, where), [1, 2])
        rendered = extractor._checkpoint.render(asked, 1)
        answers = [[40, 41, 42, 43], [50, 51], None, [60]]
        given = zip(asked, rendered, strict=True)
        states.append(
            extractor.states([AnsweredPrompt(prompt, text.sha256, answers) for prompt, text in given])
        )
    for ours, reference in zip(*states, strict=True):
        for name in ("tbg", "slt", "last"):
            found, expected = (np.asarray(getattr(side, name), np.float32) for side in (ours, reference))
            np.testing.assert_allclose(found, expected, atol=HALF, rtol=HALF)


def test_embeddings_and_eigenvalues_are_those_of_the_cpu(
    tmp_path_factory: pytest.TempPathFactory, device: str
) -> None:
    folder = write_bert(tmp_path_factory.mktemp("bert"))
    ours, reference = (
        SentenceEncoder(read_card(folder), folder, "float32", where).encode(TEXTS)
        for where in (device, "cpu")
    )
    np.testing.assert_allclose(ours, reference, atol=1e-4)
    np.testing.assert_allclose(spectrum(ours), spectrum(reference), atol=1e-4 * len(TEXTS))


def test_entailment_is_that_of_the_cpu(tmp_path_factory: pytest.TempPathFactory, device: str) -> None:
    folder = write_deberta(tmp_path_factory.mktemp("deberta"))
    pairs = [AnswerPair("Which city?", a, b) for a, b in permutations(TEXTS, 2)]
    ours, reference = (
        DebertaBackend(str(folder), dtype="float32", device=where).classify(pairs)
        for where in (device, "cpu")
    )
    np.testing.assert_allclose(ours, reference, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_fit_of_a_cell_is_that_of_the_cpu(device: str, dtype: str) -> None:
    rows = constructed_spectra(600, seed=3)
    held = constructed_spectra(300, seed=4)
    ours, reference = (
        GPClassifier(dtype=dtype).fit(rows.spectra, rows.label, device=where).predict(held.spectra)
        for where in (device, "cpu")
    )
    tolerance = 1e-4 if dtype == "float64" else 2e-2
    np.testing.assert_allclose(ours.probability, reference.probability, atol=tolerance)
    np.testing.assert_allclose(ours.sd, reference.sd, atol=tolerance)


def test_a_pooled_fit_is_that_of_the_cpu(device: str) -> None:
    """A million rows on a GPU, against the CPU's fit of the same rows."""
    rows = constructed_spectra(1000, seed=5)
    times = 1000 if device == "cuda" else 3
    spectra, label = np.tile(rows.spectra, (times, 1)), np.tile(rows.label, times)
    spectra = spectra + np.random.default_rng(0).normal(0, 1e-3, spectra.shape)
    ours, reference = (
        GPClassifier(inducing=64, hyper_rows=1000).fit(spectra, label, device=where).predict(rows.spectra)
        for where in (device, "cpu")
    )
    np.testing.assert_allclose(ours.probability, reference.probability, atol=1e-3)
