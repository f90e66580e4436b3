from __future__ import annotations

import hashlib

import pytest

from sgpu.scoring.buckets import Bucket, place_of, power_of_two

KEYS = [f"request {i}" for i in range(300)] + ["", "ü", "\ud800"]


def test_a_place_is_the_head_of_the_sha256() -> None:
    assert place_of("abc") == int(hashlib.sha256(b"abc").hexdigest()[:8], 16)


@pytest.mark.parametrize("of", [1, 2, 8, 128])
def test_every_key_is_in_exactly_one_bucket(of: int) -> None:
    for key in KEYS:
        assert sum(Bucket(number, of).holds(place_of(key)) for number in range(of)) == 1


def test_a_finer_cut_lies_whole_in_a_coarser_one() -> None:
    for key in KEYS:
        [fine] = [b for b in (Bucket(i, 32) for i in range(32)) if b.holds(place_of(key))]
        [coarse] = [b for b in (Bucket(i, 4) for i in range(4)) if b.holds(place_of(key))]
        assert fine.number in coarse.parts(32) and coarse.number in fine.parts(4)
        assert coarse.meets(fine) and fine.meets(coarse)
        assert coarse.covers(fine) and not fine.covers(coarse)


def test_buckets_apart_do_not_meet() -> None:
    assert not Bucket(0, 2).meets(Bucket(2, 4))
    assert not Bucket(0, 2).covers(Bucket(2, 4))


def test_a_file_tells_its_bucket_and_a_foreign_one_tells_none() -> None:
    assert Bucket.in_name(f"{Bucket(3, 16).name}-abc.parquet") == Bucket(3, 16)
    assert Bucket.in_name("part-00000-c000.snappy.parquet") is None


@pytest.mark.parametrize(("wanted", "parts"), [(0, 1), (1, 1), (1.01, 2), (4, 4), (5, 8)])
def test_the_number_of_buckets_is_rounded_up(wanted: float, parts: int) -> None:
    assert power_of_two(wanted) == parts
