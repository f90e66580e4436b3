"""Which models a run uses: what their names meant when it began, even if it was killed and goes on later."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from sgpu.fitted.pinned_model import PinnedModel, resolve_model
from sgpu.logs.snapshot import Snapshot
from sgpu.scoring.models.open_scorer import is_here, share_models
from sgpu.scoring.plan import ModelName, Models, request_content
from sgpu.scoring.settings import ScoreSettings
from sgpu.scoring.work_files import read_json, write_json
from sgpu.storage.location import Location
from sgpu.storage.store import SHORT, fingerprint


@dataclass(frozen=True)
class Pin:
    """The models of an unfinished run; ``request`` is all that was asked, with the models by their URIs."""

    file: Location
    models: Models
    kept: bool = False  # whether an unfinished run began with them

    def keep(self) -> None:
        write_json(self.file, self.models.to_json())

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
    if (kept := read_json(file)) is not None:
        of_before = Models.from_json(kept)
        if all(is_here(out, model, models) for model in of_before.both):
            return Pin(file, of_before, kept=True)
    uris = [settings.model, *([settings.challenger] if settings.challenger else [])]
    resolved = [resolve_model(uri, models, settings.tracking) for uri in uris]
    share_models(out, resolved)
    return Pin(file, Models(*map(_named, resolved)))


def _named(model: PinnedModel) -> ModelName:
    return ModelName(model.uri, model.name, model.version, model.sha256)
