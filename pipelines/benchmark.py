"""The benchmark workflow: which tables a study has, what makes each of them, and the run of all of them.

It runs in this process; no daemon is needed. An asset is a function of the run and, where it has partitions,
of its data set or cell; `STUDY_ASSETS` says what it depends on. `pipelines.assets` makes Dagster's assets of
them.

What does the work is imported once the study has been checked: Dagster and PyTorch take seconds, in which a
person would wait to be told of a wrong word.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgpu.errors import resumable
from sgpu.runtime.lock import run_lock
from sgpu.runtime.run import Run, check_quarantine, open_run, run_facts
from sgpu.runtime.session import named_cluster, one_ray_session
from sgpu.runtime.stage import Outcome
from sgpu.stages.preflight import check_study
from sgpu.stages.sample import check_servers
from sgpu.storage.location import Location, only_ours
from sgpu.storage.store import Published
from sgpu.study.benchmark import Cell, Study, load_study

if TYPE_CHECKING:
    from sgpu.report.study.data import StageSummary

# What an asset has made: a table, None where the study does not ask for it, or facts of several tables.
Made = Outcome | Published | Mapping[str, object] | None


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


def questions(run: Run, dataset: str) -> Made:
    """Questions with references, split by hashed id."""
    from sgpu.stages.questions import prepare

    return prepare(run, dataset)


def responses(run: Run, cell: Cell) -> Made:
    """N sampled answers to every question, with token log-probabilities."""
    from sgpu.stages.sample import sample

    if run.is_given(cell):  # the import of the data set has published them
        return run.responses(cell)
    return sample(run, cell)


def labels(run: Run, cell: Cell) -> Made:
    """A vote on every answer and a label for every response set, by the study's judge."""
    from sgpu.stages.cell_frame import published_labels
    from sgpu.stages.judge import judge

    judge(run, cell)
    return published_labels(run, cell)


def judge_agreement(run: Run, cell: Cell) -> Made:
    """Some of the questions by further judges, where the study asks for any."""
    from sgpu.stages.judge import judge_sample

    return {"rows": sum(o.published.rows for o in judge_sample(run, cell))}


def spectra(run: Run, cell: Cell) -> Made:
    """Eigenvalues of the Gram matrix of the embedded answers."""
    from sgpu.stages.encode import encode

    return encode(run, cell)


def entailment(run: Run, cell: Cell) -> Made:
    """What each answer says of each other one, where a method of the study compares answers."""
    from sgpu.stages.entail import entail

    return entail(run, cell)


def hidden_states(run: Run, cell: Cell) -> Made:
    """The model's hidden states at the answers, where a method of the study reads them."""
    from sgpu.stages import hidden

    return hidden.hidden_states(run, cell)


def fits(run: Run) -> Made:
    """One Gaussian-process classifier a cell, fitted by a Ray Train job."""
    from sgpu.stages.fit import fit_cells

    return {"fits": {fit.cell: fit.fit_id for fit in fit_cells(run, run.study.cells())}}


def predictions(run: Run, cell: Cell) -> Made:
    """One confidence per method and question."""
    from sgpu.stages.evaluate import predict

    return predict(run, cell)


def metrics(run: Run, cell: Cell) -> Made:
    """AUROC, AUARC, calibration and their bootstrap intervals."""
    from sgpu.stages.evaluate import measure

    return measure(run, cell)


def sensitivity(run: Run) -> Made:
    """The classifier with other kernels, encoders, numbers of answers and training rows; other judges."""
    from sgpu.stages import sensitivity as stage

    outcomes = stage.sensitivity(run, run.study.cells())
    return {"rows": sum(o.published.rows for o in outcomes)}


def embeddings(run: Run, cell: Cell) -> Made:
    """Constructed sets of two meanings by the encoder and by the model, where the study asks for them."""
    from sgpu.stages.embedding_study import embedding_study

    return embedding_study(run, cell)


def report(run: Run) -> Made:
    """The page, metrics.csv, metrics.parquet, and the study in MLflow."""
    return {"page": write_report(run)}


def write_report(run: Run, stages: Sequence[StageSummary] | None = None) -> Location:
    """Write the page of the study and the aggregates over its cells, and print the table of methods.

    Everything comes from what is published; see `collect`. Returns the page.
    """
    from sgpu.report.aggregate.page import build_study_aggregates
    from sgpu.report.study.summary import collect, summarise
    from sgpu.report.study.terminal import show_methods

    data = collect(run, stages)
    build_study_aggregates(run.out, data)
    page = summarise(run, data)
    run.keep("report", "metrics.csv", "metrics.parquet", "run.json")
    show_methods(run.progress.console, data)
    return run.root / page.relative_to(run.out).as_posix()


@dataclass(frozen=True)
class StudyAsset:
    """One asset: what makes it, of one cell unless said otherwise, and the assets that it reads.

    ``reads`` are read for the same cell, ``reads_all`` for every one.
    """

    work: Callable[..., Made]
    group: str
    kinds: frozenset[str] = frozenset()
    reads: tuple[str, ...] = ()
    reads_all: tuple[str, ...] = ()
    of: str = "cell"  # or "dataset", or "study": what has no partitions


_RAY, _FEATURES = frozenset({"ray"}), ("labels", "spectra", "entailment", "hidden_states")
_FITTING = frozenset({"ray", "pytorch"})
# In the order of a run.
STUDY_ASSETS = (
    StudyAsset(questions, "data", frozenset({"deltalake"}), of="dataset"),
    StudyAsset(responses, "stages", _RAY | {"vllm"}, reads=("questions",)),
    StudyAsset(labels, "stages", _RAY, reads=("responses",)),
    StudyAsset(judge_agreement, "stages", _RAY | {"vllm"}, reads=("responses",)),
    StudyAsset(spectra, "stages", _RAY, reads=("responses",)),
    StudyAsset(entailment, "stages", _RAY, reads=("responses", "labels")),
    StudyAsset(hidden_states, "stages", _RAY, reads=("responses",)),
    StudyAsset(fits, "classifier", _FITTING, reads_all=_FEATURES, of="study"),
    StudyAsset(predictions, "evaluation", reads=("fits", *_FEATURES)),
    StudyAsset(metrics, "evaluation", reads=("predictions",)),
    StudyAsset(embeddings, "evaluation", _RAY, reads=("responses",)),
    StudyAsset(sensitivity, "evaluation", _FITTING, reads_all=("predictions", "judge_agreement"), of="study"),
    StudyAsset(
        report,
        "evaluation",
        frozenset({"mlflow"}),
        reads=("sensitivity",),
        reads_all=("embeddings", "metrics", "judge_agreement"),
        of="study",
    ),
)


def run_benchmark(
    run: Run, study_file: Path, overrides: Sequence[str], signalled: Callable[[], bool]
) -> None:
    """Materialise everything that is due; stages whose inputs have not changed do nothing.

    ``signalled`` says between the assets whether to stop, with a KeyboardInterrupt. Raises the first
    deliberate error of a stage, or StageError if a blocking check failed.
    """
    import dagster as dg

    from pipelines.assets import StudyResource, build, dagster_instance, materialise, register

    register(run)
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
        # What is made of a cell before anything of the whole study is made cell by cell.
        for _, group in groupby(STUDY_ASSETS, key=lambda asset: asset if asset.of == "study" else asset.of):
            phase = list(group)
            for partition in partitions[phase[0].of]:
                names = [asset.work.__name__ for asset in phase]
                materialise(run, [*assets, *checks], names, resource, instance, partition)
                if signalled():
                    raise KeyboardInterrupt


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
