"""What stopped a stage or a night, as an error with a remedy."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from sgpu.errors import DataError, SgpuError, StageError
from sgpu.runtime.explained import to_stage_error
from sgpu.storage.location import Location

OUT = Location.of(Path("/data/out"))


class Wrapped(Exception):
    """As Ray hands on what a task has raised."""

    def __init__(self, cause: Exception) -> None:
        super().__init__("a long remote traceback")
        self.cause = cause


def told(error: Exception) -> str:
    found = to_stage_error(error, OUT, "scoring")
    assert isinstance(found, SgpuError)
    return str(found)


def test_a_deliberate_error_is_told_as_it_was_meant() -> None:
    meant = DataError("labels.jsonl: row 2")
    assert to_stage_error(Wrapped(meant), OUT, "scoring") is meant


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_names_the_place(number: int) -> None:
    assert "no space left in /data/out. Free some" in told(OSError(number, "full"))
    assert "no space left in /data/out" in told(
        RuntimeError("IOError: No space left on device (os error 28)")
    )


def test_a_full_disk_of_ray_names_the_other_place() -> None:
    assert "RAY_TMPDIR" in told(RuntimeError("ray.exceptions.OutOfDiskError: local disk is full"))


def test_a_folder_that_cannot_be_written_says_so() -> None:
    assert "cannot write to /data/out. Check its permissions" in told(PermissionError(errno.EACCES, "denied"))


def test_anything_else_is_cut_to_its_last_line() -> None:
    message = told(ValueError("first line\n" + "x" * 1000))
    assert "ValueError: xxx" in message and len(message) < 600


def test_storage_that_does_not_answer_is_explained() -> None:
    place = Location.of("s3://bucket/out")
    found = to_stage_error(RuntimeError("Generic S3 error: error sending request"), place, "scoring")
    assert isinstance(found, StageError) and "the storage does not answer" in str(found)
