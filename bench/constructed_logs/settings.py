"""What a constructed day is made of."""

from __future__ import annotations

from datetime import date
from typing import Literal

from pydantic import Field

from sgpu.study.specs import Strict

Format = Literal["sgpu", "openai", "openai_batch", "otel", "mlflow", "single"]
# Share of the requests, before the rows that each of them takes.
FORMAT_WEIGHTS: dict[Format, float] = {
    "sgpu": 0.50,
    "openai": 0.16,
    "openai_batch": 0.12,
    "otel": 0.10,
    "mlflow": 0.08,
    "single": 0.04,
}


class LogSettings(Strict):
    """``rows`` are lines with one item each, spans and batch prompts included. All others but ``answers`` and
    ``seed`` are shares of requests: ``bad`` ones cannot be scored, ``partial`` ones lost some answers,
    ``incoherent`` ones answer at random (drift), ``novel`` ones have answers that no other request has.
    """

    rows: int = Field(default=50_000, ge=20)
    days: tuple[date, ...] = Field(min_length=1)
    seed: int = 0
    formats: tuple[Format, ...] = Field(default=tuple(FORMAT_WEIGHTS), min_length=1)
    bad: float = Field(default=0.02, ge=0, le=0.9)
    one_answer: float = Field(default=0.0, ge=0, le=0.9)
    duplicates: float = Field(default=0.005, ge=0, le=0.5)
    partial: float = Field(default=0.02, ge=0, le=1)
    incoherent: float = Field(default=0.0, ge=0, le=1)
    novel: float = Field(default=0.02, ge=0, le=1)
    labelled: float = Field(default=0.1, ge=0, le=1)
    answers: int = Field(default=10, ge=3, le=100)
    other_sizes: float = Field(default=0.15, ge=0, le=1)
