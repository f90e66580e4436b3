"""What a report says of the backend that its entailments come from."""

from __future__ import annotations

_NOT_THE_PAPERS = (
    "Methods that compare answers (semantic entropies, kernel language entropy) are then not the paper's "
    "baselines, which ask a DeBERTa model of natural-language inference."
)
_HOW = {
    "deberta": "Whether one answer entails another is said by {label}.",
    "cosine": "Answers count as one meaning by the cosine of their sentence vectors ({label}). ",
    "alias": "Answers count as one meaning if their words are equal ({label}). ",
    "llm": "Whether one answer entails another was asked of a language model ({label}). ",
}
_REGISTERED = "Whether one answer entails another is said by the backend {backend!r} ({label}). "


def backend_note(backend: str, label: str) -> str:
    """One or two sentences: how entailment was decided, and whether that is the paper's way."""
    note = _HOW.get(backend, _REGISTERED).format(backend=backend, label=label)
    return note if backend == "deberta" else note + _NOT_THE_PAPERS
