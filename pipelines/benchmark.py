"""The benchmark workflow: one asset a table, partitioned by data set and model.

An asset is a function of the run and, where it has partitions, of its data set or cell; `STUDY_ASSETS` says
what it depends on. What is over all cells has no partitions.
"""

# No postponed annotations here: Dagster reads the types of `context` at definition.

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np

from pipelines.assets import (
    RETRY,
    StudyResource,
    attempt,
    dagster_instance,
    materialise,
    materialised,
    register,
)
from sgpu.report.study.data import StageSummary
from sgpu.report.study.questions import unlabelled
from sgpu.runtime.run import Run
from sgpu.runtime.session import one_ray_session
from sgpu.stages.cell_frame import published_labels, published_spectra
from sgpu.storage.location import Location
from sgpu.study.benchmark import Cell, Study

PER_CELL = ("responses", "labels", "judge_agreement", "spectra", "entailment", "hidden_states")
EVALUATION = ("predictions", "metrics", "embeddings")
# Eigenvalues come from a float32 Gram matrix; their sum is N to about N times its rounding error.
EIGENVALUE_SUM_TOLERANCE = 1e-3


def questions(run: Run, dataset: str) -> dg.MaterializeResult:
    """Questions with references, split by hashed id."""
    from sgpu.stages.questions import prepare

    return materialised(prepare(run, dataset))


def responses(run: Run, cell: Cell) -> dg.MaterializeResult:
    """N sampled answers to every question, with token log-probabilities."""
    from sgpu.stages.sample import sample

    if run.is_given(cell):  # the import of the data set has published them
        return materialised(run.store.require("responses", cell.partition()))
    return materialised(sample(run, cell))


def labels(run: Run, cell: Cell) -> dg.MaterializeResult:
    """A vote on every answer and a label for every response set, by the study's judge."""
    from sgpu.stages.judge import judge

    judge(run, cell)
    return materialised(published_labels(run, cell))


def judge_agreement(run: Run, cell: Cell) -> dg.MaterializeResult:
    """Some of the questions by further judges, where the study asks for any."""
    from sgpu.stages.judge import judge_sample

    return dg.MaterializeResult(metadata={"rows": sum(o.published.rows for o in judge_sample(run, cell))})


def spectra(run: Run, cell: Cell) -> dg.MaterializeResult:
    """Eigenvalues of the Gram matrix of the embedded answers."""
    from sgpu.stages.encode import encode

    return materialised(encode(run, cell))


def entailment(run: Run, cell: Cell) -> dg.MaterializeResult:
    """What each answer says of each other one, where a method of the study compares answers."""
    from sgpu.stages.entail import entail

    return materialised(entail(run, cell))


def hidden_states(run: Run, cell: Cell) -> dg.MaterializeResult:
    """The model's hidden states at the answers, where a method of the study reads them."""
    from sgpu.stages import hidden

    return materialised(hidden.hidden_states(run, cell))


def fits(run: Run) -> dg.MaterializeResult:
    """One Gaussian-process classifier a cell, fitted by a Ray Train job."""
    from sgpu.stages.fit import fit_cells

    fitted = {fit.cell: fit.fit_id for fit in fit_cells(run, run.study.cells())}
    return dg.MaterializeResult(metadata={"fits": dg.MetadataValue.json(fitted)})


def predictions(run: Run, cell: Cell) -> dg.MaterializeResult:
    """One confidence per method and question."""
    from sgpu.stages.predict import predict

    return materialised(predict(run, cell))


def metrics(run: Run, cell: Cell) -> dg.MaterializeResult:
    """AUROC, AUARC, calibration and their bootstrap intervals."""
    from sgpu.stages.measure import measure

    return materialised(measure(run, cell))


def sensitivity(run: Run) -> dg.MaterializeResult:
    """The classifier with other kernels, encoders, numbers of answers and training rows; other judges."""
    from sgpu.stages import sensitivity as stage

    outcomes = stage.sensitivity(run, run.study.cells())
    return dg.MaterializeResult(metadata={"rows": sum(o.published.rows for o in outcomes)})


def embeddings(run: Run, cell: Cell) -> dg.MaterializeResult:
    """Constructed sets of two meanings by the encoder and by the model, where the study asks for them."""
    from sgpu.stages.embedding_study import embedding_study

    return materialised(embedding_study(run, cell))


def report(run: Run) -> dg.MaterializeResult:
    """The page, metrics.csv, metrics.parquet, and the study in MLflow."""
    return dg.MaterializeResult(metadata={"page": dg.MetadataValue.path(str(write_report(run)))})


def write_report(run: Run, stages: Sequence[StageSummary] | None = None) -> Location:
    """The page of the study and the aggregates over its cells, from what is published; see `collect`."""
    from sgpu.report.aggregate.page import build_study_aggregates
    from sgpu.report.study.summary import collect, summarise

    data = collect(run, stages)
    build_study_aggregates(run.out, data)
    page = summarise(run, data)
    run.keep("report", "metrics.csv", "metrics.parquet", "run.json")
    return run.root / page.relative_to(run.out).as_posix()


@dataclass(frozen=True)
class StudyAsset:
    """One asset: what makes it, of one cell unless said otherwise, and the assets that it reads.

    ``reads`` are read for the same cell, ``reads_all`` for every one.
    """

    work: Callable[..., dg.MaterializeResult]
    group: str
    kinds: frozenset[str] = frozenset()
    reads: tuple[str, ...] = ()
    reads_all: tuple[str, ...] = ()
    of: str = "cell"  # or "dataset", or "study": what has no partitions


_RAY, _FEATURES = frozenset({"ray"}), ("labels", "spectra", "entailment", "hidden_states")
_FITTING = frozenset({"ray", "pytorch"})
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
    StudyAsset(sensitivity, "evaluation", _FITTING, reads_all=("predictions", "judge_agreement"), of="study"),
    StudyAsset(embeddings, "evaluation", _RAY, reads=("responses",)),
    StudyAsset(
        report,
        "evaluation",
        frozenset({"mlflow"}),
        reads=("sensitivity",),
        reads_all=("embeddings", "metrics", "judge_agreement"),
        of="study",
    ),
)


def eigenvalue_sum(run: Run, cell: Cell) -> dg.AssetCheckResult:
    """Every spectrum sums to its number of answers."""
    rows = published_spectra(run, cell).read(["status", "n", "eigenvalues"]).to_pylist()
    worst = max(
        (abs(float(np.sum(row["eigenvalues"])) - row["n"]) for row in rows if row["status"] == "ok"),
        default=0.0,
    )
    return dg.AssetCheckResult(
        passed=worst <= EIGENVALUE_SUM_TOLERANCE,
        metadata={"worst_difference": worst, "bound": EIGENVALUE_SUM_TOLERANCE},
    )


def _warning(passed: bool, **metadata: float) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=passed, severity=dg.AssetCheckSeverity.WARN, metadata=metadata)


def labels_known(run: Run, cell: Cell) -> dg.AssetCheckResult:
    """Labels are missing for no larger share than the study allows."""
    rows = published_labels(run, cell).read(["label"])["label"]
    share = rows.null_count / max(1, len(rows))
    bound = run.study.bounds.missing_labels
    return _warning(share <= bound or unlabelled(run, cell), missing_share=share, bound=bound)


def both_classes(run: Run, cell: Cell) -> dg.AssetCheckResult:
    """The label rate lies inside (0, 1): with one class nothing can be learned or ranked."""
    label = published_labels(run, cell).read(["label"])["label"].drop_null().to_pylist()
    rate = float(np.mean(label)) if label else float("nan")
    return _warning(0 < rate < 1 or unlabelled(run, cell), label_rate=rate, labels=len(label))


def rows_answered(run: Run, cell: Cell) -> dg.AssetCheckResult:
    """Rows in quarantine are no larger share than the study allows."""
    published = run.store.require("responses", cell.partition())
    failed = published.read(["status"])["status"].to_pylist().count("failed")
    share, bound = failed / max(1, published.rows), run.study.bounds.quarantined
    return _warning(share <= bound, quarantined=failed, share=share, bound=bound)


# Each with the asset that it looks at; a blocking one stops what is downstream.
CHECKS = (
    (eigenvalue_sum, "spectra", True),
    (labels_known, "labels", False),
    (both_classes, "labels", False),
    (rows_answered, "responses", False),
)


def build(study: Study) -> tuple[list[dg.AssetsDefinition], list[dg.AssetChecksDefinition]]:
    """The assets and checks of a study. Its models and data sets are the partitions."""
    cells = study.cells()
    datasets = dg.StaticPartitionsDefinition(list(dict.fromkeys(cell.dataset for cell in cells)))
    models = dg.StaticPartitionsDefinition(list(dict.fromkeys(cell.model for cell in cells)))
    pairs = dg.MultiPartitionsDefinition({"dataset": datasets, "model": models})
    partitions = {"dataset": datasets, "cell": pairs, "study": None}
    with warnings.catch_warnings():
        # Checks on partitions are in preview: all that we use of them is that they run with their asset.
        for category in (dg.PreviewWarning, dg.BetaWarning):
            warnings.simplefilter("ignore", category)
        return (
            [_asset(asset, partitions[asset.of]) for asset in STUDY_ASSETS],
            [_check(*check, pairs) for check in CHECKS],
        )


def _part(key: Any) -> list[Any]:
    """What an asset of a partition works on, beside the run: a data set's name, or a cell."""
    keys = getattr(key, "keys_by_dimension", None)
    return [Cell(keys["model"], keys["dataset"]) if keys else str(key)]


def _asset(asset: StudyAsset, partitions: dg.PartitionsDefinition | None) -> dg.AssetsDefinition:
    per_dataset = dg.MultiToSingleDimensionPartitionMapping(partition_dimension_name="dataset")

    @dg.asset(
        name=asset.work.__name__,
        description=asset.work.__doc__,
        partitions_def=partitions,
        deps=[
            *(
                dg.AssetDep(n, partition_mapping=per_dataset if n == "questions" else None)
                for n in asset.reads
            ),
            *(dg.AssetDep(name, partition_mapping=dg.AllPartitionMapping()) for name in asset.reads_all),
        ],
        retry_policy=RETRY,
        group_name=asset.group,
        kinds=set(asset.kinds),
    )
    def made(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        run = study.open()
        part = _part(context.partition_key) if partitions else []
        return attempt(run, lambda: asset.work(run, *part))

    return made


def _check(
    function: Callable[[Run, Cell], dg.AssetCheckResult],
    asset: str,
    blocking: bool,
    pairs: dg.MultiPartitionsDefinition,
) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=asset,
        name=function.__name__,
        blocking=blocking,
        description=function.__doc__,
        partitions_def=pairs,
    )
    def check(context: dg.AssetCheckExecutionContext, study: StudyResource) -> dg.AssetCheckResult:
        return function(study.open(), *_part(context.partition_key))

    return check


def run_benchmark(
    run: Run, study_file: Path, overrides: Sequence[str], signalled: Callable[[], bool] = lambda: False
) -> None:
    """Materialise everything that is due; stages whose inputs have not changed do nothing.

    ``signalled`` says between the assets whether to stop, with a KeyboardInterrupt. Raises the first
    deliberate error of a stage, or StageError if a blocking check failed.
    """
    register(run)
    assets, checks = build(run.study)
    resource = StudyResource(
        study=str(study_file), out=str(run.root), overrides=list(overrides), address=run.address
    )
    cells = run.study.cells()
    keys = [dg.MultiPartitionKey({"model": cell.model, "dataset": cell.dataset}) for cell in cells]
    with one_ray_session(run.address), dagster_instance() as instance:

        def due(names: Sequence[str], partition: str | dg.MultiPartitionKey | None = None) -> None:
            materialise(run, [*assets, *checks], names, resource, instance, partition)
            if signalled():
                raise KeyboardInterrupt

        for dataset in dict.fromkeys(cell.dataset for cell in cells):
            due(["questions"], dataset)
        for key in keys:
            due(PER_CELL, key)
        due(["fits"])
        for key in keys:
            due(EVALUATION, key)
        due(["sensitivity"])
        due(["report"])
