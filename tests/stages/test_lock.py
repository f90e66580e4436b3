"""One run at a time in a place, with an object store in which only one writer makes the next commit."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sgpu.errors import StageError, UsageError
from sgpu.location import Location
from sgpu.stages.lock import Lease, run_lock
from tests.object_store import ObjectStore


def folder(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return tmp_path / name


def test_a_second_run_in_a_folder_is_refused_and_a_later_one_is_not(tmp_path: Path) -> None:
    with (
        run_lock(Location.of(tmp_path), tmp_path),
        pytest.raises(UsageError, match="another run is working"),
        run_lock(Location.of(tmp_path), tmp_path),
    ):
        pass
    with run_lock(Location.of(tmp_path), tmp_path) as check:
        check()


def test_a_run_of_another_machine_is_refused_until_the_place_is_given_back(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    root = Location.of(object_store.uri("run"))
    here, there = folder(tmp_path, "here"), folder(tmp_path, "there")
    with (
        run_lock(root, here),
        pytest.raises(UsageError, match=r"process \d+ on .* UTC"),
        run_lock(root, there),
    ):
        pass
    with run_lock(root, there) as check:
        check()


def test_of_runs_that_start_at_once_one_gets_the_place(object_store: ObjectStore) -> None:
    root = Location.of(object_store.uri("run"))
    leases = [Lease(root, f"machine {number}") for number in range(6)]

    def take(lease: Lease) -> bool:
        try:
            lease.take()
        except UsageError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        taken = list(pool.map(take, leases))
    assert taken.count(True) == 1
    leases[taken.index(True)].give_back()


def dead(root: Location, owner: str, seconds: float) -> None:
    """Leave the lease of a run that was killed."""
    lease = Lease(root, owner, seconds)
    lease.take()
    lease._stop.set()
    lease._renewer.join()


def test_the_lease_of_a_dead_run_ends(object_store: ObjectStore) -> None:
    root = Location.of(object_store.uri("run"))
    dead(root, "elsewhere", 1.0)
    lease = Lease(root, "here")
    with pytest.raises(UsageError, match="the place is free at"):
        lease.take()
    time.sleep(1.1)
    lease.take()
    lease.give_back()


def test_a_machine_does_not_wait_for_its_own_dead_run(object_store: ObjectStore, tmp_path: Path) -> None:
    root = Location.of(object_store.uri("run"))
    with run_lock(root, tmp_path):
        pass
    dead(root, (tmp_path / ".owner").read_text(), 300.0)
    with run_lock(root, tmp_path) as check:
        check()


def test_a_lease_is_renewed_while_the_run_lives(object_store: ObjectStore) -> None:
    root = Location.of(object_store.uri("run"))
    lease = Lease(root, "here", 1.0)
    lease.take()
    time.sleep(2.0)
    lease.check()
    with pytest.raises(UsageError):
        Lease(root, "elsewhere").take()
    lease.give_back()


def test_a_run_whose_place_was_taken_is_told(object_store: ObjectStore) -> None:
    root = Location.of(object_store.uri("run"))
    lost = Lease(root, "here", 1.0)
    lost.take()
    object_store.fail(403, 10_000, ["PUT"])  # it cannot renew, as if its machine slept
    time.sleep(1.3)
    object_store.fail(403, 0)
    other = Lease(root, "elsewhere")
    other.take()
    with pytest.raises(StageError, match="out of reach for 1 s"):
        lost.check()
    lost.give_back()
    other.check()
    other.give_back()
