"""Runs one stage over one partition: resumable inside, exactly once outside.

fingerprint -> already published? done
pinned read -> blocks of K rows -> actor pool on pyarrow tables -> checkpointed Parquet
every input id once in the output -> one Delta transaction
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from contextlib import suppress

import pyarrow as pa

from sgpu import errors
from sgpu.errors import SgpuError, StageError
from sgpu.location import Location
from sgpu.parquet_files import for_each, read_rows, row_count
from sgpu.provenance import code_version
from sgpu.stages.dataflow import dataflow, ledger_actor, write
from sgpu.stages.metrics import MeteredLedger
from sgpu.stages.progress import Progress
from sgpu.stages.session import ray_session
from sgpu.stages.stage import Outcome, Stage
from sgpu.storage_errors import cause
from sgpu.store import Store, fingerprint

_DELIBERATE = re.compile(
    r"sgpu\.errors\.(?P<kind>UsageError|MissingDependencyError|IntegrityError): (?P<message>.+)"
)


def run_stage(store: Store, stage: Stage, progress: Progress, address: str | None = None) -> Outcome:
    """Bring the partition to the state that the stage's settings describe; do nothing if it is there.

    Raises StageError if a row is lost or doubled, or the disk fails; what is finished is kept, and the
    same call goes on from there.
    """
    key = fingerprint(stage.content)
    if current := store.unchanged(stage.table.name, stage.partition, key):
        return Outcome(stage.name, current, reused=True)
    output = store.staging(stage.table.name, stage.partition, key)
    checkpoint = store.checkpoint(stage.table.name, stage.partition, key)
    started = time.monotonic()
    before = _finished_rows(output)
    counts: dict[str, float] = {}
    working = 0.0
    # A run that died between its last write and the commit has nothing left to compute.
    if before < stage.source.rows or any(".pending" in file.name for file in checkpoint.files()):
        counts, working = _run_blocks(stage, output, checkpoint, before, progress, address)
    rows, files = _check_complete(stage, output)
    seconds = time.monotonic() - started
    manifest = {
        **stage.content,
        "code_version": code_version(),
        "rows": rows.num_rows,
        "rows_by_status": dict(Counter(rows["status"].to_pylist())),
        "seconds": round(seconds, 3),
        "working_seconds": round(working, 3),
        "counts": counts,
    }
    store.publish(stage.table, stage.partition, key, manifest, files)
    checkpoint.delete()  # only now: it is what makes a retry safe
    if checkpoint.is_local:
        with suppress(OSError):
            os.removedirs(checkpoint.local.parent)  # the folders above it, as far as they are empty
    published = store.require(stage.table.name, stage.partition)
    return Outcome(stage.name, published, False, before, seconds, working, counts)


def _finished_rows(folder: Location) -> int:
    """Rows in whole files; a file that was being written when the process died has no footer."""

    def rows(file: Location) -> int:
        try:
            return row_count(file)
        except pa.ArrowInvalid:
            return 0

    return sum(for_each(rows, folder.files(".parquet")))


def _run_blocks(
    stage: Stage,
    output: Location,
    checkpoint: Location,
    before: int,
    progress: Progress,
    address: str | None,
) -> tuple[dict[str, float], float]:
    output.make_folder()
    checkpoint.make_folder()
    with ray_session(address):
        import ray

        labels = {**dict(stage.partition.values), "stage": stage.name}
        ledger = ledger_actor(MeteredLedger, labels)
        with progress.stage(f"{stage.name} {stage.partition}", stage.source.rows, before) as bar:
            with bar.follow(lambda: ray.get(ledger.counts.remote())):
                try:
                    write(dataflow(stage, checkpoint, ledger), output)
                except SgpuError:
                    raise
                except Exception as error:
                    raise _explained(stage, output, error) from error
            return ray.get([ledger.counts.remote(), ledger.working_seconds.remote()])


def _check_complete(stage: Stage, output: Location) -> tuple[pa.Table, dict[Location, int]]:
    """The ids and states written, and the files that hold them with their rows.

    Raises StageError unless every input id is there exactly once.
    """
    files = output.files(".parquet")
    parts = for_each(lambda file: read_rows(file, ["question_id", "status"]), files)
    rows = pa.concat_tables(parts) if parts else stage.table.schema.empty_table()
    found = Counter(rows["question_id"].to_pylist())
    wanted = Counter(stage.source.read(["question_id"])["question_id"].to_pylist())
    lost, extra = list((wanted - found).keys()), list((found - wanted).keys())
    if lost or extra:
        raise StageError(
            f"stage {stage.name} on {stage.partition}: {len(lost)} rows lost (first: {lost[:3]}), "
            f"{len(extra)} rows doubled or unknown (first: {extra[:3]}). Nothing was published. "
            f"Run the same command again; if it happens twice, delete {output} and report it."
        )
    return rows, {file: part.num_rows for file, part in zip(files, parts, strict=True)}


def _explained(stage: Stage, output: Location, error: Exception) -> SgpuError:
    text = str(error)
    if deliberate := _DELIBERATE.search(text):
        # Raised by a worker while it was built: trying again would change nothing.
        kind: type[SgpuError] = getattr(errors, deliberate["kind"])
        return kind(f"stage {stage.name} on {stage.partition}: {deliberate['message']}")
    what = f"stage {stage.name} on {stage.partition} stopped"
    kept = "What it finished is kept: the same command goes on from there."
    if "No space left on device" in text:
        return StageError(f"{what}: no space left in {output}. Free some, or choose another --out. {kept}")
    if "Permission denied" in text or "Read-only file system" in text:
        return StageError(f"{what}: cannot write to {output}. Check its permissions. {kept}")
    if not output.is_local and (why := cause(output.scheme, output.path, text)):
        return StageError(f"{what}: {why} {kept}")
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), type(error).__name__)
    return StageError(f"{what}: {last}. {kept}")
