"""The benchmark workflow: check a study, then make the assets of `pipelines.study_assets` in order.

It runs in this process; no daemon is needed. Dagster is imported once the study has been checked: it takes
seconds, in which a person would wait to be told of a wrong word.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from pipelines.study_assets import STUDY_ASSETS, write_report
from sgpu.errors import resumable
from sgpu.runtime.lock import run_lock
from sgpu.runtime.session import named_cluster, one_ray_session
from sgpu.stages.preflight import check_study
from sgpu.stages.run import Run, check_quarantine, open_run, run_facts
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

    with resumable(), run_lock(run.root, run.out) as check, _terminable() as signalled:

        def stopping() -> bool:
            check()
            return signalled()

        run_benchmark(run, study_file, overrides, stopping)
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


def run_benchmark(
    run: Run, study_file: Path, overrides: Sequence[str], signalled: Callable[[], bool]
) -> None:
    """Materialise everything that is due; stages whose inputs have not changed do nothing.

    ``signalled`` says between the assets whether to stop, with a KeyboardInterrupt. Raises the first
    deliberate error of a stage, or StageError if a blocking check failed.
    """
    import dagster as dg

    from pipelines.assets import StudyResource, build, dagster_instance, materialise, register
    from sgpu.stages.levels import run_levels

    register(run)
    assert run.resolved  # decided before the first stage; raises if it cannot be
    assets, checks = build(run.study)
    resource = StudyResource(
        study=str(study_file), out=str(run.root), overrides=list(overrides), address=run.address
    )
    cells = run.study.cells()
    partitions: dict[str, list[Any]] = {
        "dataset": [*dict.fromkeys(cell.dataset for cell in cells)],
        "cell": [dg.MultiPartitionKey({"model": cell.model, "dataset": cell.dataset}) for cell in cells],
        "study": [None],
    }
    with one_ray_session(run.address), dagster_instance() as instance:
        # What is made of a cell before anything of the whole study is made cell by cell; the stages in between
        # have been run for all cells together.
        for _, group in groupby(STUDY_ASSETS, key=lambda asset: asset if asset.of == "study" else asset.of):
            phase = list(group)
            for partition in partitions[phase[0].of]:
                names = [asset.work.__name__ for asset in phase]
                materialise(run, [*assets, *checks], names, resource, instance, partition)
                if signalled():
                    raise KeyboardInterrupt
            if phase[0].of == "dataset":
                run_levels(run, cells, signalled)


@contextmanager
def _terminable() -> Iterator[Callable[[], bool]]:
    """SIGTERM, as a service manager sends it, ends a run as Ctrl-C does; gives whether either has come.

    Dagster sets handlers of its own while it works and drops a signal that comes between two assets. Python
    writes every signal to a file besides, whatever its handler makes of it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    file = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)

    def signalled() -> bool:
        try:
            return bool({signal.SIGINT, signal.SIGTERM} & set(os.read(reader, 4096)))
        except BlockingIOError:
            return False

    try:
        yield signalled
    finally:
        signal.signal(signal.SIGTERM, handler)
        signal.set_wakeup_fd(file)
        os.close(reader)
        os.close(writer)
