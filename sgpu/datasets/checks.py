"""What a source must be before its rows are read: the columns and the number of rows that its card names."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from sgpu.datasets.base import Request
from sgpu.errors import DataError


def expect_columns(file: Path | str, found: Collection[str], wanted: Collection[str]) -> None:
    """Raise DataError that names both if a column that the loader reads is not there."""
    absent = sorted(set(wanted) - set(found))
    if absent:
        raise DataError(
            f"{file} has no column {', '.join(absent)}. Expected {', '.join(sorted(wanted))}; "
            f"found {', '.join(sorted(found)) or 'none'}. The source may have changed: fetch the revision "
            "that the card names, or correct the file."
        )


def expect_rows(dataset: str, what: str, found: int, expected: int, request: Request) -> None:
    """Raise DataError that names both numbers unless they are equal or the request does not mind."""
    if request.check_rows and found != expected:
        raise DataError(
            f"data set {dataset!r}: {what} has {found} rows, expected {expected}. The source has changed or "
            "the download is not complete: fetch it again, or set `check_rows: false` to take it as it is."
        )


def require_root(dataset: str, request: Request, raw: str) -> Path:
    """The folder that holds the source's files; DataError says what to put there."""
    if request.root is None:
        raise DataError(f"data set {dataset!r} needs `path`, a folder with its files. {raw}")
    if not request.root.is_dir():
        raise DataError(f"data set {dataset!r}: {request.root} is not a folder. {raw}")
    return request.root
