"""Which models a run uses: what their names meant when it began, even if it was killed and goes on later.

Their files are fetched if they are not on this machine, and opened in a worker.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgpu.errors import DataError
from sgpu.fitted.pinned_model import MODELS, PinnedModel, resolve_model
from sgpu.gp.persistence import read_json
from sgpu.logs.snapshot import Snapshot
from sgpu.runtime.stage import imported
from sgpu.scoring.plan import DayPlan, ModelName, Models, request_content
from sgpu.scoring.settings import ScoreSettings
from sgpu.storage.bundle_files import BUNDLE, BUNDLE_FORMAT
from sgpu.storage.location import Location
from sgpu.storage.store import SHORT, fingerprint

if TYPE_CHECKING:
    from sgpu.scoring.models.scorer import Scorer


@dataclass(frozen=True)
class Pin:
    """The models of an unfinished run; ``request`` is all that was asked, with the models by their URIs."""

    file: Location
    models: Models
    kept: bool = False  # whether an unfinished run began with them

    def keep(self) -> None:
        self.file.write_json(asdict(self.models))

    def forget(self) -> None:
        """The next run looks up again what the names mean."""
        self.file.delete()


def pinned(settings: ScoreSettings, day: date, snapshot: Snapshot, models: Path) -> Pin:
    """The models of the unfinished run that asked for the same, if their files are there still, or what the
    URIs mean now.

    ``models`` is the folder of this machine that holds their files. Raises what `resolve_model` raises.
    """
    out = Location.of(settings.out)
    request = fingerprint(
        {
            **request_content(settings, day, snapshot),
            "model": settings.model,
            "challenger": settings.challenger,
        }
    )
    file = out / "work" / "pins" / f"{request[:SHORT]}.json"
    if (kept := file.read_json()) is not None:
        of_before = Models.from_json(kept)
        present = (
            (models / MODELS / model.sha256).is_dir() or _shared(out, model) for model in of_before.both
        )
        if all(present):
            return Pin(file, of_before, kept=True)
    uris = [settings.model, *([settings.challenger] if settings.challenger else [])]
    resolved = [resolve_model(uri, models, settings.tracking) for uri in uris]
    named = [_name_model(model) for model in resolved]
    for model, name in zip(resolved, named, strict=True):
        # For workers on other machines, and for later runs.
        if not out.is_local and _shared(out, name) is None:
            (out / "work" / MODELS / name.sha256).upload(model.folder)
    return Pin(file, Models(*named))


def _name_model(model: PinnedModel) -> ModelName:
    """Return what a plan keeps of a model. Its files are not opened otherwise: that would take PyTorch."""
    described = read_json(model.folder / BUNDLE, BUNDLE_FORMAT)
    return ModelName(model.uri, model.name, model.version, model.sha256, "content_sha256" in described)


VECTORS = "vectors.sqlite"


def open_scorer(plan: DayPlan, models: Path) -> Scorer:
    """``models``: the folder of this machine that holds them. IntegrityError where files were changed."""
    # Here, as a night that finds nothing new opens no model and should not wait for torch.
    from sgpu.scoring.models.embedding_cache import EmbeddingCache
    from sgpu.scoring.models.scorer import Scorer

    challenger, cache_mb = plan.models.challenger, plan.settings.cache_mb
    return Scorer(
        model_folder(plan.out, plan.models.champion, models),
        None if challenger is None else model_folder(plan.out, challenger, models),
        plan.settings.device,
        EmbeddingCache(models / VECTORS, int(cache_mb * 2**20)) if cache_mb else None,
        plan.settings.allow_encoder_path,
    )


SCORER = f"{__name__}:{open_scorer.__name__}"


class ScorerSource:
    """Opens the models of a plan; they stay open until another plan has others, as few days of a run do.

    ``opener`` ("module:function") does it, ``models`` is the folder of this machine that holds their files.
    """

    def __init__(self, models: Path, opener: str = SCORER) -> None:
        self._given = models, opener
        self._opened: tuple[Models, Scorer] | None = None

    def __reduce__(self) -> Any:  # models stay in their process
        return ScorerSource, self._given

    def of(self, plan: DayPlan) -> Scorer:
        if self._opened is None or self._opened[0] != plan.models:
            self._opened = None  # the old models go before the new ones come
            models, opener = self._given
            self._opened = plan.models, imported(opener)(plan, models)
        return self._opened[1]


def _shared(out: Location, model: ModelName) -> Location | None:
    """The folder beside a table in object storage that holds the model's files; None where none does."""
    folder = out / "work" / MODELS / model.sha256
    return folder if not out.is_local and folder.files(recursive=True) else None


def model_folder(out: Location, model: ModelName, models: Path) -> Path:
    """The folder beneath ``models`` that holds a model's files, unchanged; DataError where they are gone."""
    folder = models / MODELS / model.sha256
    if not folder.is_dir():
        if (shared := _shared(out, model)) is None:
            raise DataError(f"{folder}: the files of {model.label} are gone; run the same command again")
        shared.download(folder)
    return PinnedModel(model.uri, model.name, model.version, model.sha256, folder).checked().folder
