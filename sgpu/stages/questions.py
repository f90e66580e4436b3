"""Questions stage: a data set becomes rows of the questions table, split once and for all.

A data set of given responses also fills the responses table, and labels where the file has them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from sgpu.datasets.base import DATASETS, LoadRequest, RejectedRow, Source
from sgpu.datasets.fetch import Located, download, located
from sgpu.datasets.split import SplitResult, question_batches, split_questions
from sgpu.hashing import sha256_of_file
from sgpu.provenance import code_version
from sgpu.runtime.stage import Outcome
from sgpu.stages.run import Run, as_settings
from sgpu.storage.store import Partition, Published, fingerprint
from sgpu.storage.tables import LABELS, QUESTIONS, RESPONSES, Table
from sgpu.study.data_specs import QuestionsSpec, ResponsesSpec

VERSION = 2
REJECTED_KEPT = 10_000  # of the source's rows, with their reasons, in the manifest; all are counted
GIVEN_LABELS = "given"  # the judge's name of labels that came with the responses


def prepare_questions(run: Run, dataset: str) -> Published:
    """Publish the questions of one data set, unless they are there already."""
    spec = run.study.dataset(dataset)
    if isinstance(spec, ResponsesSpec):
        return _import_responses(run, spec)
    return _prepare_questions(run, spec)


def _prepare_questions(run: Run, spec: QuestionsSpec) -> Published:
    """From the source to our own shards. Where the source is out of sight, what was prepared is used."""
    partition = Partition.of(dataset=spec.name)
    settings = _settings(run, spec)
    current = run.store.published("questions", partition)
    same = current is not None and current.manifest.get("settings") == settings
    last_state = current.manifest.get("source_state") if current and same else None
    location = located(spec.card, spec.path, spec.revision, last_state)
    content = {
        "stage": "questions",
        "stage_version": VERSION,
        "settings": settings,
        "source_state": location.state,
    }
    key = fingerprint(content)
    if current := run.store.unchanged("questions", partition, key):
        return run.remember(Outcome("prepare", current, reused=True)).published
    started = time.monotonic()
    split, source, extra = _split(run, spec, location)
    unreadable: list[RejectedRow] = []
    files = run.store.write_shards(
        QUESTIONS, partition, _shown(run, spec, question_batches(split, unreadable), len(split.rows)), key
    )
    rows, rejected = sum(files.values()), [*source.rejected, *unreadable]
    manifest = {
        **content,
        **extra,
        "code_version": code_version(),
        "rows": rows,
        "rows_by_status": {"ok": rows},
        "seconds": round(time.monotonic() - started, 3),
        **_rejection(rejected),
    }
    run.store.publish(QUESTIONS, partition, key, manifest, files)
    published = run.store.require("questions", partition)
    run.remember(Outcome("prepare", published, reused=False, seconds=float(manifest["seconds"])))
    for note in source.notes:
        run.progress.say(f"  {note}")
    _report_rejected(run, rejected)
    return published


def _settings(run: Run, spec: QuestionsSpec) -> dict[str, Any]:
    """What decides the rows, without where the source lies: its state says which files they are."""
    names = {"kind", "name", "revision", "n_train", "n_test", "check_rows", "options"}
    if spec.n_validation is not None:
        names.add("n_validation")
    return {
        **spec.model_dump(mode="json", include=names),
        "seed": run.study.seed,
        "validation_share": run.study.evaluation.validation_share,
        **DATASETS.plugins(spec.kind),
    }


def _split(run: Run, spec: QuestionsSpec, location: Located) -> tuple[SplitResult, Source, dict[str, Any]]:
    card, root = spec.card, location.root
    if root is None and card.hub:
        commits = location.state.removeprefix("hub:").split(",")
        run.progress.say(f"{spec.name}: fetching {', '.join(files.repo for files in card.hub)}")
        root = download(card, commits)
    request = LoadRequest(root, location.revision, spec.options, spec.check_rows)
    source = card.load(request)
    split = split_questions(
        source,
        n_train=spec.n_train,
        n_test=spec.n_test,
        n_validation=spec.n_validation,
        seed=run.study.seed,
        validation_share=run.study.evaluation.validation_share,
    )
    extra = {
        "revision": source.revision,
        "licence": source.licence,
        "citation": source.citation,
        "notes": list(source.notes),
        "split_rule": split.rule,
        "ids_sha256": split.ids_sha256,
        "pools": {name: len(questions) for name, questions in source.pools.items()},
        "granted": _granted(spec.name, split.granted, split.requested),
    }
    return split, source, extra


def _granted(dataset: str, granted: Mapping[str, int], requested: Mapping[str, int]) -> list[dict[str, Any]]:
    return [
        {"dataset": dataset, "split": split, "requested": requested.get(split), "granted": count}
        for split, count in granted.items()
    ]


def _shown(run: Run, spec: QuestionsSpec, batches: Iterator[pa.Table], total: int) -> Iterator[pa.Table]:
    """The batches, with a bar for a person."""
    done = 0
    with run.progress.stage(f"prepare {spec.name}", total) as bar:
        for batch in batches:
            yield batch
            done += batch.num_rows
            bar.show({"rows": done})


def _rejection(rejected: Sequence[RejectedRow]) -> dict[str, Any]:
    """Return the part of a manifest that says which rows of the source could not be used."""
    return {"n_rejected": len(rejected), "rejected": [vars(row) for row in rejected[:REJECTED_KEPT]]}


def _report_rejected(run: Run, rejected: Sequence[RejectedRow]) -> None:
    """Print how many rows of the source could not be used, and the first of them."""
    for row in rejected[:1]:
        run.progress.say(f"  {len(rejected)} rows of the source are quarantined; the first:")
        run.progress.say(f"    {row.file}, {row.row}: {row.reason}. {row.remedy}")


def _import_responses(run: Run, spec: ResponsesSpec) -> Published:
    from sgpu.datasets.responses import load_responses

    # The file's own bytes are its revision: an edited file is another input.
    content: dict[str, Any] = {
        "stage": "import",
        "stage_version": VERSION,
        "settings": as_settings(spec.model_copy(update={"path": Path(spec.path.name)})),
        "seed": run.study.seed,
        "validation_share": run.study.evaluation.validation_share,
        "revision": sha256_of_file(spec.path) if spec.path.is_file() else "absent",
    }
    cell = Partition.of(model=spec.model, dataset=spec.name)
    dataset = Partition.of(dataset=spec.name)
    if current := run.store.unchanged("questions", dataset, fingerprint(content)):
        run.remember(Outcome("import", current, reused=True))
        run.remember(Outcome("import", run.store.require("responses", cell), reused=True))
        return current
    loaded = load_responses(
        spec.path,
        n=spec.n,
        test_share=spec.test_share,
        validation_share=run.study.evaluation.validation_share,
        seed=run.study.seed,
        name=spec.name,
    )
    rejected = [replace(row, file=spec.path.name) for row in loaded.quarantined]
    extra = {"n": loaded.n, "source_sha256": loaded.source_sha256}
    # Questions last: they are what tells the next run that all of it is there.
    _write(run, RESPONSES, cell, loaded.responses, content, extra)
    if loaded.labels is not None:
        labelled_cell = Partition.of(model=spec.model, dataset=spec.name, judge=GIVEN_LABELS)
        _write(run, LABELS, labelled_cell, loaded.labels, content, {})
    splits = Counter(loaded.questions["split"].to_pylist())
    extra |= {
        "has_labels": loaded.labels is not None,
        "granted": _granted(spec.name, dict(sorted(splits.items())), {}),
        **_rejection(rejected),
    }
    _report_rejected(run, rejected)
    return _write(run, QUESTIONS, dataset, loaded.questions, content, extra)


def _write(
    run: Run,
    table: Table,
    partition: Partition,
    rows: pa.Table,
    content: dict[str, Any],
    extra: dict[str, Any],
) -> Published:
    key = fingerprint(content)
    if current := run.store.unchanged(table.name, partition, key):
        return run.remember(Outcome(str(content["stage"]), current, reused=True)).published
    statuses = rows["status"].to_pylist() if "status" in rows.column_names else ["ok"] * rows.num_rows
    manifest = {
        **content, **extra, "code_version": code_version(), "rows_by_status": dict(Counter(statuses)),
    }  # fmt: skip
    published = run.store.write(table, partition, rows, key, manifest)
    return run.remember(Outcome(str(content["stage"]), published, reused=False)).published
