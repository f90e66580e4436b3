"""Whole studies against servers: vLLM's own, and one that refuses what hosted ones refuse."""

from __future__ import annotations

import json
import time
from pathlib import Path

import polars as pl
import pytest
from hosted_server import KEY, MODEL, HostedServer

from pipelines.benchmark import benchmark_study
from sgpu.errors import GivenUpError, UsageError
from tests.engines.served_model import SERVED_NAME, free_port, served_model

pytestmark = pytest.mark.timeout(900)

QUESTIONS, N = 12, 4
STUDY = """
datasets: [{{kind: jsonl, path: questions.jsonl, name: mine, n_train: 6, n_test: 6}}]
models:
  - {{name: served, engine: openai, model: "{model}", base_url: "http://127.0.0.1:{port}/v1", {more}}}
methods: [largest_eigenvalue, self_consistency, predictive_entropy, cos_eigenscore]
sampling: {{n: 4, max_tokens: 8}}
evaluation: {{bootstrap: 100}}
tracking: {{mlflow: none}}
"""
HOSTED = (
    "api_key_env: HOSTED_KEY, options: {max_retries: 2, concurrency: 2}, price: {input: 1000, output: 2000}"
)


def study_file(folder: Path, port: int, model: str = MODEL, more: str = HOSTED) -> Path:
    rows = [
        {"question_id": f"q{i}", "question": f"Which city is number {i}?", "references": ["Paris"]}
        for i in range(QUESTIONS)
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "served.yaml"
    path.write_text(STUDY.format(port=port, model=model, more=more))
    return path


def run(folder: Path, study: Path, *overrides: str) -> Path:
    return Path(str(benchmark_study(study, folder / "out", overrides, None))).parent.parent


def responses(out: Path) -> pl.DataFrame:
    return pl.read_delta(str(out / "tables" / "responses"))


def methods_with_values(out: Path) -> set[str]:
    rows = pl.read_delta(str(out / "tables" / "predictions"))
    return set(rows.filter(pl.col("confidence").is_not_null() & pl.col("confidence").is_not_nan())["method"])


def test_a_study_asks_vllms_server_by_the_name_that_it_serves(tmp_path: Path) -> None:
    with served_model(tmp_path) as url:
        port = int(url.split(":")[2].split("/")[0])
        study = study_file(tmp_path, port, SERVED_NAME, "options: {vllm_fields: true}")
        out = run(tmp_path, study)
    rows = responses(out)
    assert rows["status"].to_list() == ["ok"] * QUESTIONS
    assert rows["answers"].list.len().to_list() == [N] * QUESTIONS
    assert rows["token_ids"].explode().list.len().min() > 0
    assert methods_with_values(out) == {"largest_eigenvalue", "self_consistency", "predictive_entropy"}
    page = (out / "report" / "index.html").read_text()
    assert "hidden states need the model itself" in page
    assert "served/mine: answers were sampled with at most 8 tokens and no stop text" in page


def test_a_key_that_is_wrong_and_then_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with HostedServer() as server:
        study = study_file(tmp_path, server.port)
        monkeypatch.delenv("HOSTED_KEY", raising=False)
        with pytest.raises(UsageError, match=r"environment variable HOSTED_KEY.* is not set"):
            run(tmp_path, study)
        monkeypatch.setenv("HOSTED_KEY", "sk-wrong")
        with pytest.raises(UsageError, match=r"did not accept the key in \$HOSTED_KEY"):
            run(tmp_path, study)
        monkeypatch.setenv("HOSTED_KEY", KEY)
        out = run(tmp_path, study)
        assert set(server.asked.values()) == {N} and len(server.asked) == QUESTIONS
        run(tmp_path, study)
        assert sum(server.asked.values()) == N * QUESTIONS
    assert methods_with_values(out) == {"largest_eigenvalue", "self_consistency"}
    metrics = pl.read_parquet(out / "metrics.parquet").filter(pl.col("method") == "predictive_entropy")
    assert metrics["value"].drop_nulls().is_empty()
    assert "no token_logprobs" in (out / "report" / "index.html").read_text()
    run(tmp_path, study)  # the server is gone, and not needed


def test_a_server_that_is_down_and_then_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTED_KEY", KEY)
    port = free_port()
    study = study_file(tmp_path, port)
    started = time.monotonic()
    with pytest.raises(UsageError, match=r"no server answers at http://127.0.0.1.*base_url"):
        run(tmp_path, study)
    assert time.monotonic() - started < 60
    with HostedServer(port, calls_left=5 * N) as first, pytest.raises(GivenUpError, match="no connection"):
        run(tmp_path, study)
    with HostedServer(port) as second:
        out = run(tmp_path, study)
    whole = [question for question, times in first.asked.items() if times == N]
    assert responses(out)["status"].to_list() == ["ok"] * QUESTIONS
    assert len(whole) > 0 and not set(whole) & set(second.asked)
    assert set(second.asked.values()) == {N}


@pytest.mark.parametrize("lists_models", [True, False])
def test_a_model_that_the_server_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lists_models: bool
) -> None:
    monkeypatch.setenv("HOSTED_KEY", KEY)
    with HostedServer(lists_models=lists_models) as server:
        study = study_file(tmp_path, server.port, "gpt-nonesuch")
        with pytest.raises(UsageError, match="does not know the model 'gpt-nonesuch'"):
            run(tmp_path, study)


def test_a_budget_is_kept_over_repeated_commands_and_the_bill_is_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTED_KEY", KEY)

    def bill() -> dict[str, float]:
        return json.loads((tmp_path / "out" / "bill.json").read_text())["served"]

    with HostedServer() as server:
        study = study_file(tmp_path, server.port, more=HOSTED.replace("2, con", "2, n: false, con"))
        for _ in range(2):
            with pytest.raises(GivenUpError, match=r"\d+ of 400 tokens are left.*raise `budget`.* kept"):
                run(tmp_path, study, "budget={tokens: 400}")
            assert bill()["input_tokens"] + bill()["output_tokens"] == server.tokens <= 400
        finished = {question for question, times in server.asked.items() if times == N}
        assert finished
        out = run(tmp_path, study, "budget={tokens: 4000, usd: 3}")
        assert {server.asked[question] for question in finished} == {N}
    assert responses(out)["status"].to_list() == ["ok"] * QUESTIONS
    tokens = bill()["input_tokens"], bill()["output_tokens"]
    assert sum(tokens) == server.tokens
    assert bill()["usd"] == pytest.approx(tokens[0] * 1e-3 + tokens[1] * 2e-3)
    assert json.loads((out / "run.json").read_text())["bill"] == {"served": bill()}
