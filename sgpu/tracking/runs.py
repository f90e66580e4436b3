"""Studies and cells as MLflow runs.

Everything goes through a client that was given its store: no active run and no global address, so a study
can be tracked inside a process that uses MLflow for something else.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.tracking.context.registry import resolve_tags
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT, MLFLOW_PARENT_RUN_ID

from sgpu.errors import StageError, UsageError
from sgpu.provenance import code_version
from sgpu.storage.store import Published, fingerprint
from sgpu.tracking.base import CHAMPION, RegisteredFit, flatten
from sgpu.tracking.fits import registered_fit
from sgpu.tracking.store import OpenStore, store_errors
from sgpu.visible import masked

STUDY = "sgpu.study_fingerprint"
CELL = "sgpu.cell_fingerprint"
DAY = "sgpu.day_fingerprint"
ERROR = "sgpu.error"
DIGEST_LENGTH = 36  # MLflow's bound on a data set's digest; the whole fingerprint stands in a tag


class MlflowTracker:
    """Where studies and fits are recorded: an open store."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store

    @contextmanager
    def study(
        self, name: str, params: Mapping[str, Any], tags: Mapping[str, str] | None = None
    ) -> Iterator[MlflowStudyRun]:
        """The parent run of a study; an unfinished run of the same name and params is taken up again.

        ``params`` is what decides the results (not paths, not worker counts): it identifies the study. The
        run ends as FINISHED, FAILED (an exception) or KILLED (an interrupt).
        """
        with store_errors(f"start the run of study {name!r}"):
            run_id = _take_up(self._store, STUDY, fingerprint({"study": name, "params": params}), name)
            self._store.client.log_batch(run_id, params=_params(params), tags=_tags(tags))
        try:
            yield MlflowStudyRun(self._store, run_id)
        except BaseException as error:
            self._end_quietly(run_id, "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED", error)
            raise
        with store_errors(f"finish the run of study {name!r}"):
            self._store.client.set_terminated(run_id, "FINISHED")

    def _end_quietly(self, run_id: str, status: str, cause: BaseException) -> None:
        """Record the end of a run; a store that fails now must not hide why the study failed."""
        try:
            with store_errors("record that the study failed"):
                self._store.client.set_tag(run_id, ERROR, f"{type(cause).__name__}: {cause}")
                self._store.client.set_terminated(run_id, status)
        except StageError as error:
            cause.add_note(str(error))

    def log_day(
        self, day: str, table: str, metrics: Mapping[str, float], tags: Mapping[str, str] | None = None
    ) -> str:
        """Log a day of scores as one run, and return its id.

        The same day of the same table is the same run, whose metrics and tags then say how it stands now.
        ``tags`` are what may differ between two runs for a day: model version, input snapshot, verdict.
        """
        with store_errors(f"log the scores of {day}"):
            identity = {"day": day, "table": table}
            run_id = _take_up(self._store, DAY, fingerprint(identity), f"score {day}", finished_too=True)
            _log_metrics(self._store, run_id, metrics, identity, tags)
            self._store.client.set_terminated(run_id, "FINISHED")
        return run_id

    def register_fit(
        self,
        bundle: Path,
        name: str,
        *,
        n_answers: int,
        alias: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        run_id: str | None = None,
    ) -> RegisteredFit:
        """Register a fit's folder as a new version of model ``name``, or find the version that holds it.

        ``n_answers`` is the N that the fit was trained for, ``run_id`` the run that made it. The alias
        moves to this version; ``champion`` is refused here, see `open_versions`. Raises IntegrityError for a
        bundle with anything but safetensors and JSON.
        """
        if alias == CHAMPION:
            raise UsageError(
                f"registering a fit never moves the alias {CHAMPION!r}; register it under another alias, "
                "compare it, then promote its version"
            )
        with store_errors(f"register {bundle} as {name!r}"):
            facts = {**(metadata or {}), "n_answers": str(n_answers)}
            fit = registered_fit(self._store, bundle, name, facts, run_id)
            if alias is not None:
                self._store.client.set_registered_model_alias(name, alias, str(fit.version))
        return fit


class MlflowStudyRun:
    """The parent run of one study, and its cells as nested runs; ``run_id`` is MLflow's id of it."""

    def __init__(self, store: OpenStore, run_id: str) -> None:
        self._store = store
        self._client = store.client
        self.run_id = run_id

    def log_cell(
        self,
        model: str,
        dataset: str,
        *,
        settings: Mapping[str, Any],
        metrics: Iterable[Mapping[str, Any]] = (),
        inputs: Mapping[str, Published] | None = None,
        artifacts: Sequence[Path] = (),
        error: str | None = None,
    ) -> str:
        """Log one cell as a nested run and return its id; ``error`` marks the cell as failed.

        ``metrics`` are rows of the metrics table, ``inputs`` the tables that it was made from, by their
        folders. The same cell with the same settings uses the same run.
        """
        identity = {"study": self.run_id, "model": model, "dataset": dataset, "settings": settings}
        values, missing = metric_values(metrics)
        with store_errors(f"log cell {model}/{dataset}"):
            run_id = _take_up(self._store, CELL, fingerprint(identity), f"{model}/{dataset}", self.run_id)
            tags = {"sgpu.model": model, "sgpu.dataset": dataset, "sgpu.metrics_missing": str(missing)}
            tags |= {ERROR: error} if error else {}
            params = {"model": model, "dataset": dataset, **settings}
            _log_metrics(self._store, run_id, values, params, tags)
            if inputs:
                self._client.log_inputs(run_id, [_lineage(*table) for table in inputs.items()])
            for path in artifacts:
                self._client.log_artifact(run_id, str(path))
            self._client.set_terminated(run_id, "FAILED" if error else "FINISHED")
        return run_id

    def log_artifact(self, path: Path, artifact_path: str | None = None) -> None:
        """Keep a file, or a folder with all it holds, with the study."""
        with store_errors(f"keep {path} with the study"):
            self._client.log_artifact(self.run_id, str(path), artifact_path)

    def log_report(self, path: Path) -> None:
        """Keep the report, a folder with its page, under ``report/``."""
        with store_errors(f"keep the report {path} with the study"):
            self._client.log_artifacts(self.run_id, str(path), "report")


def metric_values(rows: Iterable[Mapping[str, Any]]) -> tuple[dict[str, float], int]:
    """Rows of the metrics table as ``metric/method[/lo|/hi]`` -> value, and how many values are missing.

    A missing value is left out, never logged as 0; an interval that was not asked for is not missing.
    """
    values: dict[str, float] = {}
    missing = 0
    for row in rows:
        key = f"{row['metric']}/{row['method']}"
        for suffix, column in (("", "value"), ("/lo", "lo"), ("/hi", "hi")):
            number = row.get(column)
            if number is not None and math.isfinite(number):
                values[key + suffix] = float(number)
            elif column == "value":
                missing += 1
    return values, missing


def _log_metrics(
    store: OpenStore,
    run_id: str,
    values: Mapping[str, float],
    params: Mapping[str, Any],
    tags: Mapping[str, str] | None,
) -> None:
    logged = store.client.get_run(run_id).data.metrics
    now = int(time.time() * 1000)
    # A value that already stands there is not a second point of a curve.
    metrics = [Metric(key, value, now, 0) for key, value in values.items() if logged.get(key) != value]
    store.client.log_batch(run_id, metrics=metrics, params=_params(params), tags=_tags(tags))


def _take_up(
    store: OpenStore,
    tag: str,
    content_hash: str,
    name: str,
    parent: str | None = None,
    *,
    finished_too: bool = False,
) -> str:
    """The run with this fingerprint, running again; a new one if there is none to take up.

    A study that finished is over: the same study again is a new run. A cell belongs to its parent run and
    is simply completed, and so is a day (``finished_too``).
    """
    status = " and attributes.status != 'FINISHED'" if parent is None and not finished_too else ""
    runs = store.client.search_runs(
        [store.experiment_id],
        filter_string=f"tags.`{tag}` = '{content_hash}'{status}",
        order_by=["attributes.start_time DESC"],
        max_results=1,
    )
    if runs:
        run_id = str(runs[0].info.run_id)
        store.client.update_run(run_id, status="RUNNING")
        if ERROR in runs[0].data.tags:
            store.client.delete_tag(run_id, ERROR)
        return run_id
    own = {tag: content_hash, "sgpu.code_version": code_version()}
    if parent is not None:
        own[MLFLOW_PARENT_RUN_ID] = parent
    created = store.client.create_run(store.experiment_id, run_name=name, tags=resolve_tags(own))
    return str(created.info.run_id)


def _params(settings: Mapping[str, Any]) -> list[Param]:
    return [Param(key, value) for key, value in flatten(masked(settings)).items()]


def _tags(tags: Mapping[str, str] | None) -> list[RunTag]:
    return [RunTag(key, value) for key, value in (tags or {}).items()]


def _lineage(folder: str, table: Published) -> DatasetInput:
    """The table as MLflow knows Delta tables, so that `mlflow.data.get_source` finds path and version."""
    source = {"path": folder, "delta_table_version": table.version}
    return DatasetInput(
        Dataset(
            name=table.table,
            digest=table.fingerprint[:DIGEST_LENGTH],
            source_type="delta_table",
            source=json.dumps(source),
            profile=json.dumps({"num_rows": table.rows}),
        ),
        tags=[
            InputTag(MLFLOW_DATASET_CONTEXT, "evaluation"),
            InputTag("delta_version", str(table.version)),
            InputTag("fingerprint", table.fingerprint),
        ],
    )
