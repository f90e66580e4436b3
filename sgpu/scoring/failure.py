"""What stopped a run, for a person: cause, place and remedy instead of a worker's traceback."""

from __future__ import annotations

import errno
import re

from sgpu import errors
from sgpu.errors import SgpuError, StageError
from sgpu.storage.errors import cause
from sgpu.storage.location import Location

KEPT = "What is finished is kept: the same command goes on from there."
_FULL = (errno.ENOSPC, errno.EDQUOT)
_DELIBERATE = re.compile(r"sgpu\.errors\.(?P<kind>\w+Error): (?P<message>.+)")


def explained(error: BaseException, out: Location, what: str) -> SgpuError:
    """The error as one that is told: a deliberate one as it was meant, any other with what can be done."""
    root = _root(error)
    if isinstance(root, SgpuError):
        return root
    text = str(root)
    if found := _DELIBERATE.search(text):
        kind = getattr(errors, found["kind"], StageError)
        return kind(found["message"])
    number = getattr(root, "errno", None)
    if number in _FULL or "No space left on device" in text or "Disk quota exceeded" in text:
        return StageError(
            f"{what} stopped: no space left in {out}. Free some, or choose another --out. {KEPT}"
        )
    if "OutOfDiskError" in text or "OutOfDiskError" in type(root).__name__:
        return StageError(
            f"{what} stopped: no space left where Ray keeps its temporary files. Free some, or name another "
            f"folder in RAY_TMPDIR. {KEPT}"
        )
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StageError(f"{what} stopped: cannot write to {out}. Check its permissions. {KEPT}")
    if not out.is_local and (why := cause(out.scheme, out.path, text)):
        return StageError(f"{what} stopped: {why} {KEPT}")
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")
    return StageError(f"{what} stopped: {type(root).__name__}: {last[:300]}. {KEPT}")


def _root(error: BaseException) -> BaseException:
    """What a worker raised, without what Ray has wrapped around it."""
    inner = getattr(error, "cause", None)
    return inner if isinstance(inner, BaseException) else error
