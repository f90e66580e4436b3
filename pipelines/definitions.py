"""Dagster code location: `dagster dev -m pipelines.definitions` shows and runs the same graph.

The study is chosen by SGPU_STUDY (a study file) and SGPU_OUT (its output folder). SGPU_ADDRESS names the Ray
cluster that does the work (auto or host:port, on one of its nodes); without it Ray runs locally.
"""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg

from pipelines.assets import StudyResource, build
from sgpu.study.benchmark import load_study

QUICKSTART = Path(__file__).parent / "studies" / "quickstart.yaml"


def definitions(study_file: Path, out: str, address: str | None = None) -> dg.Definitions:
    """Assets, checks and the job of one study; ``out`` may be s3://bucket/prefix, which is no path."""
    study = load_study(study_file)
    assets, checks = build(study)
    return dg.Definitions(
        assets=assets,
        asset_checks=checks,
        jobs=[dg.define_asset_job("prepare_data", selection=dg.AssetSelection.groups("data"))],
        resources={"study": StudyResource(study=str(study_file), out=out, address=address)},
    )


_study_file = Path(os.environ.get("SGPU_STUDY", QUICKSTART))
defs = definitions(
    _study_file,
    os.environ.get("SGPU_OUT") or f"runs/{load_study(_study_file).name}",
    os.environ.get("SGPU_ADDRESS") or None,
)
