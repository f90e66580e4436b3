"""The first step alone: from the sources of a study's data sets to our own shards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sgpu.errors import QuarantineError
from sgpu.runtime.lock import run_lock
from sgpu.stages.questions import prepare_questions
from sgpu.stages.run import open_run
from sgpu.storage.store import Published
from sgpu.study.benchmark import load_study


def prepare_data(study_file: Path, out: Path | str | None, overrides: Sequence[str]) -> None:
    """Prepare every data set of the study in its folder and print what was granted.

    Raises UsageError where a source cannot be found, QuarantineError, after all of it, if more rows were
    rejected than the study allows.
    """
    study = load_study(study_file, overrides)
    run = open_run(study, out)
    with run_lock(run.root, run.out):
        published = [prepare_questions(run, dataset.name) for dataset in study.datasets]
    Console().print(granted_table(published))
    print(run.root)
    _check_rejected(published, study.bounds.quarantined)


def granted_table(published: Sequence[Published]) -> Table:
    """Requested and granted sizes of each split, with what makes two machines' splits comparable."""
    table = Table(box=None, pad_edge=False)
    for name in ("data set", "revision", "split", "requested", "granted", "ids sha256", "rejected"):
        table.add_column(name, justify="right" if name in {"requested", "granted", "rejected"} else "left")
    for shards in published:
        manifest = shards.manifest
        for i, row in enumerate(manifest.get("granted", [])):
            first = i == 0
            hashes = manifest.get("ids_sha256", {})
            table.add_row(
                row["dataset"] if first else "",
                str(manifest.get("revision", ""))[:16] if first else "",
                row["split"],
                "" if row["requested"] is None else f"{row['requested']:,}",
                f"{row['granted']:,}",
                str(hashes.get(row["split"], ""))[:12],
                str(shards.n_rejected) if first else "",
            )
    return table


def _check_rejected(published: Sequence[Published], bound: float) -> None:
    for shards in published:
        rejected = shards.n_rejected
        if rejected > bound * (shards.rows + rejected):
            raise QuarantineError(
                f"everything is prepared, but {rejected} rows of {shards.partition} were rejected, more than "
                f"the bound of {bound:.0%}. {shards.table}'s manifest lists them with their reasons; "
                "bounds.quarantined in the study file sets the bound."
            )
