"""What a run of `sgpu score` is asked to do, typed and defaulted; unknown keys are refused."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from sgpu.errors import UsageError
from sgpu.logs.budget import FileBounds
from sgpu.logs.formats.mapped import FieldMap
from sgpu.scoring.resample_settings import ResampleSettings
from sgpu.storage.location import Location
from sgpu.study.file import read_tree
from sgpu.study.specs import Strict

MAX_DAYS = 3660
DAY_S = 86_400


class ScoreSettings(Strict):
    """One run: the logs, the table, the model, and the days.

    ``date`` is the day, and the ``late_days`` before it are looked at again; with ``start`` all days from it
    to ``date`` are scored instead. ``workers``: processes that encode, default one for each core or GPU; 0
    works in this process, without Ray. ``tracking`` is the MLflow store, default the environment's.
    """

    logs: str
    out: str
    model: str
    date: dt.date
    start: dt.date | None = None
    challenger: str | None = None
    allow_encoder_path: bool = False  # a model may name a folder of this machine as its encoder
    late_days: int = Field(default=2, ge=0, le=60)
    format: str = "auto"
    max_bad: float = Field(default=0.01, ge=0, le=1)
    private: bool = False  # tables and pages too are for this user alone
    rescore: bool = False  # replaces the day instead of adding what is new
    workers: int | None = Field(default=None, ge=0)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    cache_mb: float = Field(
        default=0, ge=0
    )  # of vectors of answers, kept between days; as secret as the logs
    split_mb: float = Field(default=32, gt=0)
    bucket_rows: int = Field(default=4096, ge=1)  # response sets that are encoded together, at most
    # Single answers to one question within it are one set; a part of a day (UTC), so that no set is of two.
    group_window_s: int = Field(default=DAY_S, ge=1, le=DAY_S)
    file: FileBounds = FileBounds()  # what is behind them is not read
    address: str | None = None
    tracking: str | None = None
    thresholds: str | None = None  # YAML file of bounds for yellow and red
    resample: ResampleSettings | None = None
    map: FieldMap | None = None  # of rows of no known format, where each field is; a path of its YAML file
    labels: str | None = None  # JSON Lines of request_id, label and maybe model, to be kept beside the scores

    @model_validator(mode="after")
    def _days_in_order(self) -> ScoreSettings:
        if DAY_S % self.group_window_s:
            raise ValueError(f"group_window_s {self.group_window_s} does not divide a day of {DAY_S} seconds")
        if self.start is not None and not 0 <= (self.date - self.start).days < MAX_DAYS:
            raise ValueError(f"the range {self.start} to {self.date} is empty or above {MAX_DAYS} days")
        for place in (self.logs, self.out, *filter(None, [self.labels])):
            try:
                Location.of(place)
            except UsageError as error:
                raise ValueError(str(error)) from None
        return self

    @field_validator("map", mode="before")
    @classmethod
    def _read_map(cls, value: Any) -> Any:
        # Its content decides what is read, wherever the file is by then.
        return read_tree(Path(value), what="map") if isinstance(value, str) else value

    def days(self) -> list[dt.date]:
        """The days to look at, oldest first. What replaces a day leaves the days before it alone."""
        late = 0 if self.rescore else self.late_days
        first = self.start or self.date - dt.timedelta(days=late)
        return [first + dt.timedelta(days=i) for i in range((self.date - first).days + 1)]

    def window(self, *days: dt.date) -> list[dt.date]:
        """The days in which ids are looked up that were delivered, or have their time, on one of ``days``."""
        near = range(-self.late_days, self.late_days + 1)
        found = {day.toordinal() + back for day in days for back in near}
        return [dt.date.fromordinal(n) for n in sorted(found) if 1 <= n <= dt.date.max.toordinal()]

    def content(self) -> dict[str, Any]:
        """What of it decides the rows that come out, without the model and the day."""
        fields = {"late_days", "format", "rescore", "bucket_rows", "group_window_s", "resample"}
        # Days that were scored before there were these settings have keys without them.
        usual = {"map": None, "file": FileBounds()}
        fields |= {name for name, value in usual.items() if getattr(self, name) != value}
        return self.model_dump(mode="json", include=fields)
