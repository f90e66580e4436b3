"""The models of a plan, opened in a worker: their files are fetched if they are not on this machine."""

from __future__ import annotations

from pathlib import Path

from sgpu.errors import DataError
from sgpu.fitted.pinned_model import MODELS, PinnedModel
from sgpu.scoring.models.embedding_cache import EmbeddingCache
from sgpu.scoring.models.scorer import Scorer
from sgpu.scoring.plan import ModelName, Plan
from sgpu.storage.location import Location

VECTORS = "vectors.sqlite"


def open_scorer(plan: Plan, models: str) -> Scorer:
    """``models``: the folder of this machine that holds them. IntegrityError where files were changed."""
    challenger, cache_mb = plan.models.challenger, plan.settings.cache_mb
    return Scorer(
        _folder(plan.out, plan.models.champion, Path(models)),
        None if challenger is None else _folder(plan.out, challenger, Path(models)),
        plan.settings.device,
        EmbeddingCache(Path(models) / VECTORS, int(cache_mb * 2**20)) if cache_mb else None,
        plan.settings.allow_encoder_path,
    )


def share_models(out: Location, models: list[PinnedModel]) -> None:
    """Keep the files beside a table in object storage, for workers on other machines and for later runs."""
    for model in models:
        kept = out / "work" / MODELS / model.sha256
        if not out.is_local and not kept.files(recursive=True):
            kept.upload(model.folder)


def is_here(out: Location, model: ModelName, models: Path) -> bool:
    """Whether the model's files are on this machine, or beside the table."""
    if (models / MODELS / model.sha256).is_dir():
        return True
    return not out.is_local and bool((out / "work" / MODELS / model.sha256).files(recursive=True))


def _folder(out: Location, model: ModelName, models: Path) -> Path:
    folder = models / MODELS / model.sha256
    if not folder.is_dir():
        kept = out / "work" / MODELS / model.sha256
        if out.is_local or not kept.files(recursive=True):
            raise DataError(f"{folder}: the files of {model.label} are gone; run the same command again")
        kept.download(folder)
    return PinnedModel(model.uri, model.name, model.version, model.sha256, folder).checked().folder
