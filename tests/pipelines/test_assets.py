"""The assets of a study under Dagster: a backfill of several cells is one run, whose cells share a pool."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import dagster as dg

from pipelines.assets import StudyResource, build
from sgpu.runtime.shelves import UNKNOWN_PACE, Pace
from sgpu.storage.store import Partition
from sgpu.study.benchmark import load_study
from tests.pipelines.own_answers import response_sets, write_study

RANGE = "dagster/asset_partition_range"
STUDY = """
datasets:
  - {kind: responses, path: answers.jsonl, model: m, name: first}
  - {kind: responses, path: answers.jsonl, model: m, name: second}
methods: [sgpu, largest_eigenvalue]
tracking: {mlflow: none}
"""


def test_a_backfill_of_two_cells_is_one_run_whose_cells_share_an_encoder(tmp_path: Path) -> None:
    study, out = write_study(tmp_path, response_sets(12), STUDY), tmp_path / "out"
    assets, checks = build(load_study(study))

    class Watched(StudyResource):
        def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
            run = self.open()
            pools.extend((pool.stage, pool.stages) for pool in run.pools)
            encoding = SimpleNamespace(
                pool_name=f"encode {run.study.encoder.name}",
                partition=Partition.of(model="m", dataset="first"),
            )
            paces.append(run.pace(encoding))
            super().teardown_after_execution(context)

    pools: list[tuple[str, int]] = []
    paces: list[Pace] = []
    resources = {"study": Watched(study=str(study), out=str(out))}
    with dg.DagsterInstance.ephemeral() as instance:
        for names, first, last in (
            (["questions"], "first", "second"),
            (["responses", "labels", "spectra"], "first|m", "second|m"),
        ):
            done = dg.materialize(
                [*assets, *checks], selection=dg.AssetSelection.assets(*names), instance=instance,
                resources=resources, tags={f"{RANGE}_start": first, f"{RANGE}_end": last},
            )  # fmt: skip
            assert done.success
        cells = {dg.MultiPartitionKey({"model": "m", "dataset": name}) for name in ("first", "second")}
        assert instance.get_materialized_partitions(dg.AssetKey("spectra")) == cells
        checked = [one.check_name for one in done.get_asset_check_evaluations() if one.passed]
    assert ("judge", 2) in pools and ("encode", 2) in pools
    assert all(pace != UNKNOWN_PACE for pace in paces)  # shelves on GPUs are those of the plan
    assert set(checked) == {"rows_answered", "labels_known", "eigenvalue_sum"}
