"""What of an answer is embedded and compared: all of it, or the final answer of a chain of thought."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pyarrow as pa

from sgpu.final_answer import final_answer

Embed = Literal["full", "final_answer"]


def embedded_texts(answers: Sequence[str | None], embed: Embed) -> list[str | None]:
    """The texts of N answers; where no final answer is found in one, all of it. A missing one stays None.

    Whole chains of thought are worded differently even where they come to the same result, so that their
    embeddings say little of whether they agree.
    """
    if embed == "full":
        return list(answers)
    return [None if text is None else final_answer(text) or text for text in answers]


def with_embedded_texts(responses: pa.Table, embed: Embed) -> pa.Table:
    """The responses with these texts in the place of the answers."""
    if embed == "full":
        return responses
    column = responses.schema.get_field_index("answers")
    texts = [None if row is None else embedded_texts(row, embed) for row in responses["answers"].to_pylist()]
    field = responses.schema.field(column)
    return responses.set_column(column, field, pa.array(texts, field.type))
