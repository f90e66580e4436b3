"""One run at a time in a place, with an object store in which only one writer makes the next commit."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from sgpu.errors import HeldError, StageError
from sgpu.runtime import lock
from sgpu.runtime.lock import Lease, run_lock
from sgpu.storage.location import Location
from tests.object_store import ObjectStore


def folder(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return tmp_path / name


def test_a_second_run_in_a_folder_is_refused_and_a_later_one_is_not(tmp_path: Path) -> None:
    with (
        run_lock(Location.of(tmp_path), tmp_path),
        pytest.raises(HeldError, match="another run is working"),
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
        pytest.raises(HeldError, match=r"process \d+ on .* UTC"),
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
        except HeldError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        taken = list(pool.map(take, leases))
    assert taken.count(True) == 1
    leases[taken.index(True)].give_back()


# Of a lease in these tests: on a busy machine a second passes between two lines.
BRIEF_S = 4.0


def dead(root: Location, owner: str, seconds: float) -> None:
    """Leave the lease of a run that was killed."""
    lease = Lease(root, owner, seconds)
    lease.take()
    lease._stop.set()
    lease._renewer.join()


def test_the_lease_of_a_dead_run_ends(object_store: ObjectStore) -> None:
    root = Location.of(object_store.uri("run"))
    dead(root, "elsewhere", BRIEF_S)
    lease = Lease(root, "here")
    with pytest.raises(HeldError, match="the lock ends at"):
        lease.take()
    time.sleep(BRIEF_S + 0.1)
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
    lease = Lease(root, "here", BRIEF_S)
    lease.take()
    time.sleep(1.5 * BRIEF_S)
    lease.check()
    with pytest.raises(HeldError):
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


def answer_lost(monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[int]:
    """Let every second commit land, and its writer hear of an error; gives the versions of those."""
    commit, versions, count = DeltaTable.create_write_transaction, list[int](), itertools.count(1)

    def lost(delta: DeltaTable, *arguments: object, **named: object) -> None:
        commit(delta, *arguments, **named)
        if next(count) % 2 == 0:
            versions.append(delta.version())
            raise error

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lost)
    return versions


@pytest.mark.parametrize("error", [OSError("connection reset"), CommitFailedError("it exists already")])
def test_a_renewal_whose_answer_was_lost_is_the_runs_own(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    root = Location.of(object_store.uri("run"))
    lease = Lease(root, "here", BRIEF_S)
    with monkeypatch.context() as storage:
        lost = answer_lost(storage, error)
        lease.take()
        deadline = time.monotonic() + 20
        while len(lost) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        lease.check()
    assert len(lost) >= 2
    with pytest.raises(HeldError):
        Lease(root, "elsewhere").take()
    lease.give_back()
    other = Lease(root, "elsewhere")
    other.take()
    other.give_back()


def test_a_process_that_has_the_same_working_folder_elsewhere_is_another_run(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Location.of(object_store.uri("run"))
    lease = Lease(root, "shared", BRIEF_S)
    lease.take()
    with monkeypatch.context() as there:
        there.setattr(socket, "gethostname", lambda: "there")
        other = Lease(root, "shared", 300.0)
    other.take()
    with pytest.raises(StageError, match="another run has taken"):
        until(lease.check)
    other.check()
    other.give_back()


def until(check: Callable[[], None]) -> None:
    """Call it until it raises, for some seconds."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        check()
        time.sleep(0.05)


def test_who_waits_gets_the_place_when_it_is_given_back(
    object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "POLL_S", 0.05)
    root, told = Location.of(object_store.uri("run")), list[str]()
    here, there = folder(tmp_path, "here"), folder(tmp_path, "there")

    def wait() -> float:
        with run_lock(root, there, wait=told.append):
            return time.monotonic()

    with ThreadPoolExecutor(1) as pool:
        with run_lock(root, here):
            later = pool.submit(wait)
            time.sleep(1.0)
            assert not later.done()
            given_back = time.monotonic()
        assert later.result(timeout=20) > given_back
    assert len(told) == 1 and "waiting: another run (process" in told[0]
