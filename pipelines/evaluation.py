"""The second half of the benchmark workflow: from features to fits, predictions, metrics and the report."""

# No postponed annotations here: Dagster reads the types of `context` at definition.

from collections.abc import Sequence

import dagster as dg

from pipelines.assets import RETRY, attempt, cell_of, of_outcome, of_outcome_if_any
from pipelines.study_resource import StudyResource
from sgpu.report.study.data import StageSummary
from sgpu.runtime.run import Run
from sgpu.storage.location import Location


def write_report(run: Run, stages: Sequence[StageSummary] | None = None) -> Location:
    """The page of the study and the aggregates over its cells, from what is published; see `collect`."""
    from sgpu.report.aggregate.from_study import build_study_aggregates
    from sgpu.report.study.summary import collect, summarise

    data = collect(run, stages)
    build_study_aggregates(run.out, data)
    page = summarise(run, data)
    run.keep("report", "metrics.csv", "metrics.parquet", "run.json")
    return run.root / page.relative_to(run.out).as_posix()


def build(pairs: dg.MultiPartitionsDefinition) -> list[dg.AssetsDefinition]:
    """The assets after the stages; what is over all cells has no partitions."""

    def of_all(*assets: str) -> list[dg.AssetDep]:
        """Every partition of these assets."""
        return [dg.AssetDep(name, partition_mapping=dg.AllPartitionMapping()) for name in assets]

    @dg.asset(
        deps=of_all("labels", "spectra", "entailment", "hidden_states"),
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
        deps=[fits, "labels", "spectra", "entailment", "hidden_states"],
        retry_policy=RETRY,
        group_name="evaluation",
    )
    def predictions(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        """One confidence per method and question."""
        from sgpu.stages.predict import predict

        run, cell = study.open(), cell_of(context)
        return of_outcome(attempt(run, lambda: predict(run, cell)))

    @dg.asset(partitions_def=pairs, deps=[predictions], retry_policy=RETRY, group_name="evaluation")
    def metrics(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        """AUROC, AUARC, calibration and their bootstrap intervals."""
        from sgpu.stages.measure import measure

        run, cell = study.open(), cell_of(context)
        return of_outcome(attempt(run, lambda: measure(run, cell)))

    @dg.asset(
        deps=of_all("predictions", "judge_agreement"),
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
        partitions_def=pairs, deps=["responses"], retry_policy=RETRY, group_name="evaluation", kinds={"ray"}
    )
    def embeddings(context: dg.AssetExecutionContext, study: StudyResource) -> dg.MaterializeResult:
        """Constructed sets of two meanings by the encoder and by the model, where the study asks for them."""
        from sgpu.stages.embedding_study import embedding_study

        run, cell = study.open(), cell_of(context)
        return of_outcome_if_any(attempt(run, lambda: embedding_study(run, cell)))

    @dg.asset(
        deps=[sensitivity, *of_all("embeddings", "metrics", "judge_agreement")],
        retry_policy=RETRY,
        group_name="evaluation",
        kinds={"mlflow"},
    )
    def report(study: StudyResource) -> dg.MaterializeResult:
        """The page, metrics.csv, metrics.parquet, and the study in MLflow."""
        run = study.open()
        page = attempt(run, lambda: write_report(run))
        return dg.MaterializeResult(metadata={"page": dg.MetadataValue.path(str(page))})

    return [fits, predictions, metrics, sensitivity, embeddings, report]
