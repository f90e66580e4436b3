"""Files and folders appear whole, whoever else writes them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from sgpu.storage.whole import draft_of_file, draft_of_folder, keep_first, replace_file, replace_folder


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A place; that nothing else is left beside it is checked at the end."""
    yield tmp_path / "place"
    assert {path.name for path in tmp_path.iterdir()} <= {"place"}


def folder_of(path: Path, name: str) -> Path:
    path.mkdir(exist_ok=True)
    (path / name).write_text(name)
    return path


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_threads_of_a_process_that_write_one_file_do_not_disturb_each_other(place: Path) -> None:
    payloads, together = [bytes([number]) * 100_000 for number in range(2)], Barrier(2)

    def write(payload: bytes) -> None:
        together.wait(timeout=30)
        for _ in range(200):
            replace_file(place, payload)
            assert place.read_bytes() in payloads

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write, payload) for payload in payloads]:
            done.result()


def test_what_fails_half_way_leaves_the_file_as_it_was(place: Path) -> None:
    place.write_text("before")
    with pytest.raises(RuntimeError), draft_of_file(place) as draft:
        draft.write_text("half")
        raise RuntimeError
    assert place.read_text() == "before"


def test_what_fails_half_way_leaves_no_folder(place: Path) -> None:
    with pytest.raises(RuntimeError), draft_of_folder(place) as draft:
        folder_of(draft, "half")
        raise RuntimeError
    assert not place.exists()


def test_a_replaced_folder_has_nothing_of_the_one_before(place: Path) -> None:
    folder_of(place, "before")
    with draft_of_folder(place) as draft:
        replace_folder(folder_of(draft, "after"), place)
    assert names_in(place) == ["after"]


def test_of_two_folders_the_first_stays(place: Path) -> None:
    folder_of(place, "first")
    with draft_of_folder(place) as draft:
        keep_first(folder_of(draft, "second"), place, holds="first")
    assert names_in(place) == ["first"]


def test_a_folder_that_is_not_complete_is_not_taken_for_the_first(place: Path) -> None:
    folder_of(place, "something")
    with draft_of_folder(place) as draft, pytest.raises(OSError, match="not empty"):
        keep_first(folder_of(draft, "second"), place, holds="description")
