"""Rows of the two tables, in an order that depends on nothing but their content."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from sgpu.scoring.models.scorer import Scored
from sgpu.scoring.plan import Plan
from sgpu.scoring.sets.dedupe import Candidate, Place, Refused, refusals
from sgpu.scoring.tables import QUARANTINE, SCORES


def score_table(
    candidates: Sequence[Candidate], scored: Sequence[Scored], plan: Plan, encoder: tuple[str, str]
) -> tuple[pa.Table, list[Refused]]:
    """The rows of what has a score, by request id, and those that no model could answer for.

    ``scored`` are the parts of a result for ``candidates`` in their order, ``encoder`` is name and sha256.
    """
    rows: list[dict[str, Any]] = []
    refused: list[Refused] = []
    left = iter(candidates)
    for part in scored:
        for place, problem in enumerate(part.problems):
            one = next(left)
            if problem is not None:
                refused += refusals(one, problem.reason, problem.detail)
            else:
                rows.append(_row(one, part, place))
    rows.sort(key=lambda row: (row["request_id"], row["model"] or ""))
    champion, challenger = plan.models.champion, plan.models.challenger
    same = {
        "scorer": champion.label,
        "scorer_sha256": champion.sha256,
        "encoder": encoder[0],
        "encoder_sha256": encoder[1],
        "shadow_scorer": None if challenger is None else challenger.label,
        "run_key": plan.key,
        "code_version": plan.code_version,
    }
    return _table(rows, SCORES.schema, same), refused


def quarantine_table(
    refused: Sequence[Refused], plan: Plan, file_and_line: Callable[[Place], tuple[str, int | None]]
) -> pa.Table:
    """The refused rows by file and line."""
    rows = []
    for one in refused:
        file, line = file_and_line(one.place)
        rows.append(
            {
                "file": file, "line": line, "request_id": one.request_id, "timestamp": one.timestamp,
                "model": one.model, "route": one.route, "reason": str(one.reason), "detail": one.detail,
            }
        )  # fmt: skip
    rows.sort(key=lambda row: (row["file"], row["line"] or 0, row["request_id"] or "", row["reason"]))
    return _table(rows, QUARANTINE.schema, {"run_key": plan.key, "code_version": plan.code_version})


def _row(one: Candidate, scored: Scored, place: int) -> dict[str, Any]:
    return {
        "request_id": one.request_id,
        "timestamp": one.timestamp,
        "model": one.model,
        "route": one.route,
        "n_used": int(scored.n_used[place]),
        "probability": float(scored.probability[place]),
        "std": float(scored.std[place]),
        "unsafe": scored.unsafe[place],
        "spectrum": scored.spectra[place].tolist(),
        "top_eigenvalue_share": float(scored.top_share[place]),
        "n_distinct": int(scored.n_distinct[place]),
        "status": one.status,
        "head": scored.heads[place],
        "label": one.label,
        "accepted": scored.accepted[place],
        "content_sha256": one.content,
        "members": None if one.members is None else list(one.members),
        "shadow_probability": _number(scored.shadow_probability[place]),
        "shadow_std": _number(scored.shadow_std[place]),
        "shadow_unsafe": scored.shadow_unsafe[place],
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _table(rows: Sequence[dict[str, Any]], schema: pa.Schema, same: dict[str, Any]) -> pa.Table:
    arrays = [
        pa.array([same[field.name]] * len(rows) if field.name in same else [row[field.name] for row in rows],
                 field.type)
        for field in schema
    ]  # fmt: skip
    return pa.Table.from_arrays(arrays, schema=schema)
