"""Answers of any length, number and script: scored as the model itself would, or refused with a reason."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from sgpu.encoders.spectra import spectra_by_set_size
from sgpu.fitted.model import FittedModel
from tests.chaos.night import Night
from tests.chaos.outcome import DAY, Tables, Wanted, compared, summary
from tests.chaos.tally import Tally

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
SCORED = {
    "nul": ["Paris\x00", "Paris", "\x00", "Lyon\x00\x00Paris"],
    "controls": ["a\x1b[31mb", "\x07", "\x08\x08", "\x7f"],
    "right-to-left": ["\u200fباريس\u200e", "פריז", "\u202eParis\u202c", "باريس"],
    "emoji": [FAMILY, "\U0001f1eb\U0001f1f7", FAMILY * 50, "\U0001f44d\U0001f3fd"],
    "combining": ["e\u0301" * 30, "é" * 30, "Z" + "\u0335\u0321\u034f" * 200, "ﷺ"],
    "line separators": ["a\u2028b", "a\u2029b", "a\x85b", "a\r\nb\rc"],
    "byte order marks": ["\ufeffParis", "Paris\ufeff", "\ufffe", "\uffff"],
    "spaces": [" Paris ", "Paris\t", "\u3000Paris", "\u00a0Paris"],
    "looks like code": [
        "<script>alert(1)</script>",
        "{{7*7}}",
        "'; DROP TABLE scores;--",
        "${jndi:ldap://x}",
    ],
    "longest": ["x" * 100_000, "Paris " * 16_666, "巴" * 100_000, "Paris"],
    "most": [f"answer {n % 7}" for n in range(1_000)],
    "two": ["Paris", "Lyon"],
    "all equal": ["Paris"] * 20,
}
REFUSED = {
    "one megabyte": (["x" * 2**20] * 4, "oversize_text"),
    "one megabyte among others": (["Paris", "y" * 2**20, "Paris"], "oversize_text"),
    "a character too long": (["x" * 100_001, "Paris"], "oversize_text"),
    "ten thousand answers": (["Paris"] * 10_000, "too_many_answers"),
    "an answer too many": (["Paris"] * 1_001, "too_many_answers"),
    "lone surrogate": (["Paris\ud83d", "Paris"], "bad_encoding"),
    "lone low surrogate": (["\udc00", "Paris"], "bad_encoding"),
}


def row(request_id: str, texts: list[str]) -> dict[str, Any]:
    samples = [{"index": i, "text": text, "finish_reason": "stop"} for i, text in enumerate(texts)]
    head = {"schema_version": 1, "request_id": request_id, "timestamp": f"{DAY}T10:00:00Z", "model": "m"}
    return {**head, "samples": samples}


def write(folder: Path) -> int:
    """Each set as UTF-8 and with escapes, what UTF-8 can hold also as Parquet; the number of rows."""
    folder.mkdir(parents=True)
    sets = {**SCORED, **{name: texts for name, (texts, _) in REFUSED.items()}}
    plain = [row(f"plain/{name}", texts) for name, texts in sets.items() if "surrogate" not in name]
    escaped = [row(f"escaped/{name}", texts) for name, texts in sets.items()]
    packed = [row(f"packed/{name}", texts) for name, texts in sets.items() if "surrogate" not in name]
    text = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in plain)
    (folder / "plain.jsonl").write_bytes(text.encode())
    (folder / "escaped.jsonl").write_text("".join(json.dumps(one) + "\n" for one in escaped))
    pl.DataFrame(packed).write_parquet(folder / "packed.parquet")
    return len(plain) + len(escaped) + len(packed)


def directly(folder: Path) -> dict[str, tuple[float, float, bool]]:
    """What the model says without the job; `predict` itself within what another padding changes."""
    model, sets = FittedModel.load(folder), list(SCORED.values())
    spectrum = model.require_spectrum()
    encoder = spectrum.encoder_here(fixed_batches=True)
    direct = spectrum.predict(spectra_by_set_size([model.set_read(texts) for texts in sets], encoder))
    np.testing.assert_allclose(direct.probability, model.predict(sets).probability, atol=2e-3)
    columns = (direct.probability.tolist(), direct.sd.tolist(), direct.unsafe.tolist())
    return dict(zip(SCORED, zip(*columns, strict=True), strict=True))


@pytest.fixture
def scored(models: list[Path], tmp_path: Path) -> tuple[Path, int, float]:
    """The folder of the tables, the rows, and the seconds it took."""
    rows = write(tmp_path / "logs" / f"dt={DAY}")
    started = time.monotonic()
    Night(str(tmp_path / "logs"), str(models[0])).score(tmp_path / "out")
    return tmp_path / "out", rows, time.monotonic() - started


def test_texts_of_every_kind_are_scored_as_the_model_scores_them_or_refused_with_a_reason(
    scored: tuple[Path, int, float], models: list[Path], tally: Tally
) -> None:
    out, rows, seconds = scored
    tables, counts = Tables.of(out), summary(out)["accounting"]
    ids = {f"{way}/{name}" for way in ("plain", "escaped", "packed") for name in SCORED}
    wanted = Wanted(Tables(pl.DataFrame({"request_id": sorted(ids)}), tables.quarantine), {"rows_in": rows})
    expected = directly(models[0])
    columns = ("probability", "std", "unsafe")
    scores = {one["request_id"]: tuple(one[name] for name in columns) for one in tables.scores.to_dicts()}
    # However a set came, bit for bit; the direct way has other sets beside it, which moves the last digits.
    same = [
        scores[f"{way}/{name}"] == scores[f"plain/{name}"] == pytest.approx(one, rel=1e-12)
        for way in ("escaped", "packed")
        for name, one in expected.items()
    ]
    found = compared(tables, counts, wanted)
    problems = [one for one in found.problems if one != "other scores"]
    tally.add(
        "texts of every length, number and script",
        type(found)(found.rows_in, found.lost, found.doubled, all(same), ()),
        seconds=seconds,
        times=rows,
        note="compared with FittedModel.predict",
    )
    assert problems == [] and all(same)


def test_what_cannot_be_scored_is_refused_with_its_reason(scored: tuple[Path, int, float]) -> None:
    refused = Tables.of(scored[0]).quarantine
    reasons = {
        (file.partition("/")[2], line): reason
        for file, line, reason in refused.select("file", "line", "reason").rows()
    }
    told = [reason for _, reason in REFUSED.values()]
    assert [reason for (file, _), reason in sorted(reasons.items()) if file == "escaped.jsonl"] == told
    assert [reason for (file, _), reason in sorted(reasons.items()) if file == "packed.parquet"] == told[:-2]
    assert len(reasons) == 3 * len(told) - 4


LINES = {
    "a line of 65 MB": (b'{"request_id": "' + b"x" * (65 * 2**20) + b'"}', "oversize_text"),
    "nested without end": (b"[" * 200_000, "bad_value"),
    "a number without end": (b'{"request_id": ' + b"9" * 5_000 + b"}", "bad_value"),
    "a key twice": (b'{"request_id": "a", "request_id": "b"}', "bad_value"),
    "no JSON number": (b'{"request_id": NaN}', None),
    "NUL bytes": (b"\x00" * 1_000, "not_json"),
    "another encoding": ('{"request_id": "a"}').encode("utf-16"),
}


def test_lines_that_would_break_a_parser_are_refused_one_by_one(
    models: list[Path], tmp_path: Path, tally: Tally
) -> None:
    folder = tmp_path / "logs" / f"dt={DAY}"
    folder.mkdir(parents=True)
    lines = [one if isinstance(one, bytes) else one[0] for one in LINES.values()]
    sound = [json.dumps(row(f"sound-{n}", ["Paris", "Lyon", "Paris"])).encode() for n in range(len(lines))]
    together = [line for pair in zip(lines, sound, strict=True) for line in pair]
    (folder / "hostile.jsonl").write_bytes(b"".join(line.replace(b"\n", b"") + b"\n" for line in together))
    started = time.monotonic()
    # A part of a file gets its share of the time: the long line is longer than a small part.
    Night(str(tmp_path / "logs"), str(models[0])).score(tmp_path / "out", split_mb=32)
    tables, counts = Tables.of(tmp_path / "out"), summary(tmp_path / "out")["accounting"]
    ids = pl.DataFrame({"request_id": [f"sound-{n}" for n in range(len(lines))]})
    found = compared(tables, counts, Wanted(Tables(ids, tables.quarantine), {"rows_in": len(together)}))
    tally.add(
        "lines that break parsers",
        type(found)(found.rows_in, found.lost, found.doubled, True, ()),
        seconds=time.monotonic() - started,
        times=len(lines),
    )
    reasons = dict(tables.quarantine.select("line", "reason").rows())
    for number, (name, line) in enumerate(LINES.items()):
        assert 2 * number + 1 in reasons, name
        if isinstance(line, tuple) and line[1]:
            assert reasons[2 * number + 1] == line[1], name
    assert [one for one in found.problems if one != "other scores"] == []
