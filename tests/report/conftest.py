"""A seeded, made-up report: two cells, six methods, missing labels and hostile model text."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import brier_score_loss, roc_auc_score

from sgpu.evaluation.agreement import Agreement
from sgpu.evaluation.bootstrap import Interval
from sgpu.evaluation.ranking import retention_curve
from sgpu.report.study.data import (
    COMPARISON_SCHEMA,
    CONFUSION_SCHEMA,
    EMBEDDING_SCHEMA,
    PAIR_SCHEMA,
    POSTHOC_SCHEMA,
    SENSITIVITY_SCHEMA,
    Example,
    ReportData,
    StageSummary,
)

METHODS = (
    "sgpu",
    "predictive_entropy",
    "spectral_entropy",
    "self_consistency",
    "largest_eigenvalue",
    "made_up",
)
CELLS = (("Qwen2.5-0.5B-Instruct", "trivia"), ("SmolLM2-360M-Instruct", "geography"))
QUESTIONS = 160
VARIED = {
    "kernel": ["rbf", "matern15"],
    "encoder": ["all-MiniLM-L6-v2", "other"],
    "n_answers": ["5", "10", "20"],
    "train_size": ["50", "100", "1000"],
    "judge": ["alias", "llm"],
    "trained_on": ["Qwen2.5-0.5B-Instruct", "SmolLM2-360M-Instruct"],
}
HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }} <b>bold</b> & \"quoted\" 'text'",
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft" * 4,
    "القاهرة هي عاصمة مصر",
    "\u202eright to left override",
    "🦊🏳️‍🌈 yes — 東京",
    "nul\x00 bell\x07 tab\tline\nbreak",
    "half a surrogate \ud83d",
    "",
)


@pytest.fixture
def make_data() -> Callable[..., ReportData]:
    return report_data


def report_data(
    seed: int = 7, cells: tuple[tuple[str, str], ...] = CELLS, one_class: bool = False
) -> ReportData:
    """A ReportData whose metrics follow from its predictions."""
    rng = np.random.default_rng(seed)
    predictions, metrics, examples = [], [], []
    for model, dataset in cells:
        frame, shown = _cell(rng, model, dataset, one_class)
        predictions.append(frame)
        metrics += _metrics(frame, model, dataset)
        examples += shown
    return ReportData(
        study={
            "name": "quickstart",
            "seed": 7,
            "models": [model for model, _ in cells],
            "sampling": {"n": 20, "top_p": 0.9},
        },
        run_info={
            "sgpu": "0.1.0",
            "git": "abc1234",
            "started": "2026-01-02T03:04:05Z",
            "packages": {"torch": "2.13.0", "polars": "2.1.0"},
            "cores": 2,
        },
        metrics=pl.DataFrame(metrics, infer_schema_length=None),
        predictions=pl.concat(predictions),
        examples=examples,
        stages=[
            StageSummary("sample", f"{CELLS[0][0]}/trivia", 480, 478, 2, 0, 1234.5, "7.8 answers/s", False),
            StageSummary("judge", f"{CELLS[0][0]}/trivia", 478, 470, 0, 8, 3.2, "3 000 votes/s", False),
            StageSummary("encode", "", 9600, 9600, 0, 0, 0.0, "", True),
        ],
        quarantine=[
            {
                "model": CELLS[0][0],
                "dataset": "trivia",
                "table": "responses",
                "question_id": f"q{i:04}",
                "reason": why,
            }
            for i, why in enumerate([HOSTILE[0], HOSTILE[2], *["the prompt is too long"] * 60])
        ],
        notes=[
            "Labels are by alias match, not by an LLM judge.",
            "Intervals are over questions, not over seeds.",
        ],
        agreement=[
            (
                f"{CELLS[0][0]}/trivia",
                "alias",
                "llm",
                Agreement(Interval(0.81, 0.77, 0.85, 99), Interval(0.92, 0.9, 0.94, 99), 9400, 200),
            )
        ],
        granted=[{"dataset": "trivia", "split": "test", "requested": 200, "granted": QUESTIONS}],
        unavailable=[
            {"cell": f"{m}/{d}", "method": "semantic_entropy", "why": "no token log-probabilities"}
            for m, d in cells[:1]
        ],
    )


@pytest.fixture
def full_data() -> ReportData:
    """With everything that a study can add: variants, comparisons, confusion, embeddings and times."""
    data = report_data()
    variants = [
        {"model": model, "dataset": dataset, "kind": kind, "setting": setting, "method": "sgpu",
         "metric": metric, "value": 0.5 + 0.01 * i, "lo": 0.4, "hi": 0.9, "n": 100}
        for model, dataset in CELLS
        for kind, settings in VARIED.items()
        for i, setting in enumerate(settings)
        for metric in ("auroc", "auarc", "ece", "accuracy")
    ]  # fmt: skip
    any_size = [
        {**row, "method": "sgpu_any_size", "value": float(str(row["value"])) + 0.01}
        for row in variants
        if row["kind"] == "n_answers"
    ]
    pool = {"model": "_global", "dataset": "_global", "kind": "global_kernel", "method": "global_sgpu"}
    pooled = [{**row, **pool} for row in variants[: len(variants) // len(CELLS)] if row["kind"] == "kernel"]
    comparisons = [
        {"model": model, "dataset": dataset, "method": method, "reference": "sgpu", "metric": "auroc",
         "test": "delong", "difference": -0.123, "lo": -0.2, "hi": -0.05, "p": 0.001, "p_holm": 0.004,
         "n": 100, "n_missing": 0}
        for model, dataset in CELLS
        for method in METHODS[1:]
    ]  # fmt: skip
    counts = {"n": 50.0, "tp": 20.0, "fp": 5.0, "tn": 15.0, "fn": 10.0}
    shares = {"recall": 20 / 30, "precision": 0.8, "accuracy": 0.7}
    embedding = {"lambda_1": 10.5, "lambda_2": 2.3, "epsilon": 0.69}
    return replace(
        data,
        sensitivity=pl.DataFrame([*variants, *any_size, *pooled], schema=SENSITIVITY_SCHEMA),
        comparisons=pl.DataFrame(comparisons, schema=COMPARISON_SCHEMA),
        confusion=pl.DataFrame(
            [{"model": model, "dataset": dataset, **counts, **shares} for model, dataset in CELLS],
            schema=CONFUSION_SCHEMA,
        ),
        embeddings=pl.DataFrame([{"embedding": "External Embedding", **embedding}], schema=EMBEDDING_SCHEMA),
        sentence_pairs=pl.DataFrame(
            [{"context": "What happens when you heat ice?", "bidirectional_entailment": 0, "cosine": 0.9}],
            schema=PAIR_SCHEMA,
        ),
        posthoc=pl.DataFrame(
            [{"method": "sgpu", "dataset": "trivia", "seconds_per_input": 0.02}], schema=POSTHOC_SCHEMA
        ),
    )


def _cell(
    rng: np.random.Generator, model: str, dataset: str, one_class: bool
) -> tuple[pl.DataFrame, list[Example]]:
    truth = rng.beta(1.1, 0.8, QUESTIONS)
    labels: list[int | None] = [int(v) for v in (rng.random(QUESTIONS) < truth)]
    labels = [1] * QUESTIONS if one_class else labels
    labels[3] = labels[50] = None
    ids = [f"{dataset}-{i:04}" for i in range(QUESTIONS)]
    probability = np.clip(truth + rng.normal(0, 0.1, QUESTIONS), 0.01, 0.99)
    sd = rng.uniform(0.02, 0.2, QUESTIONS)
    frames = []
    for k, method in enumerate(METHODS):
        noisy = truth + rng.normal(0, 0.1 + 0.09 * k, QUESTIONS)
        confidence = probability if method == "sgpu" else np.round(noisy, 1) if k % 2 else noisy
        known: list[float | None] = [float(c) for c in confidence]
        if method == "predictive_entropy":
            known[:5] = [None] * 5
        first = method == "sgpu"
        frames.append(
            pl.DataFrame(
                {
                    "model": model,
                    "dataset": dataset,
                    "question_id": ids,
                    "split": "test",
                    "method": method,
                    "label": labels,
                    "confidence": known,
                    "probability": probability if first else np.clip(noisy, 0, 1),
                    "sd": sd if first else [None] * QUESTIONS,
                    "unsafe": np.abs(probability - 0.5) <= sd / 2 if first else [None] * QUESTIONS,
                },
                schema_overrides={"label": pl.Int8, "sd": pl.Float64, "unsafe": pl.Boolean},
                strict=False,
            )
        )
    unsafe = np.abs(probability - 0.5) <= sd / 2
    examples = [
        _example(rng, model, dataset, ids[i], labels[i], float(probability[i]), float(sd[i]), bool(unsafe[i]))
        for i in range(60)
    ]
    return pl.concat(frames), examples


def _example(
    rng: np.random.Generator,
    model: str,
    dataset: str,
    identity: str,
    label: int | None,
    p: float,
    sd: float,
    unsafe: bool,
) -> Example:
    spread = 1 + int((1 - p) * 8)
    pool = [*rng.permutation(list(HOSTILE)), *(f"answer {j}" for j in range(20))]
    answers = [str(pool[int(rng.integers(spread))]) for _ in range(20)]
    votes = [None if j == 0 else label for j in range(20)]
    eigenvalues = np.sort(rng.dirichlet([p * 12] + [0.4] * 19))[::-1] * 20
    return Example(
        model,
        dataset,
        identity,
        f"What is the capital of country {identity}, <i>exactly</i>?",
        ["Cairo", HOSTILE[3]],
        answers,
        votes,
        label,
        eigenvalues.tolist(),
        p,
        sd,
        unsafe,
    )


def _metrics(frame: pl.DataFrame, model: str, dataset: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for method in METHODS:
        whole = frame.filter(pl.col("method") == method)
        used = whole.drop_nulls(["label", "confidence"])
        y, c, p = (used[name].to_numpy() for name in ("label", "confidence", "probability"))
        defined = len(set(y)) == 2
        auroc = float(roc_auc_score(y, c)) if defined else None
        values = {
            "auroc": (auroc, 0.05),
            "auarc": (float(np.mean(retention_curve(c, y).accuracy)), 0.04),
            "ece": (float(abs(np.mean(p) - np.mean(y))) + 0.03, 0.02),
            "auarc_20": (0.7, 0.01),
            "brier": (float(brier_score_loss(y, p)), 0.02),
        }
        for metric, (value, half) in values.items():
            ends = (None, None) if value is None else (value - half, min(1.0, value + half))
            rows.append(
                {
                    "model": model,
                    "dataset": dataset,
                    "method": method,
                    "metric": metric,
                    "value": value,
                    "lo": ends[0],
                    "hi": ends[1],
                    "n": used.height,
                    "n_missing": whole.height - used.height,
                    "settings": json.dumps({"resamples": 2000, "seed": 7}),
                }
            )
    return rows
