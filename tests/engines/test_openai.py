"""The protocol, against a server played by a function; `test_served.py` runs a real one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from sgpu.engines.base import NO_ANSWER, EngineConfig, Sampling
from sgpu.engines.openai import OpenAIEngine
from sgpu.errors import UsageError
from tests.contracts.engine_contract import prompt

Handler = Callable[[dict[str, Any]], httpx2.Response]
SECRET = "sk-do-not-show-me"


@contextmanager
def engine_on(handler: Handler, **settings: Any) -> Iterator[OpenAIEngine]:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return handler(json.loads(request.content) | {"authorization": request.headers["authorization"]})

    config = EngineConfig(model="served", base_url="https://test/v1", **settings)
    engine = OpenAIEngine(config, http_client=httpx2.Client(transport=httpx2.MockTransport(answer)))
    try:
        yield engine
    finally:
        engine.close()


def choice(index: int, content: str | None = " Paris\n", **fields: Any) -> dict[str, Any]:
    token = {"token": "Paris", "logprob": -0.5, "bytes": None, "top_logprobs": []}
    return {
        "index": index,
        "message": {"role": "assistant", "content": content, "refusal": fields.pop("refusal", None)},
        "finish_reason": "stop",
        "logprobs": {"content": [token]},
        "token_ids": [17],
    } | fields


def reply(*choices: dict[str, Any]) -> httpx2.Response:
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
    return httpx2.Response(
        200,
        json={
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": "served",
            "choices": list(choices),
            "usage": usage,
        },
    )


def test_one_request_asks_for_all_answers_with_the_sampling_and_the_seed() -> None:
    seen: list[dict[str, Any]] = []

    def handler(body: dict[str, Any]) -> httpx2.Response:
        seen.append(body)
        return reply(choice(1, "b"), choice(0, "a"))

    with engine_on(handler) as engine:
        (generation,) = engine.sample([prompt("One?", 4096)], Sampling(n=2, stop=("\n",)))
    (body,) = seen
    assert body["messages"] == [{"role": "user", "content": "One?"}]
    wanted = {"n": 2, "seed": 4096, "top_k": 50, "top_p": 0.9, "temperature": 1.0, "repetition_penalty": 1.0}
    assert {key: body[key] for key in wanted} == wanted
    assert (body["max_tokens"], body["stop"], body["logprobs"]) == (32, ["\n"], True)
    assert [a.text for a in generation.answers] == ["a", "b"]
    assert generation.n_prompt_tokens == 9


def test_fields_that_hosted_models_refuse_can_be_left_out() -> None:
    def handler(body: dict[str, Any]) -> httpx2.Response:
        assert not {"top_k", "repetition_penalty", "return_token_ids"} & set(body)
        return reply(choice(0))

    with engine_on(handler, options={"vllm_fields": False}) as engine:
        assert len(engine.sample([prompt("One?")], Sampling(n=1))) == 1


def test_tokens_and_their_log_probabilities_are_kept() -> None:
    with engine_on(lambda _: reply(choice(0))) as engine:
        answer = engine.sample([prompt("One?")], Sampling(n=1))[0].answers[0]
    assert (answer.text, answer.raw_text) == ("Paris", " Paris\n")
    assert (answer.token_ids, answer.token_logprobs) == ((17,), (-0.5,))


def test_busy_server_is_asked_again() -> None:
    answers = [httpx2.Response(429, headers={"retry-after-ms": "1"}), httpx2.Response(503), reply(choice(0))]

    with engine_on(lambda _: answers.pop(0)) as engine:
        assert engine.sample([prompt("One?")], Sampling(n=1))[0].answers[0].text == "Paris"
    assert answers == []


def test_retries_take_their_turn_in_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [httpx2.Response(429, headers={"retry-after-ms": "1"}), reply(choice(0))]
    turns: list[str] = []

    class Limit:
        def wait(self) -> None:
            turns.append("turn")

    monkeypatch.setattr("sgpu.engines.openai.RateLimit", lambda _per_minute: Limit())
    with engine_on(lambda _: answers.pop(0), requests_per_minute=60) as engine:
        engine.sample([prompt("One?")], Sampling(n=1))
    assert len(turns) == 2


@pytest.mark.parametrize(
    ("given", "reason", "raw_text"),
    [
        (choice(0, None, refusal="I cannot say."), "refusal", "I cannot say."),
        (choice(0, None, finish_reason="content_filter"), "content_filter", ""),
        (choice(0, None), "no_content", ""),
    ],
)
def test_missing_answer_keeps_its_reason(given: dict[str, Any], reason: str, raw_text: str) -> None:
    with engine_on(lambda _: reply(given)) as engine:
        answer = engine.sample([prompt("One?")], Sampling(n=1))[0].answers[0]
    assert (answer.text, answer.raw_text, answer.finish_reason) == ("", raw_text, reason)
    assert reason in NO_ANSWER


def test_empty_text_is_an_answer() -> None:
    with engine_on(lambda _: reply(choice(0, ""))) as engine:
        answer = engine.sample([prompt("One?")], Sampling(n=1))[0].answers[0]
    assert (answer.text, answer.finish_reason) == ("", "stop")


def test_server_that_ignores_n_is_refused() -> None:
    with engine_on(lambda _: reply(choice(0))) as engine, pytest.raises(ValueError, match="gave 1 answers"):
        engine.sample([prompt("One?")], Sampling(n=20))


def test_refused_prompt_is_named() -> None:
    refusal = httpx2.Response(400, json={"error": {"message": "maximum context length is 1024"}})
    with engine_on(lambda _: refusal) as engine, pytest.raises(ValueError, match=r"One\?.*context length"):
        engine.sample([prompt("One?")], Sampling(n=1))


def test_candidates_outside_the_listed_tokens_are_minus_infinity() -> None:
    listed = [
        {"token": "yes", "logprob": -0.1, "bytes": None},
        {"token": " no", "logprob": -2.5, "bytes": None},
    ]
    first = {"token": "yes", "logprob": -0.1, "bytes": None, "top_logprobs": listed}
    with engine_on(lambda _: reply(choice(0, "yes", logprobs={"content": [first]}))) as engine:
        rows = engine.next_token_logprobs([prompt("One?")], ["yes", "no", " no"])
    assert rows == [[-0.1, -math.inf, -2.5]]


def test_key_is_read_from_the_named_variable_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_KEY", SECRET)
    seen: list[str] = []

    def handler(body: dict[str, Any]) -> httpx2.Response:
        seen.append(body["authorization"])
        return httpx2.Response(401, json={"error": {"message": f"wrong key {SECRET}"}})

    with engine_on(handler, api_key_env="SERVER_KEY") as engine:
        with pytest.raises(UsageError, match=r"\$SERVER_KEY") as caught:
            engine.sample([prompt("One?")], Sampling(n=1))
        assert SECRET not in f"{caught.value} {engine.config} {vars(engine)}"
    assert seen == [f"Bearer {SECRET}"]


def test_unset_key_variable_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERVER_KEY", raising=False)
    with pytest.raises(UsageError, match="SERVER_KEY"):
        OpenAIEngine(EngineConfig(model="m", base_url="https://test/v1", api_key_env="SERVER_KEY"))


def test_a_key_does_not_travel_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_KEY", SECRET)
    for address in ("http://test/v1", "http://192.168.0.7:8000/v1"):
        with pytest.raises(UsageError, match=r"\$SERVER_KEY would travel unencrypted.*https://"):
            OpenAIEngine(EngineConfig(model="m", base_url=address, api_key_env="SERVER_KEY"))
    for address in ("http://127.0.0.1:8000/v1", "http://[::1]/v1", "http://localhost/v1"):
        OpenAIEngine(EngineConfig(model="m", base_url=address, api_key_env="SERVER_KEY")).close()


def test_a_redirect_is_named_and_not_followed() -> None:
    seen: list[str] = []

    def redirect(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.url.host)
        return httpx2.Response(307, headers={"location": "https://user:pw@elsewhere/v1"})

    config = EngineConfig(model="served", base_url="https://test/v1")
    client = httpx2.Client(transport=httpx2.MockTransport(redirect), follow_redirects=True)
    engine = OpenAIEngine(config, http_client=client)
    with pytest.raises(UsageError, match="on to https://elsewhere/v1"):
        engine.sample([prompt("One?")], Sampling(n=1))
    engine.close()
    assert seen == ["test"]


def test_a_reply_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgpu.engines.openai.MAX_BYTES", 10_000)
    seen: list[str] = []

    def endless(body: dict[str, Any]) -> httpx2.Response:
        seen.append(body["model"])
        return httpx2.Response(200, stream=httpx2.ByteStream(b"x" * 20_000))

    with engine_on(endless) as engine, pytest.raises(ValueError, match="larger than 10000 bytes"):
        engine.sample([prompt("One?")], Sampling(n=1))
    assert len(seen) == 1


def test_a_packed_reply_is_not_unpacked() -> None:
    packed = httpx2.Response(200, headers={"content-encoding": "gzip"}, stream=httpx2.ByteStream(b"bomb"))
    with engine_on(lambda _: packed) as engine, pytest.raises(ValueError, match="packed"):
        engine.sample([prompt("One?")], Sampling(n=1))


def test_errors_do_not_show_the_password_of_the_address() -> None:
    config = EngineConfig(model="served", base_url="https://user:hunter2@test/v1?key=hunter3")
    client = httpx2.Client(transport=httpx2.MockTransport(lambda _: reply(choice(0))))
    engine = OpenAIEngine(config, http_client=client)
    with pytest.raises(ValueError, match="https://test/v1") as caught:
        engine.sample([prompt("One?")], Sampling(n=20))
    engine.close()
    assert "hunter" not in str(caught.value)
