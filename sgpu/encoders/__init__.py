"""Sentence encoders: texts to unit vectors, response sets to spectra."""

from __future__ import annotations

from sgpu.encoders.base import Encoder
from sgpu.encoders.cards import ENCODERS, EncoderCard, find_encoder, weights_sha256
from sgpu.errors import MissingDependencyError

__all__ = ["ENCODERS", "Encoder", "EncoderCard", "encoder_fingerprint", "find_encoder", "load_encoder"]


def load_encoder(
    name: str, dtype: str = "auto", device: str = "auto", fixed_batches: bool = False
) -> Encoder:
    """Load an encoder by card name, hub id or path of a local folder; never from the network.

    ``dtype`` is "auto" (bfloat16 where the hardware has it), "float32" or "bfloat16"; ``device`` is
    "auto", "cpu" or "cuda". ``fixed_batches`` makes a vector independent of the other texts of its call,
    see `sgpu.encoders.sentence`. Raises UsageError (unknown name or dtype), DataError (files not here) and
    IntegrityError (files that are not what the card says).
    """
    card, folder = find_encoder(name)
    if folder is None:
        assert card.load is not None
        return card.load(dtype, device, fixed_batches)
    try:
        from sgpu.encoders.sentence import SentenceEncoder
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"encoder {name!r} needs the package {error.name!r}, which is not installed."
        ) from error
    return SentenceEncoder(card, folder, dtype, device, fixed_batches)


def encoder_fingerprint(name: str) -> str:
    """What `Encoder.fingerprint` would say, from the weights file alone; raises as `load_encoder` does."""
    folder = find_encoder(name)[1]
    return load_encoder(name).fingerprint if folder is None else weights_sha256(folder)
