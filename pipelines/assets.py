"""What every asset does alike: try its work, end it at a deliberate error, say what it has published."""

# No postponed annotations here: Dagster reads the types of `context` at definition.

from collections.abc import Callable
from typing import Any

import dagster as dg

from sgpu.errors import GivenUpError, SgpuError, StageError
from sgpu.runtime.run import Run
from sgpu.runtime.stage import Outcome
from sgpu.storage.store import Published
from sgpu.study.benchmark import Cell

# Deliberate errors are answered by a person, not by trying again; anything else may be a passing fault.
RETRY = dg.RetryPolicy(max_retries=2, delay=5, backoff=dg.Backoff.EXPONENTIAL)


def attempt(run: Run, work: Callable[[], Any]) -> Any:
    """Do the work; a deliberate error ends the asset at once and is kept for the command line."""
    try:
        return work()
    except SgpuError as error:
        run.failure = error
        retry = isinstance(error, StageError) and not isinstance(error, GivenUpError)
        raise dg.Failure(description=str(error), allow_retries=retry) from error
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError) as interrupt:
        # Dagster would try an interrupted asset again.
        run.interrupted = True
        raise dg.Failure(description="interrupted", allow_retries=False) from interrupt


def materialised(published: Published) -> dg.MaterializeResult:
    """What Dagster keeps of a published table: its fingerprint is the data version."""
    return dg.MaterializeResult(
        metadata={
            "rows": published.rows,
            "table": published.table,
            "partition": published.partition.path,
            "delta_version": published.version,
            "states": dg.MetadataValue.json(published.manifest.get("rows_by_status", {})),
        },
        data_version=dg.DataVersion(published.fingerprint),
    )


def of_outcome(outcome: Outcome) -> dg.MaterializeResult:
    return materialised(outcome.published)


def of_outcome_if_any(outcome: Outcome | None) -> dg.MaterializeResult:
    """As `of_outcome`, for a stage that the study may not ask for."""
    return of_outcome(outcome) if outcome else dg.MaterializeResult(metadata={"rows": 0})


def cell_of(context: dg.AssetExecutionContext) -> Cell:
    """The cell of a partition."""
    keys = context.partition_key.keys_by_dimension
    return Cell(keys["model"], keys["dataset"])
