"""What keeps other users of a machine away from a local Ray: a folder of its own, loopback, a token.

Ray makes its folders writable for everyone and listens on all interfaces, for machines that belong together.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sgpu.errors import UsageError

LOOPBACK = "127.0.0.1"
# A socket's path has at most 107 bytes, of which Ray's own folders and names take 64.
LONGEST_PARENT = 26
# Without clusters Ray puts every port on loopback, as it always does on macOS.
_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
REMOVALS = 10


def private_folder() -> Path:
    """A new folder for one session, which nobody else may enter; in RAY_TMPDIR where that is set.

    Raises UsageError for a RAY_TMPDIR that is too long or cannot be written to.
    """
    named = os.environ.get("RAY_TMPDIR")
    if named and len(named) > LONGEST_PARENT:
        raise UsageError(
            f"RAY_TMPDIR {named} has more than {LONGEST_PARENT} characters: the paths of Ray's sockets would "
            "be too long. Name another folder"
        )
    usual = tempfile.gettempdir()
    parent = named or (usual if len(usual) <= LONGEST_PARENT else "/tmp")
    try:
        return Path(tempfile.mkdtemp(prefix="sgpu-", dir=parent))
    except OSError as error:
        raise UsageError(
            f"Ray's files cannot be written to {parent}: {error.strerror}; set RAY_TMPDIR to another folder"
        ) from error


def remove(folder: Path) -> None:
    """Remove a session's folder, into which processes that are just ending may still write."""
    for _ in range(REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


@contextmanager
def on_loopback() -> Iterator[None]:
    """What Ray starts meanwhile listens on loopback alone."""
    from ray._private import ray_constants

    before, allowed = os.environ.get(_CLUSTERS), ray_constants.ENABLE_RAY_CLUSTER
    os.environ[_CLUSTERS], ray_constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = allowed
        if before is None:
            del os.environ[_CLUSTERS]
        else:
            os.environ[_CLUSTERS] = before


def private_token() -> None:
    """See that Ray finds a token that only this user can read; one is made where there is none.

    Raises UsageError for a token that others can read, and where none can be written.
    """
    # Without a mode, as where Ray was imported first, it takes tokens, and makes one that everyone can read.
    if os.environ.get("RAY_AUTH_MODE", "token") != "token" or "RAY_AUTH_TOKEN" in os.environ:
        return
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    if path.exists():
        if (mode := path.stat().st_mode & 0o777) & 0o077:
            raise UsageError(
                f"{path} holds the token of Ray, with which code can be run, and others can read it (mode "
                f"{mode:04o}). Delete it: a new one is made that only you can read."
            )
    elif not named:
        _write_token(path)


def _write_token(path: Path) -> None:
    """Where Ray looks for it: Ray's own would be readable by every user.

    Ray reads the token once a process, so a second place would part this session from one started before it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:  # made 0600
            file.write(secrets.token_hex(32))
        try:
            os.link(file.name, path)  # whole, and only where no other process was first
        except FileExistsError:
            pass
        finally:
            Path(file.name).unlink()
    except OSError as error:
        raise UsageError(
            f"Ray's token cannot be written to {path}: {error.strerror}; "
            "set RAY_AUTH_TOKEN_PATH to a file that holds one"
        ) from error
