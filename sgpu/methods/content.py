"""Training-free methods on the content that answers share, see `sgpu.agreement`."""

from __future__ import annotations

import math
from collections.abc import Callable

from sgpu.agreement import ContentAgreement
from sgpu.methods.base import Method, of_each


def _where_known(number: Callable[[ContentAgreement], float]) -> Callable[[ContentAgreement | None], float]:
    return lambda found: math.nan if found is None else number(found)


CONTENT_OVERLAP = Method(
    name="content_overlap",
    title="Content overlap",
    needs=frozenset({"content"}),
    sign="confidence",
    compute=of_each("content", _where_known(lambda found: found.overlap)),
    reference="mean over pairs of the overlap of content words, ours",
)

SHARED_WORD = Method(
    name="shared_word",
    title="Shared word",
    needs=frozenset({"content"}),
    sign="confidence",
    compute=of_each("content", _where_known(lambda found: found.shared)),
    reference="share of the other answers that hold the most common content word, ours",
)
