"""Summary stage: the report page, the metrics as files, run.json, and the study in MLflow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.compute as pc

from sgpu.encoders.cards import ENCODERS as ENCODER_CARDS
from sgpu.encoders.cards import EncoderCard
from sgpu.engines.costs import read_costs
from sgpu.entailment.base import backend_note
from sgpu.evaluation.agreement import Agreement, agreement
from sgpu.models.cards import EMBEDDED, ModelCard
from sgpu.models.weights import ENCODERS, GGUF_MODELS, PackagedFile
from sgpu.provenance import environment, utc_now
from sgpu.report.study.data import (
    ProvenanceRow,
    Quarantined,
    ReportData,
    StageSummary,
)
from sgpu.report.study.page import build_report
from sgpu.report.study.questions import choose_examples, rankings, why_unmeasured
from sgpu.report.study.record import record
from sgpu.report.study.study_frames import (
    cell_table,
    confusion_frame,
    embedding_frame,
    posthoc_frame,
    sensitivity_frame,
    sentence_pair_frame,
    study_frame,
)
from sgpu.runtime.stage import Outcome, rates
from sgpu.stages.cell_frame import cell_inputs, rows_of
from sgpu.stages.entail import entailment_label, needs_entailment
from sgpu.stages.judge import second_labels
from sgpu.stages.run import RUN_FACTS, Run
from sgpu.storage.store import Partition, Published
from sgpu.study.benchmark import Cell
from sgpu.study.data_specs import QuestionsSpec, ResponsesSpec
from sgpu.study.departures import departures
from sgpu.study.models import card_of, model_card
from sgpu.visible import masked, without_credentials

JUDGE_NOTES = {
    "alias": "Labels come from matching the references and their aliases in the text of an answer, "
    "not from a language model.",
    "given": "Labels came with the responses.",
}


UNMEASURED = (
    "In a ranking, a score only measures how far the answers agree: a model that gives the same wrong answer "
    "every time gets a high one."
)


def write_study_report(run: Run, data: ReportData) -> Path:
    """Write the report of ``data``, from `collect`, and record the study; returns the page."""
    page = build_report(run.out, data)
    facts: dict[str, Any] = {"study": data.study, "run": data.run_info}
    facts["stages"] = [vars(stage) for stage in data.stages]
    if run.pools:  # a report that is made anew keeps what the last command ran
        facts |= {
            "pools": [vars(pool) for pool in run.pools],
            "engine_starts": sum(pool.starts for pool in run.pools),
            "jobs": sum(pool.jobs for pool in run.pools),
        }
    if bill := read_costs(run.root):
        facts["bill"] = bill
    begun = (run.root / RUN_FACTS).read_json() or {}
    (run.out / RUN_FACTS).write_text(json.dumps(begun | facts, indent=1, default=str))
    record(run, page, data)
    return page


def collect(run: Run, stages: Sequence[StageSummary] | None = None) -> ReportData:
    """Read what the study has published into the form that the report shows.

    ``stages`` are those of an earlier run whose report is rendered anew; default those of this run.
    """
    cells = run.study.cells()
    predictions = study_frame(run, "predictions")
    own = all(isinstance(spec, ResponsesSpec) or not spec.card.paper for spec in run.study.datasets)
    return ReportData(
        study=masked(run.study.model_dump(mode="json")),
        run_info={**environment(), "finished": utc_now(), "out": str(run.root), "seed": run.study.seed},
        metrics=study_frame(run, "metrics"),
        predictions=predictions,
        examples=[example for cell in cells for example in choose_examples(run, cell)],
        stages=[_stage(outcome) for outcome in run.outcomes] if stages is None else stages,
        quarantine=[*_rejected(run), *(row for cell in cells for row in _quarantine(run, cell))],
        # What the data sets say of themselves is for instance how many duplicates were removed.
        notes=[
            *_notes(run),
            *(f"{dataset}: {note}" for dataset, note in _of_questions(run, "notes")),
            *_length_notes(run),
            *_no_answer_notes(predictions),
            *dict.fromkeys(run.notes),  # a stage may be planned more than once
        ],
        agreement=[row for cell in cells for row in _agreements(run, cell)],
        granted=[row for _, row in _of_questions(run, "granted")],
        unavailable=[
            row
            for cell in cells
            for row in cell_table(run, "predictions", cell).manifest.get("unavailable", [])
        ],
        sources=sources(run),
        # With one's own questions there is nothing to depart from.
        departures=[] if own else departures(run.study),
        rankings=rankings(run),
        sensitivity=sensitivity_frame(run),
        confusion=confusion_frame(run),
        embeddings=embedding_frame(run),
        sentence_pairs=sentence_pair_frame(run),
        posthoc=posthoc_frame(run),
        comparisons=study_frame(run, "comparisons"),
        primary=run.study.primary_method,
    )


def _stage(outcome: Outcome) -> StageSummary:
    states, rejected = outcome.rows_by_status, outcome.published.n_rejected
    manifest = outcome.published.manifest
    # Of an unchanged stage, show what it took when it ran.
    shown = rates(manifest.get("counts", {}), float(manifest.get("working_seconds", 0.0)))
    return StageSummary(
        name=outcome.stage,
        cell=str(outcome.partition),
        rows_in=outcome.rows + rejected,
        rows_ok=states.get("ok", outcome.rows if not states else 0),
        rows_failed=states.get("failed", 0) + rejected,
        rows_missing=states.get("missing", 0),
        seconds=float(manifest.get("seconds", 0.0)),
        rate=", ".join(shown),
        reused=outcome.reused,
    )


def _quarantine(run: Run, cell: Cell) -> list[Quarantined]:
    """List the rows of a cell that a stage could not process."""
    inputs = cell_inputs(run, cell)
    return [
        Quarantined(
            model=cell.model, dataset=cell.dataset, table=table.table, question_id=row["question_id"],
            reason=row["error"] or "",
        )
        for table in inputs.tables
        if table is not inputs.questions
        for row in table.read(["question_id", "status", "error"]).to_pylist()
        if row["status"] == "failed"
    ]  # fmt: skip


def _rejected(run: Run) -> list[Quarantined]:
    """List the rows of the sources that could not be used, by file and position."""
    return [
        Quarantined(
            model="", dataset=dataset, table=row["file"], question_id=row["row"],
            reason=f"{row['reason']}. {row['remedy']}",
        )
        for dataset, row in _of_questions(run, "rejected")
    ]  # fmt: skip


def _of_questions(run: Run, name: str) -> Iterator[tuple[str, Any]]:
    """(data set, item) of a list that the published questions of the data sets keep in their manifests."""
    for dataset in run.study.datasets:
        manifest = run.store.require("questions", Partition.of(dataset=dataset.name)).manifest
        for item in manifest.get(name, []):
            yield dataset.name, item


def _notes(run: Run) -> list[str]:
    measured = [cell for cell in run.study.cells() if not why_unmeasured(run, cell)]
    judges = {cell_inputs(run, cell).judge for cell in measured}
    notes = [JUDGE_NOTES[judge] for judge in sorted(judges) if judge in JUDGE_NOTES]
    if any(not run.is_given(cell) for cell in run.study.cells()):
        notes.append(
            "Token log-probabilities are raw: of the model itself, before top-k and top-p. "
            "Log-perplexity is that of the first sampled answer, since no greedy answer is drawn."
        )
    if needs_entailment(run.study):
        notes.append(backend_note(run.study.entailment.backend, entailment_label(run.study)))
    if len(measured) < len(run.study.cells()):
        notes.append(UNMEASURED)
    if not measured:
        return notes
    notes.append(
        "The classifier sees training questions only; the last share of them, the validation part, fits "
        "the maps of scores to probabilities and nothing else. Intervals are percentile bootstrap, 95 %."
    )
    return notes


def _no_answer_notes(predictions: pl.DataFrame) -> Iterator[str]:
    """Say for each cell how many of its test questions have no answer, if any."""
    cell = ["model", "dataset"]
    tested = predictions.filter(split="test").unique([*cell, "question_id"])
    counts = tested.group_by(cell).agg(pl.len(), pl.col("no_answer").count()).sort(cell)
    for model, dataset, questions, n in counts.iter_rows():
        if n:
            yield (
                f"{model}/{dataset}: {n} of {questions} test questions have no answer: all samples are empty "
                "or decline to answer. No method scores these questions, and no metric counts them."
            )


def _length_notes(run: Run) -> Iterator[str]:
    """Say where answers to the user's own questions were cut, and how many were."""
    for cell in run.study.cells():
        spec = run.study.dataset(cell.dataset)
        if isinstance(spec, ResponsesSpec) or spec.card.max_tokens is not None:
            continue
        sampling = run.study.sampling_of(cell)
        reasons = pc.list_flatten(run.responses(cell).read(["finish_reasons"])["finish_reasons"])
        n_cut = pc.sum(pc.equal(reasons, "length")).as_py() or 0
        stop = f"the first {' or '.join(map(repr, sampling.stop))}" if sampling.stop else "no stop text"
        yield (
            f"{cell}: answers were sampled with at most {sampling.max_tokens} tokens and {stop}; "
            f"{n_cut} of {len(reasons)} reached that length and were cut (see sampling.max_tokens)."
        )


def _agreements(run: Run, cell: Cell) -> Iterator[tuple[str, str, str, Agreement]]:
    """Cohen's kappa between the study's judge and each further one, on the answers that both were given."""
    first = cell_inputs(run, cell)
    votes = _votes(first.labels)
    for name, second in second_labels(run, cell).items():
        pairs = [
            pair
            for question, others in _votes(second).items()
            for pair in zip(votes.get(question) or [], others or [], strict=False)
        ]
        if not pairs:
            continue
        left, right = np.array(pairs, np.float64).T  # a missing vote is NaN
        found = agreement(left, right, n_resamples=run.study.evaluation.bootstrap, seed=run.study.seed)
        yield str(cell), first.judge, name, found


def _votes(labels: Published) -> dict[str, list[int | None] | None]:
    return dict(rows_of(labels, ["question_id", "votes"]).iter_rows())


LATEST = "main, as cached"


def sources(run: Run) -> list[ProvenanceRow]:
    """Data sets first, then models, judges, and the encoder."""
    rows = [_data(run, spec) for spec in run.study.datasets if isinstance(spec, QuestionsSpec)]
    if rows:
        rows += [_model("model", card_of(m), m.revision, m.base_url) for m in run.study.models]
    judges = [card for d in run.study.datasets for card in run.study.judge_of(d.name).models]
    rows += [_model("judge", model_card(name), None) for name in dict.fromkeys(judges)]
    return [*rows, _encoder(run.study.encoder.name)]


def _encoder(name: str) -> ProvenanceRow:
    if name not in ENCODER_CARDS:
        return ProvenanceRow("encoder", name, "local", "", "unknown", gated=False)
    card = ENCODER_CARDS.get(name)
    return _weights("encoder", name, card, card.hub_id, card.revision, ENCODERS.get(name))


def _data(run: Run, spec: QuestionsSpec) -> ProvenanceRow:
    manifest = run.store.require("questions", Partition.of(dataset=spec.name)).manifest
    source = "package" if spec.card.packaged else ", ".join(files.repo for files in spec.card.hub)
    source = str(spec.path.name) if spec.path else source
    revision, licence = manifest.get("revision", ""), manifest.get("licence", spec.card.licence)
    return ProvenanceRow("data set", spec.name, source, str(revision), str(licence), spec.card.gated)


def _model(role: str, card: ModelCard, revision: str | None, server: str | None = None) -> ProvenanceRow:
    if card.engine == "openai":
        where = f" at {without_credentials(server)}" if server else ""
        return ProvenanceRow(role, card.name, card.source + where, "as served", card.licence, gated=False)
    packaged = card.weights.data if card.weights else GGUF_MODELS.get(card.source.removeprefix(EMBEDDED))
    return _weights(role, card.name, card, card.source, revision or card.revision, packaged)


def _weights(
    role: str, name: str, card: ModelCard | EncoderCard, source: str, revision: str | None,
    packaged: PackagedFile | None,
) -> ProvenanceRow:  # fmt: skip
    """Of a file of a package, where there is one, else of ``source``."""
    if packaged:
        source, revision = packaged.distribution, f"sha256 {packaged.sha256[:16]}"
    return ProvenanceRow(role, name, source, revision or LATEST, card.licence, card.gated)
