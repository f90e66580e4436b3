"""Where the files of an entailment classifier lie on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sgpu.errors import IntegrityError
from sgpu.models import weights

DEFAULT_MODEL = "microsoft/deberta-large-mnli"


@dataclass(frozen=True)
class ClassifierCard:
    """One entailment classifier that a study may name short.

    ``revision`` None means whichever is cached; the commit is recorded. Both main branches have lacked
    .safetensors files, so a study names the revision that converts them.
    """

    hub_id: str
    licence: str
    revision: str | None = None
    gated: bool = False


CARDS = {
    "deberta-large-mnli": ClassifierCard(DEFAULT_MODEL, "MIT"),
    "deberta-v2-xlarge-mnli": ClassifierCard("microsoft/deberta-v2-xlarge-mnli", "MIT"),
}


def locate(model: str, revision: str | None = None) -> Path:
    """The folder of a classifier given by card name, hub id or path; nothing is downloaded.

    Raises DataError where the files are not on this machine, IntegrityError where their weights are in
    another format than safetensors.
    """
    card = CARDS.get(model)
    if card is not None:
        model, revision = card.hub_id, revision or card.revision
    folder = Path(model)
    if not folder.is_dir():
        remedies = (
            f"{weights.download_command(model, revision)}, name a folder that holds it, or choose another "
            "entailment.backend in the study (cosine, alias, llm)"
        )
        folder = weights.hub_snapshot(model, revision, f"the entailment model {model!r}", remedies)
    if not any(folder.glob("*.safetensors")):
        raise IntegrityError(
            f"{folder} holds no .safetensors file; weights in other formats are refused: reading them "
            "can run code. Take a revision that has them (the hub offers a conversion as a pull request), or "
            "convert the files once on a machine that you trust and name that folder."
        )
    return folder


def commit(folder: Path) -> str | None:
    """The commit of a folder in the hub's cache; None for any other folder."""
    return folder.name if folder.parent.name == "snapshots" else None
