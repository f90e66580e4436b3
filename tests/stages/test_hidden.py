"""The hidden-state stage on answers of a tiny model: its work in this process, and once under a real Ray."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
import torch

from sgpu.engines.base import EngineConfig
from sgpu.engines.pretrained import Pretrained
from sgpu.errors import StageError
from sgpu.hidden.pass_rows import answer_tokens
from sgpu.hidden.rows import ModelShape, Wanted, answer_states, probe_layers, probe_states
from sgpu.methods.base import METHODS
from sgpu.runtime.session import ray_session
from sgpu.runtime.stage import Outcome, Stage
from sgpu.stages.cell_frame import CellInputs, features
from sgpu.stages.hidden import (
    block_rows,
    drop_hidden_states,
    needs_hidden_states,
    plan_hidden_states,
    published_hidden_states,
    wanted_states,
    why_no_hidden_states,
)
from sgpu.stages.questions import prepare_questions
from sgpu.stages.run import Run
from sgpu.stages.sample import plan_sampling, question_prompt
from sgpu.storage.store import Partition, Published, fingerprint
from sgpu.study.benchmark import Cell
from tests.engines.tiny_llama import build
from tests.stages.quiet_runs import do, quiet_run

CELL = Cell("tiny", "worldfacts")
N = 3


@dataclass
class Done:
    """A sampled cell with its hidden states, and the model in this process."""

    root: Path
    published: Published
    rows: dict[str, dict[str, Any]]
    checkpoint: Pretrained


class RunHere(Run):
    """Runs a stage's worker in this process, in one block; what it reads and publishes is the same."""

    def run_stages(self, stages: Sequence[Stage]) -> list[Outcome]:
        return [self._run(stage) for stage in stages]

    def _run(self, stage: Stage) -> Outcome:
        key = fingerprint(stage.content)
        if current := self.store.unchanged(stage.table.name, stage.partition, key):
            return Outcome(stage.name, current, reused=True)
        stage.worker.open()
        rows = stage.worker(stage.source.read(stage.columns)).cast(stage.table.schema)
        statuses = dict(Counter(rows["status"].to_pylist()))
        manifest = {**stage.content, "rows_by_status": statuses}
        published = self.store.write(stage.table, stage.partition, rows, key, manifest)
        return Outcome(stage.name, published, reused=False)


def open_run(root: Path, kind: type[Run] = RunHere, **changes: Any) -> Run:
    study = {
        "models": [{"name": "tiny", "card": str(root / "tiny-llama"), "engine": "transformers"}],
        "datasets": [{"kind": "worldfacts", "n_train": 8, "n_test": 6}],
        "methods": ["cov_eigenscore", "umpire", "sep"],
        "sampling": {"n": N, "max_tokens": 8},
        "resources": {"device": "cpu"},
    }
    return quiet_run(study | changes, root / "out", kind)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    root = tmp_path_factory.mktemp("hidden")
    folder = root / "tiny-llama"
    folder.mkdir()
    build(folder)
    run = open_run(root)
    prepare_questions(run, "worldfacts")
    responses = do(plan_sampling, run, CELL).published.read().to_pylist()
    outcome = do(plan_hidden_states, run, CELL)
    assert outcome is not None and outcome.rows_by_status == {"ok": len(responses)}
    rows = {row["question_id"]: row for row in responses}
    for question in run.store.require("questions", Partition.of(dataset="worldfacts")).read().to_pylist():
        rows[question["question_id"]]["question"] = question["question"]
    config = EngineConfig(model=str(folder), device="cpu")
    return Done(root, outcome.published, rows, Pretrained(config))


def plain(done: Done, row: dict[str, Any], answer: int) -> torch.Tensor:
    """(S, T, D) states of prompt and answer, read at once."""
    study = open_run(done.root).study
    prompt = question_prompt(study.sampling.prompt, None, row["question"], None, 0)
    (text,) = done.checkpoint.render([prompt], 8)
    decode = done.checkpoint.tokenizer.decode
    found = answer_tokens(
        row["token_ids"][answer], lambda ids: decode(list(ids), skip_special_tokens=True), ["\n"]
    )
    assert found is not None
    ids = torch.tensor([[*text.token_ids, *found.tokens[: found.last + 1]]])
    with torch.inference_mode():
        output = done.checkpoint.model(ids, use_cache=False, output_hidden_states=True)
    return torch.stack([layer[0] for layer in output.hidden_states]).float()


def close(own: Any, expected: Any) -> bool:
    """Equal but for bfloat16's rounding in another order of sums."""
    a, b = np.asarray(own, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    return bool(a @ b / np.linalg.norm(a) / np.linalg.norm(b) > 0.999)


def answered(done: Done) -> tuple[dict[str, Any], int]:
    """A question and the place of an answer that has a text."""
    return next(
        (row, place) for row in done.rows.values() for place, text in enumerate(row["answers"]) if text
    )


def test_states_of_sampled_answers_are_those_of_a_plain_pass(done: Done) -> None:
    row, place = answered(done)
    expected = plain(done, row, place)
    for name, layer in (("middle", 1), ("last", 2)):
        states = answer_states(done.published, [row["question_id"]], name)
        assert states.shape == (1, N, 32)
        assert close(states[0, place], expected[layer, -1])
    assert not close(states[0, place], expected[1, -1])


def test_probes_find_the_last_token_of_the_prompt_at_tbg(done: Done) -> None:
    row, place = answered(done)
    n_prompt = plain(done, row, place).shape[1]
    study = open_run(done.root).study
    prompt = question_prompt(study.sampling.prompt, None, row["question"], None, 0)
    (text,) = done.checkpoint.render([prompt], 8)
    assert n_prompt > len(text.token_ids)
    states = probe_states(done.published, [row["question_id"]], "tbg")
    assert probe_layers(done.published) == [0, 1, 2]
    for layer in (1, 2):
        assert close(states[0, layer], plain(done, row, place)[layer, len(text.token_ids) - 1])


def test_an_unchanged_stage_is_not_run_again(done: Done) -> None:
    again = do(plan_hidden_states, open_run(done.root), CELL)
    assert again is not None and again.reused


def test_states_are_deleted_once_a_study_does_not_keep_them_and_made_again_once_it_does(
    done: Done, tmp_path: Path
) -> None:
    shutil.copytree(done.root, tmp_path, dirs_exist_ok=True)
    models = [{"name": "tiny", "card": str(done.root / "tiny-llama"), "engine": "transformers"}]
    run, ids = open_run(tmp_path, models=models, keep={"hidden_states": False}), list(done.rows)
    before = sum(file.stat().st_size for file in tmp_path.rglob("*.parquet"))
    for _ in range(2):
        drop_hidden_states(run, [CELL])
    assert sum(file.stat().st_size for file in tmp_path.rglob("*.parquet")) < before / 2
    again = do(plan_hidden_states, run, CELL)
    assert again is not None and again.reused and again.rows == len(ids)
    with pytest.raises(StageError, match=r"were deleted.*keep\.hidden_states=true makes them again"):
        answer_states(again.published, ids, "last")
    made = do(plan_hidden_states, open_run(tmp_path, models=models), CELL)
    assert made is not None and not made.reused
    expected = answer_states(done.published, ids, "last")
    assert np.array_equal(answer_states(made.published, ids, "last"), expected, equal_nan=True)


def test_answers_of_another_prompt_fail_with_the_reason(done: Done) -> None:
    other = {"n": N, "max_tokens": 8, "prompt": "Say: {question}"}
    outcome = do(plan_hidden_states, open_run(done.root, sampling=other), CELL)
    assert outcome is not None and outcome.rows_by_status == {"failed": len(done.rows)}
    row = outcome.published.read(["error", "states"]).to_pylist()[0]
    assert "the answers were sampled from" in row["error"] and row["states"] is None


def test_under_ray_the_stage_publishes_the_same_in_files_that_can_be_streamed(done: Done) -> None:
    with ray_session():
        outcome = do(plan_hidden_states, open_run(done.root, Run, hidden={"layers": ["all"]}), CELL)
    assert outcome is not None and not outcome.reused
    assert outcome.rows_by_status == {"ok": len(done.rows)}
    ids = list(done.rows)
    for layer in ("middle", "last"):
        own, here = answer_states(outcome.published, ids, layer), answer_states(done.published, ids, layer)
        np.testing.assert_array_equal(np.isnan(own), np.isnan(here))
        assert close(np.nan_to_num(own).ravel(), np.nan_to_num(here).ravel())
    for file in outcome.published.files:
        metadata = pq.read_metadata(file)
        assert metadata.num_row_groups == 1 and metadata.num_rows <= 64


def test_features_hold_the_states_that_a_method_needs(done: Done) -> None:
    ids = sorted(done.rows)
    frame = pl.DataFrame(
        {
            "question_id": ids,
            "question": ["Which?"] * len(ids),
            "meta": [None] * len(ids),
            "answers": [done.rows[i]["answers"] for i in ids],
            "token_logprobs": [done.rows[i]["token_logprobs"] for i in ids],
            "eigenvalues": [None] * len(ids),
        }
    )
    none: Any = None
    inputs = CellInputs(none, none, none, none, "alias", "e", N, hidden=done.published)
    known = features(frame, inputs, METHODS.get("umpire").needs)
    assert known.middle_hidden is None and known.last_hidden is not None
    assert known.last_hidden.shape == (len(ids), N, 32)
    confidence = METHODS.get("umpire").confidence(known)
    empty = [not all(done.rows[i]["answers"]) for i in ids]
    np.testing.assert_array_equal(np.isnan(confidence), empty)
    assert not all(empty)


@pytest.mark.parametrize(
    ("methods", "needed"),
    [(["sgpu", "predictive_entropy"], False), (["cos_eigenscore"], True), (["saplma"], True)],
)
def test_the_stage_runs_only_where_a_method_reads_states(
    tmp_path: Path, methods: list[str], needed: bool
) -> None:
    run = open_run(tmp_path, methods=methods)
    assert needs_hidden_states(run.study) is needed
    if not needed:
        assert do(plan_hidden_states, run, CELL) is None and published_hidden_states(run, CELL) is None


def test_answers_from_a_file_or_a_server_have_no_states_and_say_why(tmp_path: Path) -> None:
    given = [{"kind": "responses", "path": str(tmp_path / "a.jsonl"), "model": "m", "name": "own"}]
    run = open_run(tmp_path, models=[], datasets=given)
    assert "sampled elsewhere" in str(why_no_hidden_states(run, Cell("m", "own")))
    served = [{"name": "tiny", "card": "llama-3.1-8b-instruct", "engine": "openai"}]
    run = open_run(tmp_path, models=served)
    assert "from a server" in str(why_no_hidden_states(run, CELL))
    assert do(plan_hidden_states, run, CELL) is None and published_hidden_states(run, CELL) is None


def test_layers_of_all_answers_and_layers_for_probes_are_kept_apart(tmp_path: Path) -> None:
    hidden = {"layers": [3, -1], "probe_layers": [0.5, 1.0], "positions": ["tbg"], "sep_position": "tbg"}
    study = open_run(tmp_path, hidden=hidden, methods=["cov_eigenscore", "sep"]).study
    assert wanted_states(study, ModelShape(8, 16), N) == Wanted([3, 4, 8], N, 16, [4, 8], ["tbg"])
    study = open_run(tmp_path, methods=["umpire"]).study
    assert wanted_states(study, ModelShape(8, 16), N) == Wanted([4, 8], N, 16)


def test_a_block_of_a_large_model_stays_below_eight_mebibytes() -> None:
    assert block_rows(Wanted([16, 32], 20, 4096)) == 25
    assert block_rows(Wanted([1], 2, 32)) == 64
    assert block_rows(Wanted(list(range(81)), 20, 8192)) == 1
