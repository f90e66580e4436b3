"""What stopped a stage or a night, as an error with a remedy."""

from __future__ import annotations

import errno
import re

from sgpu import errors
from sgpu.errors import SgpuError, StageError
from sgpu.storage.location import Location
from sgpu.storage.location import cause as cause_of

_DELIBERATE = re.compile(r"sgpu\.errors\.(?P<kind>\w+Error): (?P<message>.+)")
_FULL = re.compile("No space left on device|Disk quota exceeded")
_CLOSED = re.compile("Permission denied|Read-only file system")


def to_stage_error(error: BaseException, out: Location, work: str) -> SgpuError:
    """Return a deliberate error as it is, any other as one that says what stopped and what can be done."""
    root = cause if isinstance(cause := getattr(error, "cause", None), BaseException) else error
    if isinstance(root, SgpuError):
        return root
    text, number = str(root), getattr(root, "errno", None)
    if deliberate := _DELIBERATE.search(text):
        # Raised by a worker in another process, whose traceback is all that came back.
        kind: type[SgpuError] = getattr(errors, deliberate["kind"], StageError)
        return kind(deliberate["message"])
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")
    why = f"{type(root).__name__}: {last[:300]}."
    if "OutOfDiskError" in text or "OutOfDiskError" in type(root).__name__:
        why = (
            "no space left where Ray keeps its temporary files. Free some, or name another folder in "
            "RAY_TMPDIR."
        )
    elif number in (errno.ENOSPC, errno.EDQUOT) or _FULL.search(text):
        why = f"no space left in {out}. Free some, or choose another --out."
    elif number in (errno.EACCES, errno.EPERM, errno.EROFS) or _CLOSED.search(text):
        why = f"cannot write to {out}. Check its permissions."
    elif not out.is_local:
        why = cause_of(out.scheme, out.path, text) or why
    return StageError(f"{work} stopped: {why} What is finished is kept: the same command goes on from there.")
