"""Hashes that stand in what was stored before: not one of them may change."""

from __future__ import annotations

import hashlib
from datetime import date
from pathlib import Path

import pytest

from sgpu.datasets.split import ids_sha256, row_sha256
from sgpu.hashing import CHILD_STRIDE, derived_seed
from sgpu.logs.rows.question import canonical, sha256_of
from sgpu.logs.snapshot import LogFile, Snapshot
from sgpu.storage.location import Location
from sgpu.storage.store import fingerprint

CONTENT = {"b": [1, 2.5, None, True], "a": {"ä": "Zürich 東京", "path": "x/y"}, "": "\n"}
ODD = {"half": "\ud800", "bytes": b"\x00\xff", "day": date(2026, 3, 1)}

CANONICAL = '{"":"\\n","a":{"path":"x/y","\\u00e4":"Z\\u00fcrich \\u6771\\u4eac"},"b":[1,2.5,null,true]}'


@pytest.mark.parametrize(
    ("made", "sha256"),
    [
        (lambda: fingerprint(CONTENT), "2a62dda774053cedfc9c3d6fa3a7025886ad30f8bb5da9b3542ce8f66fba3d9c"),
        (
            lambda: fingerprint({"folder": Path("/tmp/x"), "day": date(2026, 3, 1)}),
            "72b87cf9246741012531c61ef54b98eb1409e85077ff002e02e124a531e66e4f",
        ),
        (lambda: sha256_of(CONTENT), "0f5793026c42452eb2e300a072ac6079209de8fcbb5b17255845109149b05763"),
        (lambda: sha256_of(ODD), "d9a9d14fab1491b38fd63bcfa8211fa37bbf9d246d6b59ba1c601119bcfd68e7"),
        (
            lambda: row_sha256("Wo? \ud800", ("Zürich",), None),
            "791e45666ca3f5c5af7a0ccedfe8852f219c1843c7be031ba99672b489a0d9f5",
        ),
        (
            lambda: ids_sha256(["b", "ä", "a"]),
            "fe2bb7ac6907715be151aa335d042e1175efb620f2e9a101f5310fad5b63a062",
        ),
        (
            lambda: Snapshot((LogFile("ä.jsonl", 3, 4, "e", True, 5),), True, "2026-03-01").sha256,
            "84194970fba376145654b4fc0a28424ef955a5ea5f5e3644908fa875c47285cc",
        ),
    ],
    ids=[
        "stage",
        "stage of other types",
        "request",
        "request of other types",
        "row",
        "ids",
        "logs",
    ],
)
def test_a_hash_is_that_of_the_first_version(made, sha256: str) -> None:  # type: ignore[no-untyped-def]
    assert made() == sha256


def test_the_canonical_text_of_a_request_is_that_of_the_first_version() -> None:
    assert canonical(CONTENT) == CANONICAL


def test_the_bytes_of_work_files_are_those_of_the_first_version(tmp_path: Path) -> None:
    (Location.of(tmp_path / "w" / "a.json")).write_json(CONTENT)
    assert (tmp_path / "w" / "a.json").read_text() == CANONICAL


def test_seeds_of_folds_and_nights_are_those_of_the_first_version() -> None:
    digest = int.from_bytes(hashlib.sha256(b"0\x1fm\x1fq1").digest()[:8], "big")
    assert derived_seed("0", "m", "q1") == digest % 2**21 * 1024


def test_hardly_two_of_many_questions_have_the_same_seed_for_sampling() -> None:
    seeds = {bits: {derived_seed(0, number, bits=bits) for number in range(100_000)} for bits in (31, 53)}
    assert len(seeds[31]) < 98_000 and len(seeds[53]) == 100_000
    assert all(seed % CHILD_STRIDE == 0 and seed + CHILD_STRIDE <= 2**53 for seed in seeds[53])
