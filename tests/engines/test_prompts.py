"""Which token stands for a candidate answer of an LLM judge."""

from __future__ import annotations

from sgpu.engines.prompts import candidate_token_ids


class _Tokenizer:
    """Ignores case; knows two words."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [{"yes": 5, "no": 7}.get(word, 1) for word in text.lower().split("-")]


def test_a_candidate_of_several_tokens_has_none() -> None:
    assert candidate_token_ids(_Tokenizer(), ["yes", "yes-no"]) == [5, None]


def test_two_spellings_of_one_token_count_once() -> None:
    assert candidate_token_ids(_Tokenizer(), ["yes", "no", "Yes"]) == [5, 7, None]
