"""Where the files of an entailment classifier lie on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sgpu.errors import IntegrityError
from sgpu.models import weights
from sgpu.models.weights import PICKLED

DEFAULT_MODEL = "microsoft/deberta-large-mnli"


@dataclass(frozen=True)
class ClassifierCard:
    """One entailment classifier that a study may name short.

    ``revision`` None means whichever is cached; the commit is recorded.
    """

    hub_id: str
    licence: str
    revision: str | None = None
    gated: bool = False


CARDS = {
    "deberta-large-mnli": ClassifierCard(DEFAULT_MODEL, "MIT", "7296194b9009373def4f7c5dad292651e4b5cf4e"),
    "deberta-v2-xlarge-mnli": ClassifierCard("microsoft/deberta-v2-xlarge-mnli", "MIT"),
}


def locate(model: str, revision: str | None = None) -> Path:
    """Return the folder of a classifier given by card name, hub id or path; nothing is downloaded.

    Raises DataError where the files are not on this machine, IntegrityError where their weights are in
    another format than safetensors or one `pytorch_model.bin`.
    """
    model, revision = hub_name(model, revision)
    folder = Path(model)
    if not folder.is_dir():
        remedies = (
            f"{weights.download_command(model, revision)}, name a folder that holds it, or choose another "
            "entailment.backend in the study (cosine, alias, llm)"
        )
        folder = weights.hub_snapshot(model, revision, f"the entailment model {model!r}", remedies)
    if not any(folder.glob("*.safetensors")) and not (folder / PICKLED).is_file():
        raise IntegrityError(
            f"{folder} holds neither a .safetensors file nor {PICKLED}; weights in other formats are not "
            "read. Take a revision that has one of them."
        )
    return folder


def hub_name(model: str, revision: str | None) -> tuple[str, str | None]:
    """Return hub id and revision of a classifier given by card name or hub id; a path stands for itself."""
    card = CARDS.get(model) or next((each for each in CARDS.values() if each.hub_id == model), None)
    return (card.hub_id, revision or card.revision) if card is not None else (model, revision)


def safetensors_folder(folder: Path) -> Path:
    """Return where the classifier in ``folder`` has its safetensors: there, or converted once in the cache.

    Raises IntegrityError where pickled weights hold anything but tensors.
    """
    return folder if any(folder.glob("*.safetensors")) else weights.converted_weights(folder / PICKLED)


def find_commit(folder: Path) -> str | None:
    """Return the commit of a folder in the hub's cache; None for any other folder."""
    return folder.name if folder.parent.name == "snapshots" else None
