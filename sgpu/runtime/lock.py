"""One run at a time in a place: a file lock on this machine, and in object storage a lease that is renewed.

The lease is a Delta log without rows. Each commit names an owner and an end, and only one writer can make the
next commit, so taking, renewing and giving back are all one conditional write. A run that dies without giving
it back keeps others out until the end; on its own machine the file lock shows at once that it is dead.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from filelock import FileLock, Timeout

from sgpu.errors import HeldError, StageError
from sgpu.storage.delta_log import commit, open_or_create, open_table
from sgpu.storage.location import Location

FILE = ".lock"
OWNER = ".owner"
# Long enough for a storage that is out of reach for a while, short enough to wait for.
LEASE_S = 300.0
# Between two looks at a place that another run holds.
POLL_S = 2.0
SCHEMA = pa.schema([pa.field("none", pa.string())])


@contextmanager
def run_lock(
    root: Location, working: Path, wait: Callable[[str], None] | None = None
) -> Iterator[Callable[[], None]]:
    """Keep other runs out of ``root``; yields a check that raises StageError if another run has taken it.

    ``working`` is the local folder that goes with it. Where another run is there, raises HeldError, or tells
    ``wait`` and waits.
    """
    with local_lock(root, working, wait):
        if root.is_local:
            yield lambda: None
            return
        lease = Lease(root, _owner(working))
        _enter(lease.take, wait)
        try:
            yield lease.check
        finally:
            lease.give_back()


@contextmanager
def local_lock(root: Location, working: Path, wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Keep other runs of this machine out of ``root``, as `run_lock` does, by a lock in ``working`` alone."""
    lock = FileLock(working / FILE, thread_local=False)  # an orchestrator may let go of it elsewhere
    _enter(lambda: _take(lock, root), wait)
    try:
        yield
    finally:
        lock.release()


def _enter(enter: Callable[[], None], wait: Callable[[str], None] | None) -> None:
    """Call ``enter`` until it gets in; without ``wait`` raise its HeldError at once."""
    announced = False
    while True:
        try:
            return enter()
        except HeldError as held:
            if wait is None:
                raise
            if not announced:
                wait(f"waiting: {held}")
            announced = True
            time.sleep(POLL_S)


def _take(lock: FileLock, root: Location) -> None:
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise HeldError(
            f"another run is working in {root}. Wait for it, or give this one another --out."
        ) from None


def _owner(working: Path) -> str:
    """The name of all runs that share this working folder, of which its file lock lets one live."""
    path = working / OWNER
    if not path.is_file():
        path.write_text(uuid.uuid4().hex)
    return path.read_text()


@dataclass(frozen=True)
class Holder:
    """Who holds a place, and until when (seconds since 1970; 0: given back)."""

    owner: str
    host: str
    pid: int
    until: float


class Lease:
    """A place in object storage, held until `give_back` by renewing it in the background."""

    def __init__(self, root: Location, owner: str, seconds: float = LEASE_S) -> None:
        self._root, self._seconds = root, seconds
        self._folder = root / FILE
        self._me = Holder(owner, socket.gethostname(), os.getpid(), 0.0)
        self._version, self._until = -1, 0.0
        self._lost = False
        self._stop = threading.Event()
        self._renewer = threading.Thread(target=self._renew, daemon=True, name="lease")

    def take(self) -> None:
        """Raises HeldError if another run holds the place or takes it at the same moment."""
        delta = open_or_create(self._folder, SCHEMA)
        holder = self._holder(delta.version())
        if holder is not None and holder.owner != self._me.owner and holder.until > time.time():
            raise HeldError(
                f"another run (process {holder.pid} on {holder.host}) is working in {self._root}. Wait for "
                "it, or give this one another --out. If it is dead, the lock ends at "
                f"{time.strftime('%H:%M:%S', time.gmtime(holder.until))} UTC."
            )
        if not self._commit(delta, self._seconds):
            raise HeldError(
                f"another run has just started in {self._root}. Wait for it, or use another --out."
            )
        self._renewer.start()

    def check(self) -> None:
        """Raise StageError if the place is no longer ours."""
        # A machine that slept knows by its clock, before its renewer wakes.
        if self._lost or time.time() > self._until:
            raise StageError(
                f"another run has taken {self._root}, or it was out of reach for {self._seconds:.0f} s. "
                "What is finished is kept: the same command goes on from there when that run has ended."
            )

    def give_back(self) -> None:
        """Let others in; where the storage is out of reach the lease simply ends."""
        self._stop.set()
        self._renewer.join()
        with suppress(StageError):
            if not self._lost and (delta := self._mine()) is not None:
                self._commit(delta, 0.0)

    def _renew(self) -> None:
        while not self._stop.wait(self._seconds / 5):
            with suppress(StageError):
                delta = self._mine()
                if delta is None or not self._commit(delta, self._seconds):
                    self._lost = True
                    return
            if time.time() > self._until:
                self._lost = True
                return

    def _mine(self) -> DeltaTable | None:
        """The log, if nobody else has written to it since.

        A newer commit of this process is one of which the storage's answer was lost.
        """
        delta = open_table(self._folder)
        if delta is not None and delta.version() != self._version:
            holder = self._holder(delta.version())
            if holder is None or replace(holder, until=0.0) != self._me:
                return None
            self._version, self._until = delta.version(), holder.until
        return delta

    def _holder(self, version: int) -> Holder | None:
        content = (self._folder / "_delta_log" / f"{version:020d}.json").read_bytes()
        for line in content.splitlines():
            if content := json.loads(line).get("commitInfo", {}).get("sgpu_lease"):
                return Holder(**json.loads(content))
        return None

    def _commit(self, delta: DeltaTable, seconds: float) -> bool:
        """Whether this was the next commit; where the storage says no, the log is asked who it was of."""
        holder = replace(self._me, until=time.time() + seconds if seconds else 0.0)
        version = delta.version() + 1
        lease = {"sgpu_lease": json.dumps(asdict(holder))}
        # The same transaction in both makes two commits upon one version conflict.
        if not commit(self._root, delta, [], ["lease"], version, lease, retries=0):
            # A request that is tried again after its answer was lost finds its own first try there.
            return self._mine() is not None and self._until == holder.until
        self._version, self._until = version, holder.until
        return True
