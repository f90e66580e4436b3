"""Summary stage: the report page, the metrics as files, run.json, and the study in MLflow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl

from sgpu.entailment.notes import backend_note
from sgpu.evaluation.agreement import agreement
from sgpu.provenance import environment, utc_now
from sgpu.report.build import build_report
from sgpu.report.data import Agreement, Example, Granted, Quarantined, ReportData, StageSummary, Unavailable
from sgpu.stages.cell_frame import cell_frame, cell_inputs
from sgpu.stages.entail import entailment_label, needs_entailment
from sgpu.stages.fit import METHOD, fit_of
from sgpu.stages.fit_rows import GLOBAL
from sgpu.stages.judge import agreement_labels
from sgpu.stages.measure import provenance
from sgpu.stages.run import Run
from sgpu.stages.runner import Outcome, rates
from sgpu.stages.study_frames import confusion_frame, embedding_frame, posthoc_frame, sensitivity_frame
from sgpu.store import Partition, Published, fingerprint
from sgpu.study import Cell
from sgpu.tracking import StudyRun, TableVersion

EXAMPLES_OF_A_KIND = 2
RECORDED = ".recorded"  # what of the study MLflow has already
JUDGE_NOTES = {
    "alias": "Labels come from matching the references and their aliases in the text of an answer, "
    "not from a language model.",
    "given": "Labels came with the responses.",
}


def summarise(run: Run, data: ReportData) -> Path:
    """Write the report of ``data``, from `collect`, and record the study; returns the page."""
    page = build_report(run.out, data)
    facts = {"study": data.study, "run": data.run_info, "stages": [vars(stage) for stage in data.stages]}
    (run.out / "run.json").write_text(json.dumps(facts, indent=1, default=str))
    _track(run, page, data)
    return page


def collect(run: Run, stages: Sequence[StageSummary] | None = None) -> ReportData:
    """Read what the study has published into the form that the report shows.

    ``stages`` are those of an earlier run whose report is rendered anew; default those of this run.
    """
    cells = run.study.cells()
    return ReportData(
        study=run.study.model_dump(mode="json"),
        run_info={**environment(), "finished": utc_now(), "out": str(run.out), "seed": run.study.seed},
        metrics=pl.concat([_published(run, "metrics", cell) for cell in cells]),
        predictions=pl.concat([_published(run, "predictions", cell) for cell in cells]),
        examples=[example for cell in cells for example in _examples(run, cell)],
        stages=[_stage(outcome) for outcome in run.outcomes] if stages is None else stages,
        quarantine=[row for cell in cells for row in _quarantine(run, cell)],
        notes=[*_notes(run), *run.notes],
        agreement=[row for cell in cells if (row := _agreement(run, cell))],
        granted=[row for dataset in run.study.datasets for row in _granted(run, dataset.name)],
        unavailable=[row for cell in cells for row in _unavailable(run, cell)],
        sensitivity=sensitivity_frame(run),
        confusion=confusion_frame(run),
        embeddings=embedding_frame(run),
        posthoc=posthoc_frame(run),
        comparisons=pl.concat([_published(run, "comparisons", cell) for cell in cells]),
        primary=run.study.primary_method,
    )


def _cell_table(run: Run, table: str, cell: Cell) -> Published:
    return run.store.require(table, Partition.of(model=cell.model, dataset=cell.dataset))


def _published(run: Run, table: str, cell: Cell) -> pl.DataFrame:
    frame = pl.DataFrame(pl.from_arrow(_cell_table(run, table, cell).read()))
    return frame.with_columns(pl.lit(cell.model).alias("model"), pl.lit(cell.dataset).alias("dataset"))


def _examples(run: Run, cell: Cell) -> list[Example]:
    predictions = _published(run, "predictions", cell).filter(
        (pl.col("method") == METHOD) & (pl.col("split") == "test") & pl.col("label").is_not_null()
    )
    chosen = pl.concat(
        [
            predictions.filter(pl.col("label") == 1)
            .sort("probability", descending=True)
            .head(EXAMPLES_OF_A_KIND),
            predictions.filter(pl.col("label") == 0)
            .sort("probability", descending=True)
            .head(EXAMPLES_OF_A_KIND),
            predictions.filter(pl.col("label") == 0).sort("probability").head(EXAMPLES_OF_A_KIND),
            predictions.filter(pl.col("unsafe")).head(EXAMPLES_OF_A_KIND),
        ]
    ).unique("question_id", keep="first", maintain_order=True)
    frame = cell_frame(cell_inputs(run, cell))
    rows = {row["question_id"]: row for row in frame.to_dicts()}
    return [_example(cell, rows[made["question_id"]], made) for made in chosen.to_dicts()]


def _example(cell: Cell, row: dict[str, Any], made: dict[str, Any]) -> Example:
    answers = row["answers"] or []
    return Example(
        model=cell.model,
        dataset=cell.dataset,
        question_id=row["question_id"],
        question=row["question"],
        references=row["references"] or [],
        answers=answers,
        votes=row["votes"] or [None] * len(answers),
        label=row["label"],
        eigenvalues=row["eigenvalues"] or [],
        probability=made["probability"],
        sd=made["sd"],
        unsafe=made["unsafe"],
    )


def _stage(outcome: Outcome) -> StageSummary:
    states = outcome.rows_by_status
    manifest = outcome.published.manifest
    # Of an unchanged stage, show what it took when it ran.
    shown = rates(manifest.get("counts", {}), float(manifest.get("working_seconds", 0.0)))
    return StageSummary(
        name=outcome.stage,
        cell=str(outcome.partition),
        rows_in=outcome.rows,
        rows_ok=states.get("ok", outcome.rows if not states else 0),
        rows_failed=states.get("failed", 0),
        rows_missing=states.get("missing", 0),
        seconds=float(manifest.get("seconds", 0.0)),
        rate=", ".join(shown),
        reused=outcome.reused,
    )


def _quarantine(run: Run, cell: Cell) -> list[Quarantined]:
    inputs = cell_inputs(run, cell)
    found = [
        Quarantined(
            model=cell.model, dataset=cell.dataset, table=table.table, question_id=row["question_id"],
            reason=row["error"] or "",
        )
        for table in inputs.tables
        if table is not inputs.questions
        for row in table.read(["question_id", "status", "error"]).to_pylist()
        if row["status"] == "failed"
    ]  # fmt: skip
    imported = inputs.responses.manifest.get("quarantined", [])
    found += [
        Quarantined(
            model=cell.model, dataset=cell.dataset, table=row["file"], question_id=f"line {row['line']}",
            reason=f"{row['reason']}. {row['remedy']}",
        )
        for row in imported
    ]  # fmt: skip
    return found


def _notes(run: Run) -> list[str]:
    judges = {cell_inputs(run, cell).judge for cell in run.study.cells()}
    notes = [JUDGE_NOTES[judge] for judge in sorted(judges) if judge in JUDGE_NOTES]
    if any(not run.is_given(cell) for cell in run.study.cells()):
        notes.append(
            "Token log-probabilities are raw: of the model itself, before top-k and top-p. "
            "Log-perplexity is that of the first sampled answer, since no greedy answer is drawn."
        )
    if needs_entailment(run.study):
        notes.append(backend_note(run.study.entailment.backend, entailment_label(run.study)))
    notes.append(
        "The classifier sees training questions only; the last share of them, the validation part, fits "
        "the maps of scores to probabilities and nothing else. Intervals are percentile bootstrap, 95 %."
    )
    return notes


def _agreement(run: Run, cell: Cell) -> Agreement | None:
    """Both judges' votes on the same answers, and Cohen's kappa between them."""
    second = agreement_labels(run, cell)
    if second is None:
        return None
    name, votes_of = second
    first = cell_inputs(run, cell)
    known = {
        row["question_id"]: row["votes"] for row in first.labels.read(["question_id", "votes"]).to_pylist()
    }
    pairs = [
        (np.nan if a is None else a, np.nan if b is None else b)
        for question, votes in votes_of.items()
        for a, b in zip(known.get(question) or [], votes or [], strict=False)
    ]
    if not pairs:
        return None
    left, right = zip(*pairs, strict=True)
    found = agreement(left, right, n_resamples=run.study.evaluation.bootstrap, seed=run.study.seed)
    return Agreement(
        judge_a=first.judge, judge_b=name, cell=str(cell),
        kappa=_number(found.kappa.value), lo=_number(found.kappa.lo), hi=_number(found.kappa.hi),
        agreement=_number(found.agreement.value), n=found.n, n_missing=found.n_missing,
    )  # fmt: skip


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _granted(run: Run, dataset: str) -> list[Granted]:
    rows = run.store.require("questions", Partition.of(dataset=dataset)).manifest.get("granted", [])
    return [cast(Granted, row) for row in rows]


def _unavailable(run: Run, cell: Cell) -> list[Unavailable]:
    rows = _cell_table(run, "predictions", cell).manifest.get("unavailable", [])
    return [cast(Unavailable, row) for row in rows]


def _track(run: Run, page: Path, data: ReportData) -> None:
    study = run.study
    params = study.model_dump(mode="json", exclude={"resources", "tracking"})
    # The same results in the same store are recorded once, however often the study is run.
    key = fingerprint(
        {
            "params": params,
            "store": study.tracking.mlflow,
            "metrics": [_cell_table(run, "metrics", cell).fingerprint for cell in study.cells()],
        }
    )
    recorded = run.out / RECORDED
    if recorded.is_file() and recorded.read_text() == key:
        return
    code = str(data.run_info.get("code_version"))
    with run.tracker.study(study.name, params, {"code_version": code}) as parent:
        for cell in study.cells():
            _track_cell(run, parent, cell)
        if (pooled := fit_of(run, study.cells()[0], GLOBAL)) and pooled.folder:
            n = cell_inputs(run, study.cells()[0]).n
            run.tracker.register_fit(
                pooled.folder, f"sgpu-global-{study.name}", n_answers=n, alias=study.tracking.alias,
                run_id=parent.run_id,
            )  # fmt: skip
        parent.log_report(page.parent)
        for name in ("metrics.csv", "metrics.parquet", "run.json"):
            parent.log_artifact(run.out / name)
    recorded.write_text(key)


def _track_cell(run: Run, parent: StudyRun, cell: Cell) -> None:
    inputs = cell_inputs(run, cell)
    fit = fit_of(run, cell)
    run_id = parent.log_cell(
        cell.model,
        cell.dataset,
        settings=provenance(run, cell, inputs),
        metrics=_cell_table(run, "metrics", cell).read().to_pylist(),
        inputs=[
            TableVersion(t.table, str(run.store.table_folder(t.table)), t.version, t.fingerprint, t.rows)
            for t in inputs.tables
        ],
        artifacts=[fit.folder] if fit and fit.folder else [],
    )
    if fit and fit.folder:
        run.tracker.register_fit(
            fit.folder,
            f"sgpu-{cell.model}-{cell.dataset}",
            n_answers=inputs.n,
            alias=run.study.tracking.alias,
            run_id=run_id,
        )
