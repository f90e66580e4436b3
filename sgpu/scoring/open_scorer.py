"""The models of a plan, opened in a worker: their files are fetched if they are not on this machine."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from sgpu.errors import DataError
from sgpu.location import Location
from sgpu.scoring.pinned_model import MODELS, PinnedModel
from sgpu.scoring.plan import ModelName, Plan
from sgpu.scoring.scorer import Scorer
from sgpu.training_profile import TrainingProfile


class OpenedScorer(Scorer):
    """A `Scorer` with what the champion's traffic is compared with."""

    @cached_property
    def profile(self) -> TrainingProfile | None:
        return self.champion.profile


def open_scorer(plan: Plan, models: str) -> OpenedScorer:
    """``models``: the folder of this machine that holds them. IntegrityError where files were changed."""
    challenger = plan.models.challenger
    return OpenedScorer(
        _folder(plan.out, plan.models.champion, Path(models)),
        None if challenger is None else _folder(plan.out, challenger, Path(models)),
        plan.settings.device,
    )


def share_models(out: Location, models: list[PinnedModel]) -> None:
    """Keep the files beside a table in object storage, for workers on other machines and for later runs."""
    for model in models:
        kept = out / "work" / MODELS / model.sha256
        if not out.is_local and not kept.files(recursive=True):
            kept.upload(model.folder)


def _folder(out: Location, model: ModelName, models: Path) -> Path:
    folder = models / MODELS / model.sha256
    if not folder.is_dir():
        kept = out / "work" / MODELS / model.sha256
        if out.is_local or not kept.files(recursive=True):
            raise DataError(f"{folder}: the files of {model.label} are gone; run the same command again")
        kept.download(folder)
    return PinnedModel(model.uri, model.name, model.version, model.sha256, folder).checked().folder
