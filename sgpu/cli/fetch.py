"""`sgpu fetch`: everything of a study that comes from the Hub, in one folder, before a machine without it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from sgpu.models.fetched import fetch_repositories
from sgpu.stages.preflight import hub_repositories, missing_datasets
from sgpu.storage.location import Location
from sgpu.study.benchmark import load_study


def fetch_study(study_file: Path, to: str | None, overrides: Sequence[str]) -> None:
    """Fetch what a study reads from the Hub into a Hugging Face home, by default that of this machine.

    Raises UsageError for a place in object storage, DataError as `fetch_repositories` does.
    """
    from huggingface_hub import constants

    study = load_study(study_file, overrides)
    home, cache = Path(constants.HF_HOME), Path(constants.HF_HUB_CACHE)
    if to is not None:
        home = Location.of(Path(to)).local
        cache = home / "hub"
    console = Console(stderr=True, highlight=False)
    record = fetch_repositories(
        hub_repositories(study),
        home,
        cache,
        lambda line: console.print(line, markup=False, soft_wrap=True),
        missing_datasets(study),
    )
    console.print(
        f"Run the study with HF_HOME={home} HF_HUB_OFFLINE=1; on other machines, with a copy of that folder.",
        markup=False,
        soft_wrap=True,
    )
    print(record)
