"""What `sgpu fit` is asked to do. Imports nothing heavy, so that a wrong request is told at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from sgpu.errors import UsageError
from sgpu.study.fit_settings import FitSettings, check_labelling
from sgpu.tracking.base import CHAMPION


@dataclass(frozen=True)
class FitRequest:
    """What to fit and what becomes of it.

    ``n`` is the size of sets that have a classifier of their own, default the most common one. With
    ``target_error`` a share of the rows is set apart to choose a probability cut: with ``confidence``, at
    most so many of the answers above it are wrong. ``register`` is a name in the MLflow store
    ``tracking_uri`` (see `sgpu.tracking.store_address`), whose ``alias`` moves to the new version; champion
    moves only with ``promote``, and with ``force`` also to a model below the floor of `promote_model`.
    """

    register: str | None = None
    alias: str = "challenger"
    promote: bool = False
    force: bool = False
    tracking_uri: str | None = None
    settings: FitSettings = field(default_factory=FitSettings)
    judge: str = "alias"
    n: int | None = None
    test_share: float = 0.2
    calibration_share: float = 0.2
    target_error: float | None = None
    confidence: float = 0.95
    resamples: int = 2000

    def __post_init__(self) -> None:
        if self.promote and self.register is None:
            raise UsageError("promote makes a registered version the champion; give the name to register too")
        if self.alias == CHAMPION:
            raise UsageError(
                f"fitting never moves the alias {CHAMPION!r} by itself; register under another alias with "
                "promote, or use `sgpu model promote` after a look at the new version"
            )
        for name, value in (("target error", self.target_error), ("confidence", self.confidence)):
            if value is not None and not 0 < value < 1:
                raise UsageError(f"the {name} is {value}; give a share between 0 and 1, as 0.1 or 0.95")
        check_labelling(self.judge, self.test_share, self.share_for_threshold)

    @property
    def share_for_threshold(self) -> float:
        """``calibration_share`` if a cut is asked for, else 0."""
        return 0.0 if self.target_error is None else self.calibration_share

    @property
    def delta(self) -> float:
        """1 - confidence, without the dust of the subtraction."""
        return round(1 - self.confidence, 12)
