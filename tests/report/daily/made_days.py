"""Summaries of days as `sgpu score` leaves them."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

import numpy as np

from sgpu.fitted.profile import TrainingProfile
from sgpu.logs.accounting import Accounting
from sgpu.watch.history import PastDay, PastDays
from sgpu.watch.sketch import Sketch
from sgpu.watch.thresholds import Thresholds
from sgpu.watch.verdict import judge_day
from tests.watch.made_scores import made_spectrum, sketch

TODAY = date(2026, 11, 20)
REASONS = {"refusal": 0.012, "tool_call": 0.004, "not_json": 0.002, "too_few_answers": 0.03}


def profile(seed: int = 0) -> TrainingProfile:
    draw = np.random.default_rng(seed)
    spectra = [np.array(made_spectrum(draw, 20, 0.1)) for _ in range(600)]
    held_out = 1 / (1 + np.exp(-draw.normal(0.6, 1.0, 900)))
    return TrainingProfile.of(spectra, np.ones(600), held_out, np.ones(900), seed=0)


def accounting(scored: int, **changes: Any) -> Accounting:
    by_reason = {reason: max(1, round(share * scored)) for reason, share in REASONS.items()}
    quarantined, duplicates, already = sum(by_reason.values()), scored // 90, scored // 25
    made = {
        "rows_in": scored + quarantined + duplicates + 12,
        "scored_rows": scored - already,
        "already": already,
        "quarantined": quarantined,
        "duplicates": duplicates,
        "no_answer": 12,
        "requests_scored": scored - already,
        "files": 9,
        "by_reason": by_reason,
        "by_format": {"openai": scored // 2, "sgpu": scored - scored // 2},
    }
    return Accounting(**{**made, **changes})


def summary(
    day: date,
    today: Sketch,
    past: PastDays | None = None,
    training: TrainingProfile | None = None,
    account: Accounting | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """What stands in summary.json, through JSON."""
    account, past = account or accounting(today.rows), past or PastDays()
    thresholds = Thresholds()
    verdict = judge_day(today, past.sketches, training, account, thresholds, past.accountings)
    content = {
        "format": 1,
        "date": day.isoformat(),
        "run_key": "3f0c" * 8,
        "scorer": {"label": "sgpu/3", "uri": "models:/sgpu@champion", "sha256": "ab12" * 16},
        "challenger": {"label": "sgpu/4", "uri": "models:/sgpu@challenger", "sha256": "cd34" * 16},
        "snapshot": {"files": 9, "bytes": 41_234_567, "sha256": "ef56" * 16},
        "formats": dict(account.by_format),
        "accounting": account.to_json(),
        "sketch": today.to_json(),
        "verdict": verdict.to_json(),
        "started": f"{day + timedelta(days=1)}T02:00:03+00:00",
        "finished": f"{day + timedelta(days=1)}T02:04:41+00:00",
        "seconds": 278.1,
        "code_version": "0.1.0",
        "settings": {"logs": "s3://logs/chat", "out": "s3://scores/chat", "date": day.isoformat()},
        "thresholds": thresholds.model_dump(mode="json"),
        "quarantine": {
            "refusal": [
                {
                    "file": f"dt={day}/part-0001.jsonl.gz",
                    "line": line,
                    "detail": "all answers are refusals",
                }
                for line in (17, 204, 391)
            ],
            "not_json": [{"file": f"dt={day}/part-0004.jsonl", "line": 88, "detail": "Expecting ',' at 212"}],
        },
        "tracked": True,
    }
    if training is not None:
        content["training"] = {"histogram": training.histogram.tolist(), "rows": training.held_out_rows}
    return json.loads(json.dumps({**content, **changes}))  # type: ignore[no-any-return]


def past_days(
    days: int = 28, rows: int = 400, gaps: tuple[int, ...] = (), unjudged: bool = False, **changes: Any
) -> PastDays:
    """``days`` days before TODAY but for ``gaps`` (days back), each judged against those before it."""
    trail = PastDays()
    for back in range(days, 0, -1):
        if back in gaps:
            continue
        day = TODAY - timedelta(days=back)
        made = sketch(rows + 9 * (back % 7), 1000 + back, **changes)
        past = PastDays() if unjudged else trail
        trail = PastDays((*trail.days, PastDay.of(summary(day, made, past))))
    return trail
