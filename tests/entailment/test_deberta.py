"""The reference is the same small model, run by transformers on one pair of token ids at a time."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sgpu.entailment import deberta
from sgpu.entailment.base import BACKENDS, ENTAIL, AnswerPair, Backend
from sgpu.entailment.deberta import DebertaBackend, batch_padded_lengths, class_columns
from sgpu.entailment.rows import AnswerSet, relations
from sgpu.errors import DataError, IntegrityError, UsageError
from sgpu.models import weights
from tests.contracts.entailment_contract import QUESTION, EntailmentContract
from tests.entailment.tiny_deberta import MAX_LENGTH, plain_verdict, token_ids, write_deberta

TEXTS = ["Paris", "", "It is Lyon.", "a rather longer answer, which is not to the point", "42", "Zürich 東京"]
PAIRS = [AnswerPair(QUESTION, a, b) for a, b in permutations(TEXTS, 2)]
MNLI_COLUMNS = (2, 1, 0)  # entail, neutral, contradict among `MNLI_LABELS`


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_deberta(tmp_path_factory.mktemp("deberta"))


@pytest.fixture(scope="module")
def plain(folder: Path) -> np.ndarray:
    return np.array([plain_verdict(folder, p.premise, p.hypothesis, MNLI_COLUMNS) for p in PAIRS])


def backend_of(folder: Path, **options: object) -> DebertaBackend:
    return DebertaBackend(
        str(folder), device="cpu", **{"prefix_question": False, "dtype": "float32", **options}
    )  # type: ignore[arg-type]


@pytest.fixture
def sequences(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """The shape of every batch that goes through a model while the test runs."""
    shapes: list[tuple[int, int]] = []
    forward = DebertaBackend._forward

    def counted(self: DebertaBackend, rows: dict[str, list[list[int]]]) -> np.ndarray:
        shapes.append((len(rows["input_ids"]), max(map(len, rows["input_ids"]))))
        return forward(self, rows)

    monkeypatch.setattr(DebertaBackend, "_forward", counted)
    yield shapes


class TestDebertaContract(EntailmentContract):
    @pytest.fixture
    def backend(self, folder: Path, plain: np.ndarray) -> Backend:
        entail = plain[:, ENTAIL]
        self.same, self.different = PAIRS[int(entail.argmax())], PAIRS[int(entail.argmin())]
        return backend_of(folder)


def test_the_small_model_tells_pairs_and_directions_apart(plain: np.ndarray) -> None:
    # Else the comparisons below could not fail.
    assert np.ptp(plain, axis=0).min() > 0.1
    assert np.abs(plain[0] - plain[[p == AnswerPair(QUESTION, "", "Paris") for p in PAIRS]][0]).max() > 1e-3


@pytest.mark.parametrize("token_budget", [1, 150, 10_000])
def test_verdicts_equal_plain_transformers_pair_by_pair_however_batched(
    folder: Path, plain: np.ndarray, token_budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(deberta.TOKEN_BUDGET, "cpu", token_budget)
    assert backend_of(folder).classify(PAIRS) == pytest.approx(plain, abs=2e-6)


def test_texts_are_parted_by_one_separator(folder: Path) -> None:
    backend = backend_of(folder)
    encoded = backend._tokenizer("Paris", "Lyon")
    assert encoded["input_ids"] == token_ids("Paris", "Lyon")


def test_a_separator_in_an_answer_is_text(folder: Path) -> None:
    text = "Paris [SEP] Lyon [CLS]"
    expected = plain_verdict(folder, text, "x", MNLI_COLUMNS)
    assert backend_of(folder).classify([AnswerPair("", text, "x")])[0] == pytest.approx(expected, abs=2e-6)


def test_the_question_stands_before_both_texts_if_asked_for(folder: Path) -> None:
    backend = backend_of(folder, prefix_question=True)
    assert backend.reads_question and not backend_of(folder).reads_question
    expected = plain_verdict(folder, f"{QUESTION} Paris", f"{QUESTION} Lyon", MNLI_COLUMNS)
    assert backend.classify([AnswerPair(QUESTION, "Paris", "Lyon")])[0] == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize(
    ("labels", "columns"),
    [
        (("entailment", "neutral", "contradiction"), (0, 1, 2)),
        (("Neutral", "Contradiction", "Entailment"), (2, 0, 1)),
    ],
)
def test_the_order_of_classes_is_read_from_the_labels(
    tmp_path: Path, plain: np.ndarray, labels: tuple[str, ...], columns: tuple[int, ...]
) -> None:
    permuted = backend_of(write_deberta(tmp_path, labels)).classify(PAIRS)
    # The weights are those of `plain`: only the names of the three logits moved.
    logits_of_plain = plain[:, np.argsort(MNLI_COLUMNS)]
    assert permuted == pytest.approx(logits_of_plain[:, columns], abs=2e-6)


@pytest.mark.parametrize(
    "labels",
    [
        {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"},
        {0: "entailment", 1: "not_entailment"},
        {0: "entailment", 1: "entailment", 2: "neutral"},
        {0: "entailment", 1: "neutral", 2: "contradiction", 3: "other"},
    ],
)
def test_labels_that_are_not_the_three_classes_are_refused(labels: dict[int, str]) -> None:
    with pytest.raises(IntegrityError, match=r"labels \['.*correct id2label"):
        class_columns(labels, "here")


def test_identical_answers_are_read_once(folder: Path, sequences: list[tuple[int, int]]) -> None:
    answers = ["Paris"] * 12 + ["Lyon"] * 5 + ["Nice"] * 3
    (relation,) = relations([AnswerSet(QUESTION, tuple(answers))], backend_of(folder))
    assert sum(rows for rows, _ in sequences) == 3 * 2  # of 20 x 19 ordered pairs
    for i, j in ((0, 12), (16, 11), (19, 3)):
        expected = plain_verdict(folder, answers[i], answers[j], MNLI_COLUMNS)
        assert relation[i, j] == pytest.approx(expected, abs=2e-6)
    assert relation[2, 7].tolist() == relation[18, 18].tolist() == [1, 0, 0]


def test_equal_pairs_of_two_questions_are_read_once_unless_the_question_is_read(
    folder: Path, sequences: list[tuple[int, int]]
) -> None:
    sets = [AnswerSet(question, ("yes", "no")) for question in ("Is it?", "Was it?")]
    relations(sets, backend_of(folder))
    assert sum(rows for rows, _ in sequences) == 2
    relations(sets, backend_of(folder, prefix_question=True))
    assert sum(rows for rows, _ in sequences) == 2 + 4


def test_pairs_of_one_length_share_a_batch_within_the_budget(
    folder: Path, sequences: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(deberta.TOKEN_BUDGET, "cpu", 200)
    texts = [letter * size for size in (3, 40) for letter in "abcd"]
    pairs = [AnswerPair("", a, b) for a, b in permutations(texts, 2) if len(a) == len(b)]
    backend_of(folder).classify(pairs)
    assert all(rows * length <= 200 for rows, length in sequences)
    # 12 pairs of 83 tokens, two to a batch, and 12 of 9 in one.
    assert sequences == [(2, 83)] * 6 + [(12, 9)]


def test_a_pair_longer_than_the_model_reads_is_cut(folder: Path, sequences: list[tuple[int, int]]) -> None:
    cut = backend_of(folder).classify(
        [AnswerPair("", "a" * 500, "b" * 20), AnswerPair("", "a" * 105, "b" * 20)]
    )
    assert sequences[0] == (2, MAX_LENGTH)
    assert cut[0] == pytest.approx(cut[1], abs=1e-6)


def test_batches_cover_every_item_once_longest_first() -> None:
    lengths = [3, 9, 1, 9, 4, 2, 30]
    batches = [batch.tolist() for batch in batch_padded_lengths(lengths, 18)]
    assert batches == [[6], [1, 3], [4, 0, 5, 2]]
    assert list(batch_padded_lengths([], 18)) == []


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.1), ("float16", 0.01)])
def test_half_precision_stays_close(folder: Path, plain: np.ndarray, dtype: str, tolerance: float) -> None:
    half = backend_of(folder, dtype=dtype).classify(PAIRS)
    assert half == pytest.approx(plain, abs=tolerance)
    assert np.abs(half - plain).max() > 1e-5  # else these were the float32 weights


def test_a_model_that_is_not_here_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(DataError, match="hf download microsoft/deberta-large-mnli --revision abc"):
        DebertaBackend(revision="abc")


def test_the_revision_says_which_cached_weights_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    snapshots = tmp_path / "models--some--nli" / "snapshots"
    commits = ["a" * 40, "b" * 40]
    folders = [write_deberta(snapshots / commit, seed=seed) for seed, commit in enumerate(commits)]
    for revision, folder in zip(commits, folders, strict=True):
        backend = DebertaBackend(
            "some/nli", revision=revision, prefix_question=False, device="cpu", dtype="float32"
        )
        expected = plain_verdict(folder, "Paris", "Lyon", MNLI_COLUMNS)
        assert backend.classify([AnswerPair("", "Paris", "Lyon")])[0] == pytest.approx(expected, abs=2e-6)


@pytest.fixture
def pickled(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same classifier as Microsoft has it: its weights are a pickled state dict, some of them shared."""
    monkeypatch.setenv("SGPU_CACHE", str(tmp_path / "cache"))
    shutil.copytree(folder, tmp_path / "pickled")
    state = load_file(tmp_path / "pickled" / "model.safetensors")
    name, tensor = next(iter(state.items()))
    torch.save({**state, f"tied.{name}": tensor}, tmp_path / "pickled" / "pytorch_model.bin")
    (tmp_path / "pickled" / "model.safetensors").unlink()
    return tmp_path / "pickled"


def test_pickled_weights_are_converted_once_and_say_the_same(
    folder: Path, pickled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (backend_of(pickled).classify(PAIRS) == backend_of(folder).classify(PAIRS)).all()
    monkeypatch.setattr(weights, "_unpickle", lambda *_: pytest.fail("converted a second time"))
    assert (backend_of(pickled).classify(PAIRS) == backend_of(folder).classify(PAIRS)).all()


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(pickled: Path) -> None:
    torch.save({"weight": Malicious(pickled / "was_run")}, pickled / "pytorch_model.bin")
    with pytest.raises(IntegrityError, match=r"to safetensors: it calls posix\.system"):
        backend_of(pickled)
    assert not (pickled / "was_run").exists()


@pytest.mark.parametrize("content", [b"", b"no pickle at all"])
def test_a_file_that_is_not_a_state_dict_is_refused(pickled: Path, content: bytes) -> None:
    (pickled / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(IntegrityError, match="cannot be converted to safetensors"):
        backend_of(pickled)


def test_a_state_dict_inside_another_is_refused(pickled: Path) -> None:
    torch.save({"model": {"weight": torch.zeros(2)}}, pickled / "pytorch_model.bin")
    with pytest.raises(IntegrityError, match="something else than tensors by name"):
        backend_of(pickled)


def test_code_in_a_checkpoint_is_not_run(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "own")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForSequenceClassification": "own.Model"}
    (tmp_path / "own" / "config.json").write_text(json.dumps(config))
    (tmp_path / "own" / "own.py").write_text("raise SystemExit('was run')")
    assert backend_of(tmp_path / "own").classify(PAIRS[:1]).shape == (1, 3)


@pytest.mark.parametrize(
    ("options", "message"), [({"dtype": "int8"}, "dtype 'int8'"), ({"device": "tpu"}, "device 'tpu'")]
)
def test_an_unknown_dtype_or_device_is_refused(folder: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        DebertaBackend(str(folder), **options)  # type: ignore[arg-type]


def test_the_registry_knows_it(folder: Path) -> None:
    assert BACKENDS.get("deberta") is DebertaBackend


def test_float32_is_the_default_on_a_cpu(folder: Path) -> None:
    assert backend_of(folder)._model.dtype == torch.float32
