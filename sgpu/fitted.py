"""A fitted model as one folder: classifier, encoder and number of answers, so that answers can be scored."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

import numpy as np

from sgpu.encoders import load_encoder
from sgpu.encoders.base import Encoder
from sgpu.encoders.features import spectra_of
from sgpu.encoders.texts import Embed, embedded_texts
from sgpu.errors import DataError, IntegrityError, UsageError
from sgpu.gp import GPClassifier, Prediction
from sgpu.gp.persistence import DESCRIPTION, read_json, refuse_code, write_json

FORMAT = 1
BUNDLE = "bundle.json"
MLFLOW_SCHEMES = ("models", "runs", "mlflow-artifacts")


@dataclass(frozen=True)
class FittedModel:
    """A classifier with all it takes to score answers.

    ``encoder``, ``encoder_dtype`` and ``encoder_fingerprint`` (sha256 of its weights, None if unknown) are
    those of the training features: another encoder or precision would shift every spectrum.
    ``n_answers`` is N. ``provenance`` says what it was trained on, any JSON object. ``embed`` says what of
    an answer is embedded, see `sgpu.encoders.texts`.
    """

    gp: GPClassifier
    encoder: str
    encoder_dtype: str
    n_answers: int
    encoder_fingerprint: str | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    embed: Embed = "full"

    def __post_init__(self) -> None:
        features = self.gp.fit_report.features
        if features != self.n_answers:
            raise DataError(
                f"n_answers is {self.n_answers}, but the classifier was fitted to {features} eigenvalues; "
                "they are the same number"
            )

    def predict(self, answers: Sequence[Sequence[str]]) -> Prediction:
        """Probability for each of Q response sets of N answers; Q may be 0.

        Raises DataError naming the first row with another number of answers or with something that is not
        a string, IntegrityError if the encoder on this machine is not that of the training.
        """
        self._check(answers)
        if not answers:
            return self.gp.predict(np.empty((0, self.n_answers)))
        texts = [[text or "" for text in embedded_texts(row, self.embed)] for row in answers]
        return self.gp.predict(spectra_of(texts, self._encoder))

    def save(self, folder: Path | str) -> None:
        """Write the classifier's two files and `bundle.json`, the last one last."""
        target = Path(folder)
        self.gp.save(target)
        content = {
            "format": FORMAT,
            "encoder": {
                "name": self.encoder,
                "dtype": self.encoder_dtype,
                "fingerprint": self.encoder_fingerprint,
            },
            "n_answers": self.n_answers,
            "embed": self.embed,
            "provenance": dict(self.provenance),
            "gp_sha256": _sha256(target / DESCRIPTION),
        }
        write_json(target / BUNDLE, content)

    @classmethod
    def load(cls, folder: Path | str) -> FittedModel:
        """Read what `save` wrote. Raises IntegrityError for a changed, broken or foreign folder."""
        source = Path(folder)
        refuse_code(source)
        content = read_json(source / BUNDLE, FORMAT)
        gp = GPClassifier.load(source)
        if _sha256(source / DESCRIPTION) != content.get("gp_sha256"):
            raise IntegrityError(
                f"{source / DESCRIPTION} is not the file that {BUNDLE} was written for. Restore the folder."
            )
        try:
            encoder = content["encoder"]
            return cls(
                gp,
                encoder["name"],
                encoder["dtype"],
                content["n_answers"],
                encoder["fingerprint"],
                content["provenance"],
                content.get("embed", "full"),
            )
        except (KeyError, TypeError) as error:
            raise IntegrityError(
                f"{source / BUNDLE} lacks or misspells {error}. Restore the folder."
            ) from error

    @cached_property
    def _encoder(self) -> Encoder:
        encoder = load_encoder(self.encoder, self.encoder_dtype)
        if self.encoder_fingerprint not in (None, encoder.fingerprint):
            raise IntegrityError(
                f"the weights of encoder {self.encoder!r} here have sha256 {encoder.fingerprint}, "
                f"the model was fitted with {self.encoder_fingerprint}. Get that revision or fit again."
            )
        return encoder

    def _check(self, answers: Sequence[Sequence[str]]) -> None:
        for row, texts in enumerate(answers):
            # A bare string is a sequence of strings too, and would be scored letter by letter.
            if isinstance(texts, str):
                raise DataError(f"row {row} is one string; a list of {self.n_answers} answers is needed")
            if len(texts) != self.n_answers:
                raise DataError(
                    f"row {row} has {len(texts)} answers; the model was fitted to N = {self.n_answers}. "
                    "Sample as many, or use a model that was fitted to that number."
                )
            for place, text in enumerate(texts):
                if not isinstance(text, str):
                    raise DataError(
                        f"answer {place} of row {row} is {text!r}, not a string; leave out rows with "
                        "missing answers (an empty answer is an empty string)"
                    )


def load_model(uri: str | Path, tracking_uri: str | None = None) -> FittedModel:
    """Load a fitted model from a folder, a file:// URI, or MLflow.

    MLflow's URIs are models:/name@alias, models:/name/version and runs:/id/path, in the store
    ``tracking_uri`` (default: MLflow's own setting). MLflow only downloads files; none of the code stored
    beside them is run. Raises UsageError for another scheme, DataError where nothing is found,
    IntegrityError for files that were changed.
    """
    text = str(uri)
    scheme = urlparse(text).scheme
    if scheme in MLFLOW_SCHEMES:
        with TemporaryDirectory(prefix="sgpu-model-") as folder:
            return FittedModel.load(_bundle_in(_download(text, folder, tracking_uri), text))
    if scheme == "file":
        return FittedModel.load(_bundle_in(Path(url2pathname(urlparse(text).path)), text))
    if "://" in text:
        raise UsageError(
            f"cannot load a model from {text!r}; give a folder, file://, or one of "
            f"{', '.join(f'{known}:/' for known in MLFLOW_SCHEMES)}"
        )
    return FittedModel.load(_bundle_in(Path(text), text))


def _bundle_in(root: Path, uri: str) -> Path:
    """The one folder at or beneath ``root`` that holds a bundle; MLflow stores it in a subfolder."""
    if (root / BUNDLE).is_file():
        return root
    found = sorted(path.parent for path in root.rglob(BUNDLE)) if root.is_dir() else []
    if len(found) != 1:
        raise DataError(
            f"{uri} holds {len(found)} fitted models ({BUNDLE}); exactly one is needed. "
            "Give the folder that `sgpu fit` wrote, or the registered model."
        )
    return found[0]


def _download(uri: str, folder: str, tracking_uri: str | None) -> Path:
    import mlflow.artifacts
    from mlflow.exceptions import MlflowException

    try:
        return Path(mlflow.artifacts.download_artifacts(uri, dst_path=folder, tracking_uri=tracking_uri))
    except (MlflowException, OSError) as error:
        raise DataError(
            f"cannot get {uri}: {error}. Check the name and that MLFLOW_TRACKING_URI is the right store."
        ) from error


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
