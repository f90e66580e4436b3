"""The sampling worker by itself, with a real engine of a tiny model."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from sgpu.engines.base import EngineConfig, Sampling
from sgpu.engines.transformers import TransformersEngine
from sgpu.stages.sample import HeldEngine, SampleWorker
from tests.engines.tiny_llama import build


def test_a_prompt_that_cannot_be_rendered_costs_no_call_of_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EngineConfig(model=str(build(tmp_path)), dtype="float32", device="cpu", max_model_len=64)
    engine = HeldEngine("transformers", config, "tiny", "tiny")
    worker = SampleWorker(engine, Sampling(n=2, max_tokens=4), "{question}", None, ["0"])
    worker.open()
    read: list[str] = []
    prefill = TransformersEngine._prefill

    def counted(self, rendered):  # type: ignore[no-untyped-def]
        read.extend(question for question in questions if question in rendered.text)
        return prefill(self, rendered)

    monkeypatch.setattr(TransformersEngine, "_prefill", counted)
    questions = ["Who?", "w" * 100, "What?", "x" * 200]
    ids = ["a", "b", "c", "d"]
    output = worker(pa.table({"question_id": ids, "question": questions, "image": pa.nulls(4, pa.binary())}))
    assert sorted(read) == ["What?", "Who?"]
    rows = {row["question_id"]: row for row in output.to_pylist()}
    assert sorted(rows) == ids
    assert [len(rows[row_id]["answers"] or []) for row_id in ids] == [2, 0, 2, 0]
    for row_id in "bd":
        assert rows[row_id]["status"] == "failed"
        assert rows[row_id]["error"].startswith("PromptError: the prompt ")
        assert "at most 60" in rows[row_id]["error"]
