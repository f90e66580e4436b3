"""What decides a fit to labelled answers of one's own, beside the rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from sgpu.encoders.spectra import Embed
from sgpu.errors import UsageError
from sgpu.judges.base import JUDGES, asks_model
from sgpu.study.specs import ClassifierSpec

METHODS_TO_FIT = ("auto", "sgpu_plus", "sgpu")


@dataclass(frozen=True)
class FitSettings:
    """What decides a fit beside its rows; see `load_encoder`, `Embed` and `ClassifierSpec`.

    With ``method`` "sgpu_plus" the model reads questions too, see `FittedModel.predict`; "auto" is the same
    where the rows have enough questions, and else "sgpu". docs/studies/sgpu_plus_results.md says why.
    """

    encoder: str = "all-MiniLM-L6-v2"
    dtype: str = "auto"
    device: str = "auto"
    embed: Embed = "full"
    classifier: ClassifierSpec = field(default_factory=ClassifierSpec)
    seed: int = 0
    method: str = "auto"

    def __post_init__(self) -> None:
        if self.method not in METHODS_TO_FIT:
            raise UsageError(
                f"method {self.method!r} cannot be fitted to a file; give {', '.join(METHODS_TO_FIT)}"
            )


def check_labelling(judge: str, test_share: float, calibration_share: float) -> None:
    """Raise UsageError for a judge that cannot label a file, or shares that leave no rows for training."""
    if judge not in JUDGES or asks_model(judge):
        own = [name for name in JUDGES.names() if not asks_model(name)]
        raise UsageError(f"judge {judge!r} cannot label a file; give {' or '.join(own)}, or a column `label`")
    if test_share <= 0 or calibration_share < 0 or test_share + calibration_share >= 1:
        raise UsageError(
            f"the test share is {test_share} and the calibration share {calibration_share}; the first is "
            "above 0, the second 0 or more, and together they are below 1, to leave rows for training"
        )
