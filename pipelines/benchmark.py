"""The benchmark workflow: one asset a table, partitioned by data set and model."""

# No postponed annotations here: Dagster reads the types of `context` at definition.

import warnings

import dagster as dg

from pipelines import checks, evaluation
from pipelines.assets import RETRY, attempt, cell_of, materialised, of_outcome, of_outcome_if_any
from pipelines.study_resource import StudyResource
from sgpu.runtime.run import Run
from sgpu.storage.store import Published
from sgpu.study.benchmark import Cell, Study


def _responses(run: Run, cell: Cell) -> Published:
    from sgpu.stages.sample import sample
    from sgpu.storage.store import Partition

    if run.is_given(cell):  # the import of the data set has published them
        return run.store.require("responses", Partition.of(model=cell.model, dataset=cell.dataset))
    return sample(run, cell).published


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
        run, cell = study.open(), cell_of(context)
        return materialised(attempt(run, lambda: _responses(run, cell)))

    @dg.asset(partitions_def=pairs, deps=[responses], retry_policy=RETRY, group_name="stages", kinds={"ray"})
    def labels(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        """A vote on every answer and a label for every response set, by the study's judge."""
        from sgpu.stages.cell_frame import published_labels
        from sgpu.stages.judge import judge

        run, cell = study.open(), cell_of(context)
        attempt(run, lambda: judge(run, cell))
        return materialised(attempt(run, lambda: published_labels(run, cell)))

    @dg.asset(
        partitions_def=pairs, deps=[responses], retry_policy=RETRY, group_name="stages", kinds={"ray", "vllm"}
    )
    def judge_agreement(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        """Some of the questions by further judges, where the study asks for any."""
        from sgpu.stages.judge import judge_sample

        run, cell = study.open(), cell_of(context)
        outcomes = attempt(run, lambda: judge_sample(run, cell))
        return dg.MaterializeResult(metadata={"rows": sum(o.published.rows for o in outcomes)})

    @dg.asset(partitions_def=pairs, deps=[responses], retry_policy=RETRY, group_name="stages", kinds={"ray"})
    def spectra(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        """Eigenvalues of the Gram matrix of the embedded answers."""
        from sgpu.stages.encode import encode

        run, cell = study.open(), cell_of(context)
        return of_outcome(attempt(run, lambda: encode(run, cell)))

    @dg.asset(
        partitions_def=pairs, deps=[responses, labels], retry_policy=RETRY, group_name="stages", kinds={"ray"}
    )
    def entailment(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        """What each answer says of each other one, where a method of the study compares answers."""
        from sgpu.stages.entail import entail

        run, cell = study.open(), cell_of(context)
        outcome = attempt(run, lambda: entail(run, cell))
        return of_outcome_if_any(outcome)

    @dg.asset(partitions_def=pairs, deps=[responses], retry_policy=RETRY, group_name="stages", kinds={"ray"})
    def hidden_states(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        """The model's hidden states at the answers, where a method of the study reads them."""
        from sgpu.stages import hidden

        run, cell = study.open(), cell_of(context)
        outcome = attempt(run, lambda: hidden.hidden_states(run, cell))
        return of_outcome_if_any(outcome)

    assets = [
        questions, responses, labels, judge_agreement, spectra, entailment, hidden_states,
        *evaluation.build(pairs),
    ]  # fmt: skip
    return assets, checks.build(pairs, labels=labels, spectra=spectra, responses=responses)
