"""Runs one stage over one partition: resumable inside, exactly once outside.

fingerprint -> already published? done
pinned read -> blocks of K rows -> actor pool on pyarrow tables -> checkpointed Parquet
every input id once in the output -> one Delta transaction
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sgpu.errors import SgpuError, StageError
from sgpu.provenance import code_version
from sgpu.stages.ledger import Ledger
from sgpu.stages.progress import Progress
from sgpu.stages.session import ray_session
from sgpu.stages.worker import StageActor
from sgpu.store import Partition, Published, Store, fingerprint, on_disk
from sgpu.tables import Table

NO_PROGRESS_TIMEOUT_S = 1800


@dataclass(frozen=True)
class Resources:
    """What the actor pool of one stage asks Ray for."""

    actors: int = 1
    num_cpus: float = 0.5
    num_gpus: float = 0.0
    block_rows: int = 256
    threads: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)  # of the actors' processes
    calls: int = 1  # blocks that one actor works on at once; its worker must bear calls from several threads


@dataclass(frozen=True)
class Stage:
    """One stage over one partition. ``settings`` holds all that decides the content of its output."""

    name: str
    version: int  # raised when the code changes what comes out for the same settings
    table: Table
    partition: Partition
    source: Published
    columns: tuple[str, ...]
    worker: str  # "module:Class", built in the actor with `arguments`
    arguments: Mapping[str, Any]
    settings: Mapping[str, Any]
    resources: Resources = field(default_factory=Resources)

    @property
    def content(self) -> dict[str, Any]:
        source = self.source
        return {
            "stage": self.name,
            "stage_version": self.version,
            "settings": dict(self.settings),
            "input": [source.table, source.partition.path, source.fingerprint],
        }


@dataclass(frozen=True)
class Outcome:
    """What a stage did to a published partition; ``counts`` and times are of this run only."""

    stage: str
    published: Published
    reused: bool
    rows_resumed: int = 0
    seconds: float = 0.0
    working_seconds: float = 0.0  # without the start of Ray and of the engines
    counts: Mapping[str, float] = field(default_factory=dict)

    @property
    def partition(self) -> Partition:
        return self.published.partition

    @property
    def rows(self) -> int:
        return self.published.rows

    @property
    def rows_by_status(self) -> Mapping[str, int]:
        return self.published.manifest.get("rows_by_status", {})

    def line(self) -> str:
        """The one line that a person reads about this stage."""
        parts = [f"{self.stage:<8} {self.partition!s:<46} {self.rows:>6} rows"]
        if self.reused:
            return parts[0] + "  unchanged, not run again"
        parts.append(f"{self.seconds:7.1f} s")
        parts += rates(self.counts, self.working_seconds)
        if self.rows_resumed:
            parts.append(f"{self.rows_resumed} rows were there already")
        parts += [f"{n} {status}" for status, n in sorted(self.rows_by_status.items()) if status != "ok"]
        return "  ".join(parts)


def rates(counts: Mapping[str, float], seconds: float) -> list[str]:
    """Counts per second of work, for a person."""
    if not seconds:
        return []
    return [f"{value / seconds:.{1 if name == 'rows' else 0}f} {name}/s" for name, value in counts.items()]


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
    if before < stage.source.rows or any(checkpoint.rglob("*.pending*")):
        counts, working = _run_blocks(stage, output, checkpoint, before, progress, address)
    rows = _check_complete(stage, output)
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
    store.publish(stage.table, stage.partition, key, manifest)
    shutil.rmtree(checkpoint, ignore_errors=True)  # only now: it is what makes a retry safe
    with suppress(OSError):
        os.removedirs(checkpoint.parent)  # the folders above it, as far as they are empty
    published = store.require(stage.table.name, stage.partition)
    return Outcome(stage.name, published, False, before, seconds, working, counts)


def _finished_rows(folder: Path) -> int:
    """Rows in whole files; a file that was being written when the process died has no footer."""
    total = 0
    for file in folder.glob("*.parquet"):
        try:
            total += pq.read_metadata(file).num_rows
        except pa.ArrowInvalid:
            continue
    return total


def _run_blocks(
    stage: Stage, output: Path, checkpoint: Path, before: int, progress: Progress, address: str | None
) -> tuple[dict[str, float], float]:
    output.mkdir(parents=True, exist_ok=True)
    checkpoint.mkdir(parents=True, exist_ok=True)
    with ray_session(address):
        import ray

        ledger = ray.remote(Ledger).options(num_cpus=0).remote()
        with progress.stage(f"{stage.name} {stage.partition}", stage.source.rows, before) as bar:
            with bar.follow(lambda: ray.get(ledger.counts.remote())):
                try:
                    _plan(stage, checkpoint, ledger).write_parquet(str(output))
                except SgpuError:
                    raise
                except Exception as error:
                    raise _explained(stage, output, error) from error
            return ray.get([ledger.counts.remote(), ledger.working_seconds.remote()])


def _plan(stage: Stage, checkpoint: Path, ledger: Any) -> Any:
    import ray.data
    from ray.data.checkpoint import CheckpointConfig

    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler):  # its log files keep everything; errors are told by us
            handler.setLevel(logging.CRITICAL)
    context = ray.data.DataContext.get_current()
    # Both are copied when the dataset is created, so they are set first.
    context.checkpoint_config = CheckpointConfig(
        id_column="question_id", checkpoint_path=str(checkpoint), delete_checkpoint_on_success=False
    )
    context.enable_progress_bars = False
    context.execution_options.verbose_progress = False
    context.execution_no_progress_timeout_s = NO_PROGRESS_TIMEOUT_S
    context.max_consecutive_actor_init_deaths = 3
    ask = stage.resources
    # The source must be a real read: with any other source Ray checkpoints and yet repeats rows.
    dataset = ray.data.read_parquet(list(stage.source.files), partitioning=None)
    dataset = dataset.select_columns(list(stage.columns))
    # Small files merge into one block; without this nothing would be checkpointed before the end.
    dataset = dataset.repartition(target_num_rows_per_block=ask.block_rows)
    return dataset.map_batches(
        StageActor,
        fn_constructor_args=(stage.worker, dict(stage.arguments), on_disk(stage.table.schema), ledger),
        batch_format="pyarrow",
        batch_size=ask.block_rows,
        compute=ray.data.ActorPoolStrategy(
            size=ask.actors,
            max_concurrent_calls_per_actor=ask.calls,
            enable_true_multi_threading=ask.calls > 1,
        ),
        num_cpus=ask.num_cpus,
        num_gpus=ask.num_gpus or None,
        udf_modifying_row_count=False,
        # Ray would otherwise set one thread for an actor that asks for less than one logical CPU.
        runtime_env={"env_vars": {"OMP_NUM_THREADS": str(ask.threads), **_unset(ask.environment)}},
    )


def _unset(variables: Mapping[str, str]) -> dict[str, str]:
    """Without those that the user has set."""
    return {name: value for name, value in variables.items() if name not in os.environ}


def _check_complete(stage: Stage, output: Path) -> pa.Table:
    """The ids and states written; StageError unless every input id is there exactly once."""
    files = sorted(output.glob("*.parquet"))
    parts = [pq.read_table(file, columns=["question_id", "status"], partitioning=None) for file in files]
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
    return rows


def _explained(stage: Stage, output: Path, error: Exception) -> StageError:
    text = str(error)
    what = f"stage {stage.name} on {stage.partition} stopped"
    kept = "What it finished is kept: the same command goes on from there."
    if "No space left on device" in text:
        return StageError(f"{what}: no space left in {output}. Free some, or choose another --out. {kept}")
    if "Permission denied" in text or "Read-only file system" in text:
        return StageError(f"{what}: cannot write to {output}. Check its permissions. {kept}")
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), type(error).__name__)
    return StageError(f"{what}: {last}. {kept}")
