"""The benchmark workflow: check a study, then make the assets of `pipelines.study_assets` in order.

It runs in this process; no daemon is needed. Dagster is the catalogue: where a home of it is configured, it
is told of every asset and check, and `pipelines.assets` has the same assets for who runs them from there.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from pipelines.study_assets import STUDY_ASSETS, check_asset, write_report
from sgpu.errors import SgpuError, StageError, resumable
from sgpu.runtime.lock import run_lock
from sgpu.runtime.session import named_cluster, one_ray_session
from sgpu.stages.preflight import check_study
from sgpu.stages.run import Execution, Run, check_quarantine, open_run, run_facts
from sgpu.stages.sample import check_servers
from sgpu.storage.location import Location, only_ours
from sgpu.study.benchmark import Study, load_study


def benchmark_study(
    study_file: Path,
    out: Path | str | None,
    overrides: Sequence[str],
    address: str | None,
    private: bool = False,
) -> Location:
    """Run a study from its file, and return its report page.

    Raises UsageError before any work for a study that cannot run, QuarantineError after all of it if more
    rows were quarantined than the study allows.
    """
    address = named_cluster(address)
    study = load_study(study_file, overrides)
    check_study(study, address=address)
    run = open_run(study, out, address)
    if private:
        only_ours(run.root)
        run.root.make_private()
    check_servers(run)
    from sgpu.report.study.questions import check_labels

    with resumable(), run_lock(run.root, run.out) as check, _terminable():
        run_benchmark(run, check)
    check_quarantine(run)
    check_labels(run)
    return run.root / "report" / "index.html"


def report_study(folder: Path | str) -> Location:
    """Render the report of a finished study anew from its tables; returns the page.

    Raises UsageError for a folder that holds no finished study.
    """
    from sgpu.report.study.data import StageSummary

    with run_facts(folder, "first") as facts:
        study = Study.model_validate(facts["study"])
        stages = [StageSummary(**stage) for stage in facts["stages"]]
    return write_report(open_run(study, Location.of(folder)), stages)


def run_benchmark(run: Run, check: Callable[[], None]) -> None:
    """Make everything that is due; stages whose inputs have not changed do nothing.

    ``check`` is called between the assets: it raises where the run is no longer ours. Raises the first error
    of a stage, and StageError if a blocking check failed.
    """
    from sgpu.plan.plan import follow_plan
    from sgpu.stages.hidden import drop_hidden_states
    from sgpu.stages.levels import run_levels

    assert run.resolved  # decided before the first stage; raises if it cannot be
    cells = run.study.cells()
    parts: dict[str, list[list[Any]]] = {
        "dataset": [[name] for name in dict.fromkeys(cell.dataset for cell in cells)],
        "cell": [[cell] for cell in cells],
        "study": [[]],
    }
    with one_ray_session(run.address), traced(run), _recorder() as record:
        follow_plan(run)
        # Assets are made cell by cell; their stages have then been run for all cells together.
        for _, group in groupby(STUDY_ASSETS, key=lambda asset: asset if asset.of == "study" else asset.of):
            phase = list(group)
            for part in parts[phase[0].of]:
                for asset in phase:
                    (made,) = asset.make(run, [part])
                    checks = check_asset(run, asset, *part) if asset.of == "cell" else []
                    record(asset.name, part, made, checks)
                    check()
            if phase[0].of == "dataset":
                run_levels(run, cells, check)
        drop_hidden_states(run, cells)


@contextmanager
def _recorder() -> Iterator[Callable[..., None]]:
    """Give what tells Dagster what was made; nothing does without its home, as its import takes seconds."""
    if not os.environ.get("DAGSTER_HOME"):
        yield lambda *_: None
        return
    import dagster as dg

    from pipelines.assets import report_asset

    with dg.DagsterInstance.get() as instance:
        yield partial(report_asset, instance)


@contextmanager
def traced(run: Execution[Any], kept: str = "stages") -> Iterator[None]:
    """Leave the trace of an error that nobody expected in the run's folder, and raise StageError instead."""
    try:
        yield
    except SgpuError:
        raise
    except Exception as error:
        log = run.out / "error.log"
        log.write_text(traceback.format_exc())
        raise StageError(
            f"{type(error).__name__}: {str(error).strip()} This is a fault of SGPU or of something beneath "
            f"it; the trace is in {log}. Finished {kept} are kept."
        ) from error


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM, as a service manager sends it, ends a run as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
