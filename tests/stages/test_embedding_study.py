"""Constructed sets and quoted pairs of sentences, embedded and judged in this process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bench.random_deberta import write_deberta
from sgpu.entailment.base import AnswerPair
from sgpu.entailment.deberta import DebertaBackend
from sgpu.stages.embedding_study import PAIR, PAIRS, EmbeddingWorker
from sgpu.stages.encode import HeldEncoder
from sgpu.stages.entail import HeldBackend
from sgpu.storage.tables import CONSTRUCTED

ENCODER = HeldEncoder("all-MiniLM-L6-v2", "float32", "cpu")


@pytest.mark.parametrize("judged", [True, False])
def test_a_pair_gets_its_cosine_and_the_classifiers_verdict(tmp_path: Path, judged: bool) -> None:
    write_deberta(tmp_path / "nli")
    options = {"model": str(tmp_path / "nli"), "dtype": "float32"}
    question, *texts = PAIRS[0]
    row = {"question_id": f"{PAIR}0", "question": question, "texts": texts, "clusters": [0, 0]}
    classifier = HeldBackend("deberta", options, device="cpu") if judged else None
    worker = EmbeddingWorker(ENCODER, "", None, classifier)
    worker.open()
    (found,) = worker(pa.Table.from_pylist([row], schema=CONSTRUCTED.schema)).to_pylist()
    first, second = ENCODER.open().encode(texts).astype(np.float64)
    assert 1 - found["epsilon"][0] == pytest.approx(first @ second, abs=1e-6)
    pairs = [AnswerPair(question, *texts), AnswerPair(question, *reversed(texts))]
    verdicts = DebertaBackend(**options, device="cpu").classify(pairs)
    assert found["entailed"] is (all(verdicts.argmax(axis=1) == 0) if judged else None)
