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
from sgpu.errors import UnavailableError, UsageError
from tests.contracts.engine_contract import prompt

Handler = Callable[[dict[str, Any]], httpx2.Response]
SECRET = "sk-do-not-show-me"


@contextmanager
def engine_on(
    handler: Handler, seen: list[dict[str, Any]] | None = None, **settings: Any
) -> Iterator[OpenAIEngine]:
    """Open an engine whose requests ``handler`` answers; their bodies are noted in ``seen``."""
    bodies = [] if seen is None else seen

    def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content) | {"authorization": request.headers["authorization"]})
        return handler(bodies[-1])

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
    with engine_on(lambda _: reply(choice(1, "b"), choice(0, "a")), seen) as engine:
        (generation,) = engine.sample([prompt("One?", 4096)], Sampling(n=2, stop=("\n",)))
    (body,) = seen
    assert body["messages"] == [{"role": "user", "content": "One?"}]
    wanted = {"n": 2, "seed": 4096, "top_k": 50, "top_p": 0.9, "temperature": 1.0, "repetition_penalty": 1.0}
    assert {key: body[key] for key in wanted} == wanted
    assert (body["max_tokens"], body["stop"], body["logprobs"]) == (32, ["\n"], True)
    assert [a.text for a in generation.answers] == ["a", "b"]
    assert generation.n_prompt_tokens == 9


def test_fields_that_hosted_models_refuse_can_be_left_out() -> None:
    seen: list[dict[str, Any]] = []
    with engine_on(lambda _: reply(choice(0)), seen, options={"vllm_fields": False}) as engine:
        assert len(engine.sample([prompt("One?")], Sampling(n=1))) == 1
    assert not {"top_k", "repetition_penalty", "return_token_ids"} & set(seen[0])


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

    monkeypatch.setattr("sgpu.engines.chat_calls.RateLimit", lambda _per_minute: Limit())
    with engine_on(lambda _: answers.pop(0), requests_per_minute=60) as engine:
        engine.sample([prompt("One?")], Sampling(n=1))
    assert len(turns) == 2


def test_each_try_is_paid_for_at_its_most_before_it_is_sent() -> None:
    events: list[Any] = []

    class TokenAccount:
        def reserve(self, most: tuple[int, int]) -> int:
            events.append(most)
            return 1

        def settle(self, ticket: int, used: tuple[int, int]) -> None:
            events.append(used)

    answers = [httpx2.Response(500, headers={"retry-after-ms": "1"}), reply(choice(0))]

    def handler(_: dict[str, Any]) -> httpx2.Response:
        events.append("sent")
        return answers.pop(0)

    client = httpx2.Client(transport=httpx2.MockTransport(lambda request: handler({})))
    engine = OpenAIEngine(
        EngineConfig(model="m", base_url="https://test/v1"), http_client=client, account=TokenAccount()
    )
    engine.sample([prompt("One?")], Sampling(n=1))
    engine.close()
    most = (len("One?") + 16, 32)
    assert events == [most, "sent", most, most, "sent", (9, 1)]


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


def test_a_server_that_ignores_n_is_asked_once_for_each_answer() -> None:
    seen: list[dict[str, Any]] = []
    with engine_on(lambda body: reply(choice(0, f"answer {body['seed']}")), seen) as engine:
        first, second = (engine.sample([prompt(q, 4096)], Sampling(n=3))[0] for q in ("One?", "Two?"))
    assert [a.text for a in first.answers] == ["answer 4096", "answer 4097", "answer 4098"]
    assert len(second.answers) == 3
    # The one answer to the request for three is the first of the first question; afterwards `n` is not sent.
    assert [body.get("n") for body in seen] == [3, None, None, None, None, None]


def test_a_server_that_refuses_n_is_asked_once_for_each_answer() -> None:
    seen: list[dict[str, Any]] = []
    refusal = httpx2.Response(400, json={"error": {"message": "n > 1"}})
    with engine_on(lambda body: refusal if "n" in body else reply(choice(0)), seen) as engine:
        for question in ("One?", "Two?"):
            assert len(engine.sample([prompt(question)], Sampling(n=4))[0].answers) == 4
    assert [body.get("n") for body in seen] == [4, *[None] * 8]


def test_a_prompt_that_is_refused_by_a_server_that_takes_n_is_not_asked_again() -> None:
    seen: list[str] = []

    def handler(body: dict[str, Any]) -> httpx2.Response:
        seen.append(body["messages"][0]["content"])
        return httpx2.Response(400, json={}) if seen[-1] == "Long?" else reply(choice(0), choice(1))

    with engine_on(handler) as engine:
        engine.sample([prompt("One?")], Sampling(n=2))
        with pytest.raises(ValueError, match=r"refused the prompt 'Long\?'"):
            engine.sample([prompt("Long?")], Sampling(n=2))
    assert seen == ["One?", "Long?"]


def test_of_a_batch_that_failed_in_part_nothing_is_asked_twice() -> None:
    seen: list[str] = []

    def handler(body: dict[str, Any]) -> httpx2.Response:
        letter = body["messages"][0]["content"]
        seen.append(letter)
        return httpx2.Response(402, json={}) if letter == "b" else reply(choice(0, letter))

    prompts = [prompt(letter) for letter in "abc"]
    with engine_on(handler) as engine:
        with pytest.raises(UnavailableError):
            engine.sample(prompts, Sampling(n=1))
        assert engine.sample(prompts[:1], Sampling(n=1))[0].answers[0].text == "a"
        with pytest.raises(UnavailableError, match="status 402"):
            engine.sample(prompts[1:2], Sampling(n=1))
        assert engine.sample(prompts[2:], Sampling(n=1))[0].answers[0].text == "c"
        assert sorted(seen) == ["a", "b", "c"]
        with pytest.raises(UnavailableError):  # who asks later asks the server
            engine.sample(prompts[1:2], Sampling(n=1))
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (404, UsageError, "does not know the model 'served'"),
        (403, UsageError, "did not accept"),
        (402, UnavailableError, "status 402"),
        (503, UnavailableError, "tried 2 times"),
        (400, ValueError, "refused the prompt"),
        (422, ValueError, "refused the prompt"),
    ],
)
def test_what_failed_says_whose_fault_it_is(status: int, error: type[Exception], words: str) -> None:
    def handler(_: dict[str, Any]) -> httpx2.Response:
        return httpx2.Response(status, json={"error": {"message": "no"}}, headers={"retry-after-ms": "1"})

    with (
        engine_on(handler, options={"max_retries": 1}) as engine,
        pytest.raises(error, match=words),
    ):
        engine.sample([prompt("One?")], Sampling(n=1))


def test_a_quota_that_is_used_up_is_not_asked_again() -> None:
    seen: list[dict[str, Any]] = []
    spent = httpx2.Response(429, json={"error": {"message": "pay", "code": "insufficient_quota"}})
    with engine_on(lambda _: spent, seen) as engine, pytest.raises(UnavailableError, match="429"):
        engine.sample([prompt("One?")], Sampling(n=1))
    assert len(seen) == 1


def test_a_server_that_refuses_every_prompt_refuses_something_else() -> None:
    with engine_on(lambda _: httpx2.Response(400, json={"error": {"message": "no such field"}})) as engine:
        kinds = []
        for number in range(25):
            with pytest.raises((ValueError, UnavailableError), match="no such field") as caught:
                engine.sample([prompt(f"{number}?")], Sampling(n=2))
            kinds.append(caught.type)
    assert kinds[:19] == [ValueError] * 19 and set(kinds[19:]) == {UnavailableError}


def test_fields_are_sent_one_by_one_as_the_options_say() -> None:
    seen: list[dict[str, Any]] = []
    options = {"vllm_fields": False, "top_k": True, "logprobs": False, "seed": False, "n": False}
    options["max_completion_tokens"] = True
    with engine_on(lambda _: reply(choice(0, logprobs=None)), seen, options=options) as engine:
        engine.sample([prompt("One?")], Sampling(n=2))
    sent = {"model", "messages", "temperature", "top_p", "max_completion_tokens", "top_k", "authorization"}
    assert [set(body) - {"stop"} for body in seen] == [sent, sent]


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
    seen: list[dict[str, Any]] = []
    refusal = httpx2.Response(401, json={"error": {"message": f"wrong key {SECRET}"}})
    with engine_on(lambda _: refusal, seen, api_key_env="SERVER_KEY") as engine:
        with pytest.raises(UsageError, match=r"\$SERVER_KEY") as caught:
            engine.sample([prompt("One?")], Sampling(n=1))
        assert SECRET not in f"{caught.value} {engine.config} {vars(engine)}"
    assert [body["authorization"] for body in seen] == [f"Bearer {SECRET}"]


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
    monkeypatch.setattr("sgpu.engines.chat_calls.MAX_BYTES", 10_000)
    seen: list[dict[str, Any]] = []
    endless = httpx2.Response(200, stream=httpx2.ByteStream(b"x" * 20_000))
    with (
        engine_on(lambda _: endless, seen) as engine,
        pytest.raises(ValueError, match="larger than 10000 bytes"),
    ):
        engine.sample([prompt("One?")], Sampling(n=1))
    assert len(seen) == 1


def test_a_packed_reply_is_not_unpacked() -> None:
    packed = httpx2.Response(200, headers={"content-encoding": "gzip"}, stream=httpx2.ByteStream(b"bomb"))
    with engine_on(lambda _: packed) as engine, pytest.raises(ValueError, match="packed"):
        engine.sample([prompt("One?")], Sampling(n=1))


def test_errors_do_not_show_the_password_of_the_address() -> None:
    config = EngineConfig(model="served", base_url="https://user:hunter2@test/v1?key=hunter3")
    refusal = httpx2.Response(400, json={"error": {"message": "no"}})
    client = httpx2.Client(transport=httpx2.MockTransport(lambda _: refusal))
    engine = OpenAIEngine(config, http_client=client)
    with pytest.raises(ValueError, match="https://test/v1") as caught:
        engine.sample([prompt("One?")], Sampling(n=20))
    engine.close()
    assert "hunter" not in str(caught.value)
