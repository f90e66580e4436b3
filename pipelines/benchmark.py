"""The benchmark workflow: one asset a table, partitioned by data set and model."""

# No postponed annotations here: Dagster reads the types of `context` at definition.

import warnings
from collections.abc import Callable
from typing import Any

import dagster as dg

from pipelines import checks
from pipelines.study_resource import StudyResource
from sgpu.errors import SgpuError, StageError
from sgpu.stages.run import Run
from sgpu.stages.runner import Outcome
from sgpu.store import Published
from sgpu.study import Cell, Study

# Deliberate errors are answered by a person, not by trying again; anything else may be a passing fault.
RETRY = dg.RetryPolicy(max_retries=2, delay=5, backoff=dg.Backoff.EXPONENTIAL)


def attempt(run: Run, work: Callable[[], Any]) -> Any:
    """Do the work; a deliberate error ends the asset at once and is kept for the command line."""
    try:
        return work()
    except SgpuError as error:
        run.failure = error
        retry = isinstance(error, StageError)
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


def _of(outcome: Outcome) -> dg.MaterializeResult:
    return materialised(outcome.published)


def _of_any(outcome: Outcome | None) -> dg.MaterializeResult:
    """As `_of`, for a stage that the study may not ask for."""
    return _of(outcome) if outcome else dg.MaterializeResult(metadata={"rows": 0})


def _responses(run: Run, cell: Cell) -> Published:
    from sgpu.stages.sample import sample
    from sgpu.store import Partition

    if run.is_given(cell):  # the import of the data set has published them
        return run.store.require("responses", Partition.of(model=cell.model, dataset=cell.dataset))
    return sample(run, cell).published


def _cell(context: dg.AssetExecutionContext) -> Cell:
    keys = context.partition_key.keys_by_dimension
    return Cell(keys["model"], keys["dataset"])


def build(study: Study) -> tuple[list[dg.AssetsDefinition], list[dg.AssetChecksDefinition]]:
    """The assets and checks of a study. Its models and data sets are the partitions."""
    with warnings.catch_warnings():
        # Checks on partitions are in preview: all that we use of them is that they run with their asset.
        for category in (dg.PreviewWarning, dg.BetaWarning):
            warnings.simplefilter("ignore", category)
        return _build(study)


def _build(study: Study) -> tuple[list[dg.AssetsDefinition], list[dg.AssetChecksDefinition]]:
    cells = study.cells()
    datasets = dg.StaticPartitionsDefinition(list(dict.fromkeys(cell.dataset for cell in cells)))
    models = dg.StaticPartitionsDefinition(list(dict.fromkeys(cell.model for cell in cells)))
    pairs = dg.MultiPartitionsDefinition({"dataset": datasets, "model": models})
    per_dataset = dg.MultiToSingleDimensionPartitionMapping(partition_dimension_name="dataset")
    everything = dg.AllPartitionMapping()

    @dg.asset(partitions_def=datasets, retry_policy=RETRY, group_name="data", kinds={"deltalake"})
    def questions(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        """Questions with references, split by hashed id."""
        from sgpu.stages.questions import prepare

        run = study.open()
        return materialised(attempt(run, lambda: prepare(run, context.partition_key)))

    @dg.asset(
        partitions_def=pairs,
        deps=[dg.AssetDep(questions, partition_mapping=per_dataset)],
        retry_policy=RETRY,
        group_name="stages",
        kinds={"ray", "vllm"},
    )
    def responses(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        """N sampled answers to every question, with token log-probabilities."""
        run, cell = study.open(), _cell(context)
        return materialised(attempt(run, lambda: _responses(run, cell)))

    @dg.asset(partitions_def=pairs, deps=[responses], retry_policy=RETRY, group_name="stages", kinds={"ray"})
    def labels(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        """A vote on every answer and a label for every response set, by the study's judge."""
        from sgpu.stages.cell_frame import published_labels
        from sgpu.stages.judge import judge

        run, cell = study.open(), _cell(context)
        attempt(run, lambda: judge(run, cell))
        return materialised(attempt(run, lambda: published_labels(run, cell)))

    @dg.asset(
        partitions_def=pairs, deps=[responses], retry_policy=RETRY, group_name="stages", kinds={"ray", "vllm"}
    )
    def judge_agreement(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        """The same questions by a second judge, where the study asks for one."""
        from sgpu.stages.judge import judge_sample

        run, cell = study.open(), _cell(context)
        outcome = attempt(run, lambda: judge_sample(run, cell))
        return _of_any(outcome)

    @dg.asset(partitions_def=pairs, deps=[responses], retry_policy=RETRY, group_name="stages", kinds={"ray"})
    def spectra(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        """Eigenvalues of the Gram matrix of the embedded answers."""
        from sgpu.stages.encode import encode

        run, cell = study.open(), _cell(context)
        return _of(attempt(run, lambda: encode(run, cell)))

    @dg.asset(
        partitions_def=pairs, deps=[responses, labels], retry_policy=RETRY, group_name="stages", kinds={"ray"}
    )
    def entailment(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        """What each answer says of each other one, where a method of the study compares answers."""
        from sgpu.stages.entail import entail

        run, cell = study.open(), _cell(context)
        outcome = attempt(run, lambda: entail(run, cell))
        return _of_any(outcome)

    @dg.asset(partitions_def=pairs, deps=[responses], retry_policy=RETRY, group_name="stages", kinds={"ray"})
    def hidden_states(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        """The model's hidden states at the answers, where a method of the study reads them."""
        from sgpu.stages import hidden

        run, cell = study.open(), _cell(context)
        outcome = attempt(run, lambda: hidden.hidden_states(run, cell))
        return _of_any(outcome)

    @dg.asset(
        deps=[
            dg.AssetDep(labels, partition_mapping=everything),
            dg.AssetDep(spectra, partition_mapping=everything),
            dg.AssetDep(entailment, partition_mapping=everything),
            dg.AssetDep(hidden_states, partition_mapping=everything),
        ],
        retry_policy=RETRY,
        group_name="classifier",
        kinds={"ray", "pytorch"},
    )
    def fits(study: StudyResource) -> dg.MaterializeResult:
        """One Gaussian-process classifier a cell, fitted by a Ray Train job."""
        from sgpu.stages.fit import fit_cells

        run = study.open()
        fitted = attempt(run, lambda: fit_cells(run, run.study.cells()))
        return dg.MaterializeResult(
            metadata={"fits": dg.MetadataValue.json({f.cell: f.fit_id for f in fitted})}
        )

    @dg.asset(
        partitions_def=pairs,
        deps=[fits, labels, spectra, entailment, hidden_states],
        retry_policy=RETRY,
        group_name="evaluation",
    )
    def predictions(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        """One confidence per method and question."""
        from sgpu.stages.predict import predict

        run, cell = study.open(), _cell(context)
        return _of(attempt(run, lambda: predict(run, cell)))

    @dg.asset(partitions_def=pairs, deps=[predictions], retry_policy=RETRY, group_name="evaluation")
    def metrics(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        """AUROC, AUARC, calibration and their bootstrap intervals."""
        from sgpu.stages.measure import measure

        run, cell = study.open(), _cell(context)
        return _of(attempt(run, lambda: measure(run, cell)))

    @dg.asset(
        deps=[
            dg.AssetDep(predictions, partition_mapping=everything),
            dg.AssetDep(judge_agreement, partition_mapping=everything),
        ],
        retry_policy=RETRY,
        group_name="evaluation",
        kinds={"ray", "pytorch"},
    )
    def sensitivity(study: StudyResource) -> dg.MaterializeResult:
        """The classifier with other kernels, encoders, numbers of answers and training rows; other judges."""
        from sgpu.stages import sensitivity as stage

        run = study.open()
        outcomes = attempt(run, lambda: stage.sensitivity(run, run.study.cells()))
        return dg.MaterializeResult(metadata={"rows": sum(o.published.rows for o in outcomes)})

    @dg.asset(
        deps=[
            sensitivity,
            dg.AssetDep(metrics, partition_mapping=everything),
            dg.AssetDep(judge_agreement, partition_mapping=everything),
        ],
        retry_policy=RETRY,
        group_name="evaluation",
        kinds={"mlflow"},
    )
    def report(study: StudyResource) -> dg.MaterializeResult:
        """The page, metrics.csv, metrics.parquet, and the study in MLflow."""
        from sgpu.stages.summary import summarise

        run = study.open()
        page = attempt(run, lambda: summarise(run))
        return dg.MaterializeResult(metadata={"page": dg.MetadataValue.path(str(page))})

    assets = [
        questions, responses, labels, judge_agreement, spectra, entailment, hidden_states,
        fits, predictions, metrics, sensitivity, report,
    ]  # fmt: skip
    return assets, checks.build(pairs, labels=labels, spectra=spectra, responses=responses)
