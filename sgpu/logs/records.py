"""What every log format becomes: a record to be scored, a prompt to be joined, or the reason why neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

MAX_SAMPLES = 1_000  # answers of one request
# The time of a record that has none: whoever knows the day of its folder puts that in its place.
UNDATED = -(2**62)


class Reason(StrEnum):
    """Why a row is in quarantine. The values are written to the table and never change their meaning."""

    TOO_FEW = "too_few_answers"
    REFUSAL = "refusal"
    TOOL_CALL = "tool_call"
    CONTENT_FILTER = "content_filter"
    EMPTY = "empty"
    OVERSIZE = "oversize_text"
    TOO_MANY = "too_many_answers"
    ENCODING = "bad_encoding"
    NOT_JSON = "not_json"
    MISSING_FIELD = "missing_field"
    BAD_VALUE = "bad_value"
    FAILED_REQUEST = "failed_request"
    CONFLICT = "conflicting_duplicate"
    GREW = "grew_after_it_was_scored"
    NO_OUTPUT = "no_output"
    LATE_FOR_GROUP = "late_for_group"
    GROUP_FULL = "group_full"
    CLOCK = "clock_out_of_range"
    FILE_TRUNCATED = "file_truncated"
    FILE_MISSING = "file_missing"
    FILE_UNREADABLE = "file_unreadable"
    FILE_CHANGED = "file_changed"
    UNKNOWN_FORMAT = "unknown_format"
    NOT_A_LOG = "not_a_log"
    NO_HEAD = "no_classifier_for_n"
    SCORING_FAILED = "scoring_failed"
    UNSAFE_PATH = "unsafe_path"
    OVER_BUDGET = "over_budget"
    UNSUPPORTED = "unsupported_convention"


# Reasons that a single sample of a request is left out for; these stand in ``dropped``. FAILED_REQUEST: the
# engine stopped in the middle of this answer.
DROPS = (Reason.EMPTY, Reason.REFUSAL, Reason.TOOL_CALL, Reason.CONTENT_FILTER, Reason.FAILED_REQUEST)


class LogFault(Exception):
    """What is wrong with logs. ``detail`` goes to the quarantine table as it is."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = Reason(reason)
        self.detail = detail


@dataclass(frozen=True, slots=True)
class SampledAnswer:
    """The text of one answer. ``finish_reason`` "length" says that the engine cut it, which is allowed."""

    text: str
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One request with its usable answers, in the order of their index.

    It has two answers or more, unless ``group_key`` or ``join_key`` is set: then it may have one, and whoever
    groups or joins it decides. ``timestamp``: microseconds since 1970, UTC. ``prompt`` is JSON, a string or a
    list of chat messages, and is kept only where answers are to be sampled anew; None where the question had
    images that the log does not hold. ``group_key`` is set where the request asked for ONE answer.
    ``join_key`` is set where the question stands in another file (batch output, by custom_id). ``around``:
    of a span, the request id that a span around it would have; empty where there is none.
    """

    request_id: str
    timestamp: int
    model: str
    route: str | None
    samples: tuple[SampledAnswer, ...]
    dropped: tuple[str, ...] = ()
    prompt_sha256: str | None = None
    label: int | None = None
    group_key: str | None = None
    join_key: str | None = None
    prompt: str | None = None
    around: str | None = None


@dataclass(frozen=True, slots=True)
class CallPart:
    """A part of a call whose other parts stand elsewhere in the logs, by the request id of the call.

    ``content``: JSON, see `sgpu.logs.rows.telemetry`. ``around`` as in `LogRecord`.
    """

    request_id: str
    content: str
    timestamp: int | None = None
    model: str | None = None
    route: str | None = None
    around: str | None = None


@dataclass(frozen=True, slots=True)
class BatchPrompt:
    """A line of a batch's input file: the question of the LogRecord with the same ``join_key``.

    ``group_key``: what the record's own would be, if it asked for one answer; None if it asked for several.
    ``fault``: why what answers it cannot be scored (several questions in one request); the record that joins
    it is to be quarantined as BAD_VALUE.
    """

    join_key: str
    prompt_sha256: str
    route: str | None
    model: str | None
    prompt: str | None = None
    group_key: str | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row or a file that cannot be scored. ``detail`` never holds the text of a prompt or an answer.

    ``prompt`` is set where answers can be sampled anew: the row is sound, but has no second answer.
    ``join_key``: the batch line that this one answers, which therefore is not without output.
    """

    reason: Reason
    detail: str
    request_id: str | None = None
    model: str | None = None
    route: str | None = None
    timestamp: int | None = None
    prompt: str | None = None
    join_key: str | None = None


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """A line that by design holds no answer: a span of another kind, an empty line. ``kind`` is counted.

    "unfinished": a request that was still running when it was logged; its end comes with a later line.

    ``part``: what it says of a call whose answers may stand elsewhere.
    """

    kind: str
    part: CallPart | None = field(default=None, compare=False)


Item = LogRecord | CallPart | BatchPrompt | Rejected | NoAnswer


def why_too_few(usable: int, dropped: Sequence[str]) -> Reason | None:
    """The reason a request with ``usable`` answers cannot be scored; None where it has two or more.

    Where all that was left out was left out for one reason, that one; else TOO_FEW.
    """
    if usable >= 2:
        return None
    causes = set(dropped)
    return Reason(causes.pop()) if len(causes) == 1 else Reason.TOO_FEW
