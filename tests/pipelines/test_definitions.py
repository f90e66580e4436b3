"""What Dagster's daemon is told by the environment."""

from __future__ import annotations

import importlib
from pathlib import Path

import dagster as dg
import pytest

from pipelines import definitions
from sgpu.storage.location import Location


@pytest.mark.parametrize(("given", "address"), [("auto", "auto"), ("", None)])
def test_the_daemon_works_on_the_cluster_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, address: str | None
) -> None:
    monkeypatch.setenv("SGPU_OUT", str(tmp_path))
    monkeypatch.setenv("SGPU_ADDRESS", given)
    resources = importlib.reload(definitions).defs.resources
    assert resources is not None and resources["study"].address == address


@pytest.mark.parametrize("place", ["s3://bucket/prefix/runs", "gs://bucket/runs", "folder/runs"])
def test_the_place_of_the_results_is_passed_on_as_it_was_given(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("SGPU_OUT", place)
    resources = importlib.reload(definitions).defs.resources
    assert resources is not None and Location.of(resources["study"].out) == Location.of(place)


def test_dagster_dev_in_the_repository_shows_no_sign_up_dialogue(tmp_path: Path) -> None:
    from dagster._core.instance.ref import InstanceRef

    root = Path(__file__).resolve().parents[2]
    # As `dagster dev` does it without a DAGSTER_HOME.
    with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(tmp_path), config_dir=str(root))) as instance:
        assert not instance.nux_enabled and not instance.telemetry_enabled
