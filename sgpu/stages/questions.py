"""Questions stage: a data set becomes rows of the questions table, split once and for all.

A data set of given responses also fills the responses table, and labels where the file has them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from sgpu.datasets.base import DATASETS
from sgpu.provenance import code_version
from sgpu.specs import ResponsesSpec, WorldfactsSpec
from sgpu.stages.run import Run, as_settings
from sgpu.stages.runner import Outcome
from sgpu.store import Partition, Published, fingerprint
from sgpu.tables import LABELS, QUESTIONS, RESPONSES, Table

VERSION = 1
GIVEN = "given"  # the judge's name of labels that came with the responses


def prepare(run: Run, dataset: str) -> Published:
    """Publish the questions of one data set, unless they are there already."""
    spec = run.study.dataset(dataset)
    if isinstance(spec, ResponsesSpec):
        return _import_responses(run, spec)
    return _build(run, spec)


def _build(run: Run, spec: WorldfactsSpec) -> Published:
    from sgpu.datasets.split import questions_table, split_questions

    source = DATASETS.get(spec.kind)(spec.options)
    content = {
        "stage": "questions",
        "stage_version": VERSION,
        "settings": as_settings(spec),
        "seed": run.study.seed,
        "validation_share": run.study.evaluation.validation_share,
        "revision": source.revision,
    }
    split = split_questions(
        source,
        n_train=spec.n_train,
        n_test=spec.n_test,
        seed=run.study.seed,
        validation_share=run.study.evaluation.validation_share,
    )
    rows = questions_table(split)
    extra = {
        "licence": source.licence,
        "citation": source.citation,
        "granted": [
            {"dataset": spec.name, "split": name, "requested": split.requested.get(name), "granted": granted}
            for name, granted in split.granted.items()
        ],
    }
    return _write(run, QUESTIONS, Partition.of(dataset=spec.name), rows, content, extra)


def _import_responses(run: Run, spec: ResponsesSpec) -> Published:
    from sgpu.datasets.responses import load

    # The file's own bytes are its revision: an edited file is another input.
    content: dict[str, Any] = {
        "stage": "import",
        "stage_version": VERSION,
        "settings": as_settings(spec.model_copy(update={"path": Path(spec.path.name)})),
        "seed": run.study.seed,
        "validation_share": run.study.evaluation.validation_share,
        "revision": _sha256(spec.path) if spec.path.is_file() else "absent",
    }
    cell = Partition.of(model=spec.model, dataset=spec.name)
    dataset = Partition.of(dataset=spec.name)
    if current := run.store.unchanged("questions", dataset, fingerprint(content)):
        run.remember(Outcome("import", current, reused=True))
        run.remember(Outcome("import", run.store.require("responses", cell), reused=True))
        return current
    loaded = load(
        spec.path,
        n=spec.n,
        test_share=spec.test_share,
        validation_share=run.study.evaluation.validation_share,
        seed=run.study.seed,
        name=spec.name,
    )
    quarantined = [
        {"file": spec.path.name, "line": item.line, "reason": item.reason, "remedy": item.remedy}
        for item in loaded.quarantined
    ]
    extra = {"n": loaded.n, "quarantined": quarantined, "source_sha256": loaded.source_sha256}
    # Questions last: they are what tells the next run that all of it is there.
    _write(run, RESPONSES, cell, loaded.responses, content, extra)
    if loaded.labels is not None:
        given = Partition.of(model=spec.model, dataset=spec.name, judge=GIVEN)
        _write(run, LABELS, given, loaded.labels, content, {})
    splits = Counter(loaded.questions["split"].to_pylist())
    extra |= {
        "has_labels": loaded.labels is not None,
        "granted": [
            {"dataset": spec.name, "split": name, "requested": None, "granted": count}
            for name, count in sorted(splits.items())
        ],
    }
    if quarantined:
        run.progress.say(f"  {len(quarantined)} rows of {spec.path.name} are quarantined; the first:")
        first = quarantined[0]
        run.progress.say(f"    line {first['line']}: {first['reason']}. {first['remedy']}")
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
        run.remember(Outcome(str(content["stage"]), current, reused=True))
        return current
    statuses = rows["status"].to_pylist() if "status" in rows.column_names else ["ok"] * rows.num_rows
    manifest = {
        **content, **extra, "code_version": code_version(), "rows_by_status": dict(Counter(statuses)),
    }  # fmt: skip
    published = run.store.write(table, partition, rows, key, manifest)
    run.remember(Outcome(str(content["stage"]), published, reused=False))
    return published


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
