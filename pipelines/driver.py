"""Runs a whole study in this process; no daemon is needed.

What does the work is imported once the study has been checked: Dagster and PyTorch take seconds, in which a
person would wait to be told of a wrong word.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sgpu.errors import resumable
from sgpu.runtime.cluster import run_on_head
from sgpu.runtime.lock import run_lock
from sgpu.runtime.run import check_quarantine, open_run, run_facts
from sgpu.runtime.session import named_cluster, over_client
from sgpu.stages.preflight import check_study
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
    if address and over_client(address):
        with _terminable():
            command = _command(study_file, out, overrides) + ["--private"] * private
            return Location.of(run_on_head(command, address))
    study = load_study(study_file, overrides)
    check_study(study, address=address)
    run = open_run(study, out, address)
    if private:
        only_ours(run.root)
        run.root.make_private()
    check_servers(run)
    from pipelines.benchmark import run_benchmark
    from sgpu.report.study.questions import check_labels

    with resumable(), run_lock(run.root, run.out) as check, _terminable() as signalled:

        def stopping() -> bool:
            check()
            return signalled()

        run_benchmark(run, study_file, overrides, stopping)
    check_quarantine(run)
    check_labels(run)
    return run.root / "report" / "index.html"


def _command(study_file: Path, out: Path | str | None, overrides: Sequence[str]) -> list[str]:
    words = ["benchmark", str(study_file), *(["--out", str(out)] if out else [])]
    return words + [word for change in overrides for word in ("--set", change)]


def report_study(folder: Path | str) -> Location:
    """Render the report of a finished study anew from its tables; returns the page.

    Raises UsageError for a folder that holds no finished study.
    """
    from sgpu.report.study.data import StageSummary

    with run_facts(folder, "first") as kept:
        study = Study.model_validate(kept["study"])
        stages = [StageSummary(**stage) for stage in kept["stages"]]
    from pipelines.benchmark import write_report

    return write_report(open_run(study, Location.of(folder)), stages)


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
