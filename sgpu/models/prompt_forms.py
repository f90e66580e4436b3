"""How a question is asked, by name: the paper gives no answering prompt, so every one is written here.

``{question}`` is the question's text; ``{classes}`` the class names of a classification data set, separated
by commas. A study may name a form or write its own template.
"""

from __future__ import annotations

PROMPT_FORMS: dict[str, str] = {
    "plain": "{question}",
    "text-qa": "Answer the following question as briefly as possible.\nQuestion: {question}\nAnswer:",
    "vqa": "{question}\nAnswer the question using a single word or phrase.",
    "vqa-unanswerable": (
        "{question}\nWhen the provided information is insufficient, respond with 'Unanswerable'.\n"
        "Answer the question using a single word or phrase."
    ),
    "medical-vqa": (
        "This is a medical image.\n{question}\nAnswer the question using a single word or phrase."
    ),
    "classification-closed": "{question} Answer with one of: {classes}.",
    "classification-open": "{question} Answer with a short noun phrase.",
    "chain-of-thought": "{question}\nSolve the problem step by step. End with 'The final answer is N'.",
}
