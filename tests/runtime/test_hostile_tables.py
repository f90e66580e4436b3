"""A stage whose source table was tampered with runs no code: Ray Data's own reader refuses the column."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

from sgpu.errors import IntegrityError, StageError
from sgpu.storage.store import Published, Store
from tests.hostile_arrow import TYPE, swapped


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that is made if code runs; the stage's questions have a pickled column."""
    marker, write = tmp_path / "ran", Store.write

    def tampered(store: Store, *given: object) -> Published:
        published = write(store, *given)  # type: ignore[arg-type]
        [file] = map(Path, published.files)
        pq.write_table(swapped(pq.read_table(file), "position", marker), file)
        return published

    monkeypatch.setattr(Store, "write", tampered)
    # What the size in the log would tell is left out, so that the file comes to the reader.
    monkeypatch.setattr("sgpu.storage.store.check_sizes", lambda *given: None)
    return marker


def test_a_stage_names_the_file_and_the_column(tmp_path: Path, toy: ModuleType, marker: Path) -> None:
    with pytest.raises(
        IntegrityError, match=rf"{tmp_path}.*part-0\.parquet: the column 'position' is .*{TYPE}"
    ):
        toy.run(tmp_path)
    assert not marker.exists() and not (tmp_path / "calls").exists()


def test_rays_own_reader_runs_no_code_either(
    tmp_path: Path, toy: ModuleType, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgpu.runtime.dataflow.schema_of", lambda file: None)
    with pytest.raises(StageError) as caught:
        toy.run(tmp_path)
    assert f"columns stored as '{TYPE}'" in str(caught.value.__cause__)
    assert not marker.exists() and not (tmp_path / "calls").exists()
