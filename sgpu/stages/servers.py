"""The servers of a study: each is asked, before any work, whether it, its key and its model are there."""

from __future__ import annotations

import os

from sgpu.runtime.address import named_cluster
from sgpu.runtime.bill import Bill, Paying, Terms
from sgpu.runtime.run import Run
from sgpu.storage.store import Partition
from sgpu.study.benchmark import Cell, Study
from sgpu.study.models import card_of, served_config
from sgpu.study.specs import BudgetSpec, ModelSpec


def check_servers(run: Run) -> None:
    """Ask the servers of all cells whose answers are not there yet; see `check_server`."""
    for model in dict.fromkeys(cell.model for cell in run.study.cells() if _is_open(run, cell)):
        check_server(run, run.study.model(model))


def terms_of(study: Study, spec: ModelSpec) -> Terms:
    """How the calls of a model's server are paid in this study."""
    price = (spec.price.input, spec.price.output) if spec.price else (0.0, 0.0)
    budget = study.budget or BudgetSpec()
    return Terms(spec.name, price, budget.tokens, budget.usd)


def check_server(run: Run, spec: ModelSpec) -> None:
    """Raise UsageError if a model's server does not answer, refuses the key or does not know the model."""
    if (spec.engine or card_of(spec).engine) != "openai" or spec.name in run.checked_servers:
        return
    if named_cluster(run.address) and spec.api_key_env and spec.api_key_env not in os.environ:
        return  # the nodes that ask may have the key
    from sgpu.engines.openai import OpenAIEngine

    # A check may cost a token.
    engine = OpenAIEngine(served_config(spec), purse=Paying(Bill(run.root, terms_of(run.study, spec))))
    try:
        engine.check()
    finally:
        engine.close()
    run.checked_servers.add(spec.name)


def _is_open(run: Run, cell: Cell) -> bool:
    if run.is_given(cell):
        return False
    answers = run.store.published("responses", Partition.of(model=cell.model, dataset=cell.dataset))
    return answers is None or bool(answers.manifest.get("rows_waiting"))
