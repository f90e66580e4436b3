"""Calls of a server that speaks the OpenAI chat protocol: what is tried again, and whose fault a failure is.

A refused prompt is a fault of the row that it belongs to. A server that is not there, a key, a quota or a
budget says nothing of the row: whoever asks may ask again later.
"""

from __future__ import annotations

import base64
import io
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import httpx2
import openai

from sgpu.engines.base import EngineConfig, Prompt, Tokens
from sgpu.engines.bounded_http import UNPACKED, RateLimit, TooLargeError, bound_replies
from sgpu.engines.costs import CostsClient
from sgpu.errors import SgpuError, UnavailableError, UsageError
from sgpu.visible import exposes_key, without_credentials

MAX_RETRIES = 8
MAX_BYTES = 128 * 2**20  # of one reply: 128 answers of 4096 tokens with their log-probabilities take 80
LONGEST_PAUSE_S = 60.0
CHECK_S = 10.0
ALL_REFUSED = 20  # prompts, before any was answered: then it is not the prompts
MESSAGE_TOKENS, IMAGE_TOKENS = 16, 4096  # at most, of a chat template for one message, and of one image
MOST_COUNTED = 2**53  # no server has counted more tokens than this
# Failures before the whole question was sent, and statuses of servers that have not read it.
NOT_REACHED = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_UNREAD = (401, 402, 403, 404, 429)
_AGAIN = (408, 409, 429)  # and from 500

T = TypeVar("T")


class FailedCallError(Exception):
    """``error`` ended the last of ``tries`` tries."""

    def __init__(self, error: openai.OpenAIError, tries: int) -> None:
        super().__init__(str(error))
        self.error, self.tries = error, tries


class ChatClient:
    """One server. Redirects are not followed, replies are bounded (`bound_replies`), each try is paid for."""

    def __init__(
        self,
        base_url: str | None,
        api_key_env: str | None,
        *,
        retries: int,
        timeout_s: float,
        max_bytes: int,
        limit: RateLimit | None = None,
        http_client: Any = None,
    ) -> None:
        """Raises UsageError for an unset ``api_key_env``, and for a key that others could read on its way."""
        self._retries = retries
        http_client = http_client or openai.DefaultHttpxClient()
        # Hooks of the HTTP client, so that retries count against the rate as well.
        bound_replies(http_client, max_bytes, timeout_s, limit)
        self._client = openai.OpenAI(
            base_url=base_url,
            api_key=_api_key(api_key_env),
            max_retries=0,  # each try is paid for by itself
            timeout=timeout_s,
            default_headers=UNPACKED,
            http_client=http_client,
        )
        address = str(self._client.base_url).rstrip("/")
        self.server = without_credentials(address)  # as it is shown
        if api_key_env and exposes_key(address):
            raise UsageError(
                f"the key in ${api_key_env} would travel unencrypted to {self.server}: use https://, "
                "or a tunnel to 127.0.0.1"
            )

    def create(
        self,
        body: dict[str, Any],
        most: Tokens,
        read: Callable[[Any], tuple[T, Tokens | None]],
        *,
        account: CostsClient | None = None,
        retries: int | None = None,
    ) -> T:
        """What ``read`` makes of the raw response, beside what the call has cost (None: it does not say).

        Each try is put on the ``account`` with the ``most`` that it can cost before it is sent, and settled
        when it has ended. One that failed for a reason that may pass is repeated. Raises FailedCallError, and
        what the account raises for a try that it cannot pay.
        """
        retries = self._retries if retries is None else retries
        for tries in range(1, retries + 2):
            ticket = account.reserve(most) if account else 0
            used = most
            try:
                reply, counted = read(self._client.chat.completions.with_raw_response.create(**body))
                used = counted or most
                return reply
            except openai.OpenAIError as error:
                used, failure = _cost(error, most), error
            finally:
                if account:
                    account.settle(ticket, used)
            if tries > retries or not _may_pass(failure):
                raise FailedCallError(failure, tries) from failure
            time.sleep(_pause(failure, tries - 1))
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        self._client.close()


class ChatCalls(ChatClient):
    """One model of a server, for an engine: says whose fault a failure is, in errors of ours."""

    def __init__(
        self, config: EngineConfig, http_client: Any = None, account: CostsClient | None = None
    ) -> None:
        """Raises as `ChatClient`."""
        self._config, self._purse = config, account
        self._timeout = float(str(config.options.get("timeout", 600)))
        super().__init__(
            config.base_url,
            config.api_key_env,
            retries=int(str(config.options.get("max_retries", MAX_RETRIES))),
            timeout_s=self._timeout,
            max_bytes=MAX_BYTES,
            limit=RateLimit(config.requests_per_minute) if config.requests_per_minute else None,
            http_client=http_client,
        )
        self._answered = False
        self._refused = 0

    def complete(self, prompt: Prompt, *, retries: int | None = None, **fields: Any) -> Any:
        """The reply to a prompt.

        Raises ValueError for a prompt that the server refuses, UsageError for a key, an address or a model,
        and UnavailableError for what may pass: no connection, a busy server, a quota, a budget.
        """
        if not prompt.messages:
            raise ValueError(f"the prompt with seed {prompt.seed} has no messages")
        longest = fields.get("max_completion_tokens") or fields["max_tokens"]
        question, answers = worst_case(
            [text for _, text in prompt.messages], fields.get("n", 1), int(longest)
        )
        most = question + (IMAGE_TOKENS if prompt.image is not None else 0), answers
        body = {"model": self._config.model, "messages": _messages(prompt), **fields}
        try:
            reply = self.create(body, most, _parsed, account=self._purse, retries=retries)
        except FailedCallError as failure:
            self._refused += isinstance(failure.error, openai.BadRequestError) and "n" not in fields
            raise self._explained(failure.error, prompt, failure.tries) from failure.error
        self._answered = True
        return reply

    def check(self) -> None:
        """Raise UsageError if nobody answers, the key is not accepted, or the model is not there.

        A server that does not list the model is asked for one token of it.
        """
        client = self._client.with_options(timeout=CHECK_S)
        names: list[str] = []
        try:
            names = _names(client.models.with_raw_response.list().http_response)
        except (openai.NotFoundError, openai.PermissionDeniedError):
            pass  # not every server lists its models, nor to every key
        except openai.OpenAIError as error:
            return self._refuse(error)
        if self._config.model in names:
            return None
        hello = Prompt((("user", "Hi"),), 0)
        try:
            self.complete(hello, retries=0, timeout=CHECK_S, **{self.length_field: 1})
        except UsageError as error:
            listed = f" It lists {', '.join(names[:10])}." if names else ""
            raise UsageError(f"{error}{listed}") from None
        except (UnavailableError, ValueError):
            return None  # busy, slow, or of other fields: for the stage to find out

    def _refuse(self, error: openai.OpenAIError) -> None:
        """Raise UsageError for what a person has to mend; a server that is merely busy or slow is none."""
        if isinstance(error, openai.APIConnectionError):
            slow = isinstance(error, openai.APITimeoutError) and not isinstance(error.__cause__, NOT_REACHED)
            if slow:
                return
            why = without_credentials(str(error.__cause__ or error))
            raise UsageError(
                f"no server answers at {self.server} ({why}): start it, or correct `base_url` of model "
                f"{self._config.model!r}"
            ) from None
        explained = self._explained(error)
        if isinstance(explained, UsageError):
            raise explained from None

    @property
    def length_field(self) -> str:
        """How the server calls the longest answer."""
        return "max_completion_tokens" if self._config.options.get("max_completion_tokens") else "max_tokens"

    def _explained(
        self, error: openai.OpenAIError, prompt: Prompt | None = None, tries: int = 1
    ) -> SgpuError | ValueError:
        times = f" (tried {tries} times)" if tries > 1 else ""
        if isinstance(error, TooLargeError):
            return ValueError(f"the reply of {self.server} is {error}; ask for fewer or shorter answers")
        if isinstance(error, openai.APITimeoutError):
            return UnavailableError(f"{self.server} did not answer within {self._timeout:g} s{times}")
        if not isinstance(error, openai.APIStatusError):
            why = without_credentials(str(error.__cause__ or error))
            return UnavailableError(f"no connection to {self.server}: {why}{times}")
        if error.response.has_redirect_location:
            target = without_credentials(error.response.headers["location"])
            return UsageError(
                f"{self.server} sends its requests on to {target}, where the questions would follow; if you "
                "trust that server, set its address as base_url"
            )
        status = error.status_code
        if status in (401, 403):
            named = self._config.api_key_env
            key = f"the key in ${named}" if named else "a request without a key (set api_key_env)"
            return UsageError(f"{self.server} did not accept {key} (status {status})")
        if status == 404:
            return UsageError(
                f"{self.server} does not know the model {self._config.model!r}, or the path of base_url is "
                "wrong (status 404)"
            )
        if status >= 500 or status in (402, *_AGAIN):
            return UnavailableError(f"{self.server}: status {status}{times}: {error.message[:200]}")
        return self._refusal(error.message[:300], prompt)

    def _refusal(self, message: str, prompt: Prompt | None) -> SgpuError | ValueError:
        """Of one prompt; where every prompt was refused, of what is sent with all of them."""
        if not self._answered and self._refused >= ALL_REFUSED:
            return UnavailableError(f"{self.server} refused the first {self._refused} prompts: {message}")
        question = prompt.messages[-1][1][:80] if prompt else ""
        return ValueError(f"{self.server} refused the prompt {question!r}: {message}")


def _api_key(variable: str | None) -> str:
    if variable is None:
        return "none"  # local servers ask for none, the client insists on one
    key = os.environ.get(variable)
    if not key:
        raise UsageError(f"the environment variable {variable}, named by api_key_env, is not set")
    return key


def _names(response: Any) -> list[str]:
    """The models that a server lists; none where its reply is of no known form."""
    try:
        return [str(entry["id"]) for entry in response.json()["data"]]
    except (ValueError, KeyError, TypeError):
        return []


def _may_pass(error: openai.OpenAIError) -> bool:
    """Whether the next try may succeed where nobody does anything about it."""
    if isinstance(error, openai.APIConnectionError):
        return True
    if not isinstance(error, openai.APIStatusError) or error.code == "insufficient_quota":
        return False
    return error.status_code >= 500 or error.status_code in _AGAIN


def _pause(error: openai.OpenAIError, retry: int) -> float:
    """Seconds until the next try: what the server says, up to a minute, else longer each time."""
    headers = error.response.headers if isinstance(error, openai.APIStatusError) else {}
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        if 0 <= seconds <= LONGEST_PAUSE_S:
            return seconds
    return float(min(0.5 * 2**retry, 8.0) * random.uniform(0.75, 1.0))


def worst_case(texts: Iterable[str], n_answers: int, longest: int) -> Tokens:
    """The most tokens that a call can read and write: no token is shorter than a byte."""
    return sum(len(text.encode()) + MESSAGE_TOKENS for text in texts), n_answers * longest


def tokens_used(usage: Any) -> Tokens | None:
    """What a server says that a call has cost, in the ``usage`` of its reply; None for no possible count."""
    fields = usage if isinstance(usage, Mapping) else getattr(usage, "__dict__", {})
    counts = (fields.get("prompt_tokens"), fields.get("completion_tokens"))
    possible = all(isinstance(count, int) and 0 <= count <= MOST_COUNTED for count in counts)
    return counts if possible else None  # type: ignore[return-value]


def _parsed(response: Any) -> tuple[Any, Tokens | None]:
    reply = response.parse()
    return reply, tokens_used(reply.usage)


def _cost(error: openai.OpenAIError, most: Tokens) -> Tokens:
    """What a failed call may have cost."""
    if not isinstance(error, openai.APIStatusError):
        return (0, 0) if isinstance(error.__cause__, NOT_REACHED) else most
    status = error.status_code
    if status >= 500 or status == 408:
        return most  # how far the server came is not known
    # A filter may have read the question before it was refused.
    return (0 if status < 400 or status in _UNREAD else most[0]), 0


def _messages(prompt: Prompt) -> list[Any]:
    messages: list[dict[str, Any]] = [{"role": role, "content": text} for role, text in prompt.messages]
    if prompt.image is not None:
        url = f"data:{_mime_type(prompt.image)};base64,{base64.b64encode(prompt.image).decode()}"
        messages[-1]["content"] = [
            {"type": "image_url", "image_url": {"url": url}},
            {"type": "text", "text": messages[-1]["content"]},
        ]
    return messages


def _mime_type(image: bytes) -> str:
    from PIL import Image

    with Image.open(io.BytesIO(image)) as opened:
        return str(opened.get_format_mimetype())
