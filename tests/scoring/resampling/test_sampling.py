"""Asking again, against a real server on the loopback address."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sgpu.engines.costs import read_costs
from sgpu.errors import UsageError
from sgpu.hashing import SAMPLING_SEED_BITS, derived_seed
from sgpu.scoring.resampling import sampling
from sgpu.scoring.resampling.sampling import (
    GIVE_UP_AFTER,
    Cause,
    NoNewAnswers,
    Outcome,
    Resampler,
    UnansweredRequest,
)
from sgpu.scoring.settings import ResampleSettings
from sgpu.storage.location import Location
from tests.scoring.chat_server import Body, ChatServer, Reply, chat_server, completion, n_answers

QUESTION = "Which illness has the patient Ann Lee?"
SECRET = "sk-do-not-show-me"
AT_ONCE = {"retry-after-ms": "1"}
READ = len(QUESTION) + 16  # the most tokens that reading the question costs: bytes and template
MOST = READ + 3 * 256  # and with three answers


def asked(number: int = 0, question: str = QUESTION, model: str = "m") -> UnansweredRequest:
    return UnansweredRequest(f"r-{number}", model, json.dumps(question))


def many(count: int) -> list[UnansweredRequest]:
    return [asked(number) for number in range(count)]


@contextmanager
def resampler_on(
    server: ChatServer, journal: Path, *, run: str = "run", **changes: Any
) -> Iterator[Resampler]:
    settings = {"share": 1.0, "n": 3, "max_retries": 2, "timeout_s": 5.0, **changes}
    made = Resampler(ResampleSettings(base_url=server.url, **settings), Location.of(journal), run=run)
    try:
        yield made
    finally:
        made.close()


def outcomes(
    answer: Callable[[Body, int], Reply], journal: Path, requests: list[UnansweredRequest], /, **changes: Any
) -> tuple[list[Outcome], list[Body]]:
    """What became of the requests, and what the server saw."""
    with chat_server(answer) as server, resampler_on(server, journal, **changes) as resampler:
        return resampler.answers(requests), server.seen


def seed_of(*parts: object) -> int:
    return derived_seed(*parts, bits=SAMPLING_SEED_BITS)


def texts(outcome: Outcome) -> list[str]:
    assert isinstance(outcome, tuple), outcome
    return list(outcome)


def failed(outcome: Outcome) -> NoNewAnswers:
    assert isinstance(outcome, NoNewAnswers), outcome
    return outcome


def spent(journal: Path, run: str = "run") -> int:
    """The tokens on the account of a run."""
    line = read_costs(Location.of(journal / run))["resample"]
    return int(line["input_tokens"] + line["output_tokens"])


def test_a_question_is_asked_with_its_model_and_the_settings(tmp_path: Path) -> None:
    (outcome,), (body,) = outcomes(
        n_answers, tmp_path, [asked(7)], n=4, temperature=0.7, top_p=0.8, max_tokens=30, seed=5
    )
    seed = seed_of(5, "r-7")
    assert texts(outcome) == [f"answer {place} of {seed}" for place in range(4)]
    wanted = {"model": "m", "n": 4, "temperature": 0.7, "top_p": 0.8, "max_tokens": 30, "seed": seed}
    assert {name: body[name] for name in wanted} == wanted
    assert body["messages"] == [{"role": "user", "content": QUESTION}]
    assert body["path"] == "/v1/chat/completions"


def test_a_server_may_know_the_model_by_another_name(tmp_path: Path) -> None:
    _, (body,) = outcomes(n_answers, tmp_path, [asked(model="gpt-x-2026-08")], model="served")
    assert body["model"] == "served"


def test_outcomes_come_in_the_order_of_the_requests(tmp_path: Path) -> None:
    requests = many(40)
    found, _ = outcomes(n_answers, tmp_path, requests)
    assert [texts(one)[0] for one in found] == [f"answer 0 of {seed_of(0, r.request_id)}" for r in requests]


def test_as_many_are_chosen_as_the_share_says(tmp_path: Path) -> None:
    with chat_server(n_answers) as server, resampler_on(server, tmp_path, share=0.25) as resampler:
        chosen = sum(resampler.is_chosen(f"r-{number}") for number in range(400))
    assert 70 < chosen < 130  # four standard deviations about 100


def test_the_budget_goes_to_the_same_requests_in_every_run_and_order(tmp_path: Path) -> None:
    requests, asked_for = many(40), []
    for run, order in (("a", requests), ("b", requests[::-1])):
        found, _ = outcomes(n_answers, tmp_path / run, order, requests=10)
        pairs = zip(order, found, strict=True)
        asked_for.append({request.request_id for request, one in pairs if isinstance(one, tuple)})
    assert asked_for[0] == asked_for[1] and len(asked_for[0]) == 10


def test_two_models_with_one_request_id_are_asked_both(tmp_path: Path) -> None:
    requests = [asked(model=model) for model in ("m", "other")]
    found, seen = outcomes(n_answers, tmp_path, requests)
    assert {body["model"] for body in seen} == {"m", "other"} and len({texts(one)[0] for one in found}) == 1


def test_a_larger_share_holds_the_smaller_one_and_another_seed_another_one(tmp_path: Path) -> None:
    with chat_server(n_answers) as server:

        def chosen(**changes: Any) -> set[int]:
            with resampler_on(server, tmp_path, **changes) as resampler:
                return {number for number in range(400) if resampler.is_chosen(f"r-{number}")}

        assert chosen(share=0.1) < chosen(share=0.3)
        assert chosen(share=0.3) != chosen(share=0.3, seed=1)


@pytest.mark.parametrize("status", [429, 500, 503, 408])
def test_a_busy_server_is_asked_again_and_paid_for_its_tries(status: int, tmp_path: Path) -> None:
    def answer(body: Body, earlier: int) -> Reply:
        return Reply({}, status, AT_ONCE) if earlier < 2 else n_answers(body)

    (outcome,), seen = outcomes(answer, tmp_path, [asked()])
    assert len(texts(outcome)) == 3
    assert status != 500 or spent(tmp_path) == 2 * MOST + 10 + 2 * 3
    assert len(seen) == 3
    # A server that knows the header does not work on a repeated request twice.
    assert len({body["headers"]["idempotency-key"] for body in seen}) == 1


@pytest.mark.parametrize(
    ("body", "status", "cause", "detail", "tries", "cost"),
    [
        ({}, 429, Cause.UNAVAILABLE, "status 429 after 3 tries", 3, 0),
        ({}, 500, Cause.UNAVAILABLE, "status 500 after 3 tries", 3, 3 * MOST),
        ({"error": {"code": "insufficient_quota"}}, 429, Cause.UNAVAILABLE, "status 429 after 1 tries", 1, 0),
        ({}, 404, Cause.REFUSED, "status 404", 1, 0),
        *(({}, status, Cause.REFUSED, f"status {status}", 1, READ) for status in (400, 413, 422)),
    ],
)
def test_a_server_that_stays_busy_or_refuses_leaves_the_request_without_answers(
    body: Body, status: int, cause: Cause, detail: str, tries: int, cost: int, tmp_path: Path
) -> None:
    (outcome,), seen = outcomes(lambda *_: Reply(body, status, AT_ONCE), tmp_path, [asked()])
    assert (failed(outcome).cause, failed(outcome).detail) == (cause, detail)
    assert len(seen) == tries and spent(tmp_path) == cost


def test_a_server_that_answers_too_late_is_given_up(tmp_path: Path) -> None:
    release = threading.Event()

    def answer(body: Body, _: int) -> Reply:
        release.wait(10)
        return n_answers(body)

    started = time.monotonic()
    (outcome,), _ = outcomes(answer, tmp_path, [asked()], timeout_s=0.3, max_retries=0)
    release.set()
    assert failed(outcome).cause is Cause.UNAVAILABLE
    assert "no reply within 0.3 s" in failed(outcome).detail
    assert time.monotonic() - started < 5


def test_a_reply_that_comes_drop_by_drop_is_given_up(tmp_path: Path) -> None:
    def drops(body: Body, _: int) -> Reply:
        payload = n_answers(body).parts[0]
        assert isinstance(payload, bytes)
        # Each drop comes well within the timeout of a single read.
        parts = [part for byte in payload for part in (bytes([byte]), lambda: time.sleep(0.05))]
        return Reply(parts)

    started = time.monotonic()
    (outcome,), _ = outcomes(drops, tmp_path, [asked()], timeout_s=0.5, max_retries=0)
    assert failed(outcome).cause is Cause.UNAVAILABLE
    assert time.monotonic() - started < 5


def test_a_reply_without_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MAX_BYTES", 10_000)
    huge = completion(["x" * 6_000, "y" * 6_000, "z"])
    (outcome,), seen = outcomes(lambda *_: Reply(huge), tmp_path, [asked()])
    assert str(failed(outcome)) == "no_usable_answers: the reply is larger than 10000 bytes"
    assert len(seen) == 1 and spent(tmp_path) == MOST


def test_a_packed_reply_is_not_unpacked(tmp_path: Path) -> None:
    (outcome,), _ = outcomes(
        lambda *_: Reply(b"\x1f\x8b bomb", headers={"Content-Encoding": "gzip"}), tmp_path, [asked()]
    )
    assert failed(outcome).cause is Cause.ANSWERS
    assert "packed" in failed(outcome).detail


def test_a_connection_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    with chat_server(n_answers) as gone:
        pass
    with resampler_on(gone, tmp_path, max_retries=0) as resampler:
        (outcome,) = resampler.answers([asked()])
    assert str(failed(outcome)) == "endpoint_unavailable: no connection after 1 tries"


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    with chat_server(n_answers) as elsewhere:
        target = {"Location": f"{elsewhere.url}/chat/completions"}
        (outcome,), _ = outcomes(lambda *_: Reply({}, 307, target), tmp_path, [asked()])
        assert str(failed(outcome)) == "refused_by_endpoint: status 307"
        assert elsewhere.seen == []


@pytest.mark.parametrize(
    ("given", "detail"),
    [
        (["Lima"], "1 of 3 answers came"),
        ([], "0 of 3 answers came"),
        (["Lima", "", " "], "3 of 3 answers came"),
        (["Lima", "\ud800", "Cusco"], "surrogate"),
        (["Lima", 7, "Cusco"], "not text"),
    ],
)
def test_fewer_than_two_usable_answers_are_none(given: list[Any], detail: str, tmp_path: Path) -> None:
    (outcome,), _ = outcomes(lambda *_: Reply(completion(given)), tmp_path, [asked()])
    assert failed(outcome).cause is Cause.ANSWERS
    assert detail in failed(outcome).detail


@pytest.mark.parametrize(
    "reply",
    [b"", b"null", b"[]", b"<html>", b'{"choices": 3}', b'{"choices": [1]}', b"\xff", b"[" * 100_000, b"{}"],
)
def test_a_reply_that_is_no_completion_is_no_answer(reply: bytes, tmp_path: Path) -> None:
    (outcome,), _ = outcomes(lambda *_: Reply(reply), tmp_path, [asked()])
    assert failed(outcome).cause is Cause.ANSWERS


def test_two_of_three_answers_are_used_and_a_refusal_is_left_out(tmp_path: Path) -> None:
    refusal = {"index": 2, "message": {"content": None, "refusal": "No."}, "finish_reason": "stop"}
    (outcome,), _ = outcomes(lambda *_: Reply(completion(["Lima", "Cusco", refusal])), tmp_path, [asked()])
    assert texts(outcome) == ["Lima", "Cusco"]


def test_more_answers_than_were_asked_for_are_cut(tmp_path: Path) -> None:
    (outcome,), _ = outcomes(lambda *_: Reply(completion(list("abcde"))), tmp_path, [asked()])
    assert texts(outcome) == ["a", "b", "c"]


def test_a_question_that_cannot_be_sent_is_told_and_costs_nothing(tmp_path: Path) -> None:
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://10.0.0.1/"}}]}]
    (outcome,), seen = outcomes(n_answers, tmp_path, [UnansweredRequest("r-0", "m", json.dumps(image))])
    assert failed(outcome).cause is Cause.PROMPT
    assert seen == []


def test_no_more_requests_are_made_than_the_budget_has(tmp_path: Path) -> None:
    found, seen = outcomes(n_answers, tmp_path, many(60), requests=25)
    assert len(seen) == 25 == sum(isinstance(one, tuple) for one in found)
    assert {one.cause for one in found if isinstance(one, NoNewAnswers)} == {Cause.OVER_BUDGET}


def test_no_more_tokens_are_used_than_the_budget_has(tmp_path: Path) -> None:
    used = 10 + 2 * 3  # what `completion` says of one request
    most = len(QUESTION) + 16 + 3 * 20  # bytes, template, answers
    found, seen = outcomes(n_answers, tmp_path, many(60), tokens=400, max_tokens=20, concurrency=1)
    assert spent(tmp_path) == len(seen) * used <= 400
    assert spent(tmp_path) + most > 400  # and what is left would not be safe for another one
    refused = [one for one in found if isinstance(one, NoNewAnswers)]
    assert {one.cause for one in refused} == {Cause.OVER_BUDGET}
    assert "raise `resample.tokens`" in refused[0].detail


def test_a_server_that_does_not_count_is_taken_to_use_all_it_may(tmp_path: Path) -> None:
    most, reply = len(QUESTION) + 16 + 3 * 20, Reply(completion(["a", "b", "c"], usage={}))
    _, seen = outcomes(lambda *_: reply, tmp_path, many(9), tokens=4 * most, max_tokens=20, concurrency=1)
    assert len(seen) == 4


def asked_within(budget: int, tmp_path: Path, answer: Callable[[Body, int], Reply], **changes: Any) -> int:
    """How many tries a server saw that answers no request, with so many tokens to spend."""
    settings = {"tokens": budget, "max_tokens": 20, "concurrency": 1, **changes}
    found, seen = outcomes(answer, tmp_path, many(60), **settings)
    assert not any(isinstance(one, tuple) for one in found)
    assert spent(tmp_path) <= budget
    assert failed(found[-1]).cause is Cause.OVER_BUDGET or len(seen) < 60
    return len(seen)


MOST_OF_20 = READ + 3 * 20


@pytest.mark.parametrize(
    "reply",
    [
        completion(["Lima"], usage={"prompt_tokens": 40, "completion_tokens": 60}),
        completion(["Lima", 7, "Cusco"], usage={"prompt_tokens": 40, "completion_tokens": 60}),
        completion([], usage={"prompt_tokens": 40, "completion_tokens": 60}),
    ],
)
def test_replies_that_cannot_be_used_are_paid_for_as_the_server_counts(reply: Body, tmp_path: Path) -> None:
    assert asked_within(1000, tmp_path, lambda *_: Reply(reply)) == 1 + (1000 - MOST_OF_20) // 100


@pytest.mark.parametrize(
    "reply",
    [
        completion(["Lima"], usage={}),
        completion(["Lima"], usage={"prompt_tokens": -1, "completion_tokens": 10**300}),
        b"<html>",
        b"\xff",
        Reply(b"x", headers={"Content-Encoding": "gzip"}),
    ],
)
def test_replies_that_cannot_be_used_and_tell_no_usage_cost_the_most(reply: Any, tmp_path: Path) -> None:
    sent = reply if isinstance(reply, Reply) else Reply(reply)
    assert asked_within(4 * MOST_OF_20, tmp_path, lambda *_: sent) == 4


@pytest.mark.parametrize("retries", [0, 2])
def test_tries_that_fail_at_the_server_cost_the_most_each(retries: int, tmp_path: Path) -> None:
    tries = asked_within(
        7 * MOST_OF_20, tmp_path, lambda *_: Reply({}, 500, AT_ONCE), max_retries=retries, concurrency=2
    )
    assert tries == 7


def test_tries_that_time_out_cost_the_most_and_are_not_repeated_beyond_the_budget(tmp_path: Path) -> None:
    release = threading.Event()

    def answer(body: Body, _: int) -> Reply:
        release.wait(10)
        return n_answers(body)

    budget = 2 * MOST_OF_20
    assert asked_within(budget, tmp_path, answer, timeout_s=0.2, max_retries=5) == 2
    release.set()


@pytest.mark.parametrize("status", [307, 401, 404, 429])
def test_a_server_that_does_not_read_the_question_is_not_paid(status: int, tmp_path: Path) -> None:
    outcomes(lambda *_: Reply({}, status, AT_ONCE), tmp_path, [asked()], tokens=10**6)
    assert spent(tmp_path) == 0


def test_a_run_that_goes_on_has_spent_what_failed_before(tmp_path: Path) -> None:
    reply = Reply(completion(["Lima"], usage={"prompt_tokens": 40, "completion_tokens": 60}))
    settings = {"tokens": 1000, "max_tokens": 20, "concurrency": 1}
    with chat_server(lambda *_: reply) as server:
        for _ in range(3):
            with resampler_on(server, tmp_path, **settings) as resampler:
                found = resampler.answers(many(60))
        assert len(server.seen) * 100 <= 1000
    assert {failed(one).cause for one in found} == {Cause.ANSWERS, Cause.OVER_BUDGET}


def test_requests_are_spaced_as_the_rate_demands(tmp_path: Path) -> None:
    times: list[float] = []

    def answer(body: Body, _: int) -> Reply:
        times.append(time.monotonic())
        return n_answers(body)

    started = time.monotonic()  # the first one may be late where the machine is busy
    outcomes(answer, tmp_path, many(6), requests_per_minute=600)
    assert len(times) == 6 and max(times) - started > 0.45  # five turns of 0.1 s


def test_after_many_failures_the_others_are_not_asked(tmp_path: Path) -> None:
    failing = Reply({}, 500, AT_ONCE)
    found, seen = outcomes(lambda *_: failing, tmp_path, many(100), max_retries=0, concurrency=1)
    assert len(seen) == GIVE_UP_AFTER
    assert all(failed(one).cause is Cause.UNAVAILABLE for one in found)
    assert sum("not asked" in failed(one).detail for one in found) == 100 - GIVE_UP_AFTER


def test_what_was_not_asked_is_asked_by_the_next_run_of_the_same_name(tmp_path: Path) -> None:
    well = threading.Event()

    def answer(body: Body, _: int) -> Reply:
        return n_answers(body) if well.is_set() else Reply({}, 500)

    with chat_server(answer) as server:
        with resampler_on(server, tmp_path, max_retries=0, concurrency=1) as resampler:
            resampler.answers(many(30))
        well.set()
        with resampler_on(server, tmp_path, max_retries=0, concurrency=1) as resampler:
            found = resampler.answers(many(30))
    assert sum(isinstance(one, tuple) for one in found) == 30 - GIVE_UP_AFTER
    assert len(server.seen) == 30


def test_refusals_of_single_questions_do_not_end_the_asking(tmp_path: Path) -> None:
    _, seen = outcomes(lambda *_: Reply({}, 400), tmp_path, many(60), concurrency=1)
    assert len(seen) == 60


def test_a_restart_pays_for_nothing_twice(tmp_path: Path) -> None:
    def answer(body: Body, _: int) -> Reply:
        return Reply({}, 400) if body["seed"] % 3 == 0 else n_answers(body)

    with chat_server(answer) as server:
        runs = []
        for _ in range(3):
            with resampler_on(server, tmp_path) as resampler:
                runs.append([str(one) for one in resampler.answers(many(30))])
        assert len(server.seen) == 30
    assert runs[0] == runs[1] == runs[2]
    assert "refused_by_endpoint: status 400" in runs[0]


def test_another_run_uses_what_was_answered_and_asks_again_for_what_failed(tmp_path: Path) -> None:
    def answer(body: Body, earlier: int) -> Reply:
        return Reply({}, 400) if body["seed"] % 3 == 0 and not earlier else n_answers(body)

    with chat_server(answer) as server:
        for run in "ab":
            with resampler_on(server, tmp_path, run=run) as resampler:
                found = resampler.answers(many(30))
        assert 30 < len(server.seen) < 60 and all(isinstance(one, tuple) for one in found)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"{}", b"\xff", b"[" * 100_000])
def test_a_damaged_file_counts_as_none(damage: bytes, tmp_path: Path) -> None:
    with chat_server(n_answers) as server:
        for _ in range(2):
            with resampler_on(server, tmp_path) as resampler:
                (outcome,) = resampler.answers([asked()])
            (file,) = tmp_path.glob("??/*.json")
            file.write_bytes(damage)
        assert len(server.seen) == 2 and len(texts(outcome)) == 3


def test_only_the_owner_may_read_the_answers(tmp_path: Path) -> None:
    outcomes(n_answers, tmp_path / "kept", [asked()])
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o700


KILLED = """
import json, sys
from sgpu.storage.location import Location
from sgpu.scoring.resampling.sampling import UnansweredRequest, Resampler
from sgpu.scoring.settings import ResampleSettings
settings = ResampleSettings(base_url=sys.argv[1], share=1.0, n=3, concurrency=4)
resampler = Resampler(settings, Location.of(sys.argv[2]), run="run")
prompt = json.dumps("Which illness has the patient Ann Lee?")
resampler.answers([UnansweredRequest(f"r-{number}", "m", prompt) for number in range(40)])
"""


def test_a_run_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    enough = threading.Event()

    def answer(body: Body, _: int) -> Reply:
        if len(server.seen) >= 15:
            enough.set()
        time.sleep(0.02)
        return n_answers(body)

    with chat_server(answer) as server:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", KILLED, server.url, str(tmp_path)]
        with subprocess.Popen(command, env=environment) as process:
            assert enough.wait(60)
            process.kill()
        kept = len(list(tmp_path.glob("??/*.json")))
        paid = len(server.seen)
        with resampler_on(server, tmp_path, concurrency=4) as resampler:
            found = resampler.answers(many(40))
        assert 0 < kept < 40
        # Only what was under way when the run was killed may be asked once more.
        assert paid - kept <= 4
        assert len(server.seen) == paid + 40 - kept
    undisturbed = [f"answer 0 of {seed_of(0, f'r-{number}')}" for number in range(40)]
    assert [texts(one)[0] for one in found] == undisturbed


def test_the_key_comes_from_the_named_variable_and_is_kept_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SERVER_KEY", SECRET)
    caplog.set_level(logging.DEBUG)
    body = {"error": {"message": f"wrong key {SECRET}"}}
    (outcome,), (seen,) = outcomes(lambda *_: Reply(body, 401), tmp_path, [asked()], api_key_env="SERVER_KEY")
    assert seen["headers"]["authorization"] == f"Bearer {SECRET}"
    assert failed(outcome).detail == "status 401: the key in $SERVER_KEY is not accepted"
    written = "".join(path.read_text() for path in tmp_path.rglob("*.json"))
    assert written
    assert SECRET not in f"{outcome} {caplog.text} {written}"


def test_a_key_that_is_not_set_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERVER_KEY", raising=False)
    settings = ResampleSettings(base_url="http://127.0.0.1:9/v1", api_key_env="SERVER_KEY")
    with pytest.raises(UsageError, match="SERVER_KEY"):
        Resampler(settings, Location.of(tmp_path))


@pytest.mark.parametrize("status", [200, 400, 429, 500])
def test_neither_question_nor_reply_is_logged_or_told(
    status: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    reply = {"error": {"message": f"cannot answer {QUESTION}", "code": QUESTION, "type": QUESTION}}
    (outcome,), _ = outcomes(lambda *_: Reply(reply, status, AT_ONCE), tmp_path, [asked()])
    assert "Ann Lee" not in failed(outcome).detail
    assert "Ann Lee" not in caplog.text
