"""What a run of `sgpu score` is asked to do, typed and defaulted; unknown keys are refused."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, field_validator, model_validator

from sgpu.errors import UsageError
from sgpu.logs.budget import FileBounds
from sgpu.logs.formats import AUTO, LOG_FORMATS
from sgpu.logs.formats.mapped import FieldMap
from sgpu.storage.location import Location
from sgpu.study.file import read_tree
from sgpu.study.specs import Strict
from sgpu.visible import exposes_key


class ResampleSettings(Strict):
    """A ``share`` of requests is asked, at most ``requests`` and ``tokens`` (questions and answers) a run.

    A run is one day's logs as they are at that time: a day that is looked at again because rows came late, or
    by another model, is another run with another budget. Tries that fail count with what they may have cost.
    The server speaks OpenAI's chat protocol; its key is read from the environment variable ``api_key_env``.
    ``requests_per_minute`` is for the whole run, retries included. ``timeout_s``: for one try, from its start
    to the last byte. ``plain_http`` allows a key to be sent unencrypted to another machine.
    """

    # An address may hold a password, which is then refused but must not be shown.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    base_url: str
    model: str | None = None  # default: the one that the log names
    api_key_env: str | None = None
    share: float = Field(default=0.01, gt=0, le=1)
    requests: int = Field(default=1000, ge=1)
    tokens: int | None = Field(default=None, ge=1)  # default: as many as the requests may use
    n: int = Field(default=10, ge=2, le=128)
    temperature: float = Field(default=1.0, gt=0, le=2)  # at 0 all answers are the same
    top_p: float = Field(default=0.9, gt=0, le=1)
    max_tokens: int = Field(default=256, ge=1)
    requests_per_minute: int | None = Field(default=None, ge=1)
    concurrency: int = Field(default=8, ge=1, le=256)
    max_retries: int = Field(default=4, ge=0, le=20)
    timeout_s: float = Field(default=60.0, gt=0)
    seed: int = 0
    plain_http: bool = False

    @field_validator("base_url")
    @classmethod
    def _an_address_and_nothing_else(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("base_url is http://host/v1 or https://host/v1")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError("base_url holds no user, key or query; name the key's variable in api_key_env")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _keys_are_encrypted(self) -> Self:
        if self.api_key_env and exposes_key(self.base_url) and not self.plain_http:
            host = urlsplit(self.base_url).hostname
            raise ValueError(
                f"the key in ${self.api_key_env} would travel unencrypted to {host}: use https://, "
                "or set plain_http in a network of your own"
            )
        return self


MAX_DAYS = 3660
DAY_S = 86_400


@dataclass(frozen=True)
class Flag:
    """A field that is a flag of `sgpu score`: its help, what its value is called, its own name."""

    help: str
    metavar: str | None = None
    name: str | None = None


class ScoreSettings(Strict):
    """One run: the logs, the table, the model, and the days.

    ``date`` is the day, and the ``late_days`` before it are looked at again; with ``start`` all days from it
    to ``date`` are scored instead. ``workers``: processes of Ray, default one for each core or GPU, and none
    for small days; with 0 all work is done in this process. ``tracking`` is the MLflow store, default the
    environment's. The order of the fields is that of the flags in the help.
    """

    logs: Annotated[str, Flag("Logs: a folder (dt=YYYY-MM-DD/), file or s3://.", "PATH")]
    model: Annotated[str, Flag("models:/NAME@champion, or a folder of a fit.", "URI")]
    out: Annotated[str, Flag("Score table: a folder, s3:// or gs://.", "TABLE")]
    date: Annotated[
        dt.date,
        Flag("The day, if given also of records without a time. Default: yesterday, UTC.", "YYYY-MM-DD"),
    ]
    start: Annotated[
        dt.date | None, Flag("Score all days from this one to --date.", "YYYY-MM-DD", "--from")
    ] = None
    challenger: Annotated[str | None, Flag("Second model, scored in shadow mode.", "URI")] = None
    format: Annotated[str, Flag("auto, or a name of `sgpu list log-formats`.")] = "auto"
    late_days: Annotated[
        int, Flag("Also re-check this many earlier days for late rows."), Field(ge=0, le=60)
    ] = 2
    # A path of its YAML file, or its content.
    map: Annotated[FieldMap | None, Flag("Field map for rows of an unknown format.", "FILE.yaml")] = None
    max_bad: Annotated[
        float, Flag("Share of bad rows above which the exit code is 3."), Field(ge=0, le=1)
    ] = 0.01
    max_bad_files: Annotated[
        float, Flag("Share of bad files above which the exit code is 3."), Field(ge=0, le=1)
    ] = 0.01
    labels: Annotated[
        str | None, Flag("JSON Lines of request_id, label (0, 1), optional model; kept.", "FILE")
    ] = None
    thresholds: Annotated[str | None, Flag("Bounds for yellow and red.", "FILE.yaml")] = None
    rescore: Annotated[bool, Flag("Re-score and replace the whole day.")] = False
    private: Annotated[bool, Flag("Only this user may read tables and pages (0700).")] = False
    resample: Annotated[
        ResampleSettings | None, Flag("Sample further answers from this server for requests with one.", "URL")
    ] = None
    allow_encoder_path: Annotated[bool, Flag("Allow an encoder that the model names by its folder.")] = False
    workers: Annotated[
        int | None,
        Flag("Worker processes; 0 = none. Default: one a core or GPU; small days need none."),
        Field(ge=0),
    ] = None
    tracking: Annotated[
        str | None,
        Flag("MLflow store, or none. Default: MLFLOW_TRACKING_URI, else runs/mlflow.db.", "URI"),
    ] = None
    device: Annotated[Literal["auto", "cpu", "cuda"], Flag("auto, cpu or cuda.")] = "auto"
    address: Annotated[str | None, Flag("Ray cluster to use (auto). Default: a local Ray.")] = None
    # Of vectors of answers, kept between days; as secret as the logs.
    cache_mb: float = Field(default=0, ge=0)
    split_mb: float = Field(default=32, gt=0)
    bucket_rows: int = Field(default=4096, ge=1)  # response sets that are encoded together, at most
    # Records without a time of their own count for `date`, unless a folder names their day; --date sets this.
    undated: bool = False
    # Single answers to one question within it are one set; a part of a day (UTC), so that no set is of two.
    group_window_s: int = Field(default=DAY_S, ge=1, le=DAY_S)
    file: FileBounds = FileBounds()  # what is behind them is not read

    @model_validator(mode="after")
    def _days_in_order(self) -> ScoreSettings:
        if DAY_S % self.group_window_s:
            raise ValueError(f"group_window_s {self.group_window_s} does not divide a day of {DAY_S} seconds")
        if self.start is not None and not 0 <= (self.date - self.start).days < MAX_DAYS:
            raise ValueError(f"the range {self.start} to {self.date} is empty or above {MAX_DAYS} days")
        for path in (self.logs, self.out, *filter(None, [self.labels])):
            try:
                Location.of(path)
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
        ordinals = {day.toordinal() + back for day in days for back in near}
        return [dt.date.fromordinal(n) for n in sorted(ordinals) if 1 <= n <= dt.date.max.toordinal()]

    def content(self) -> dict[str, Any]:
        """Return what of it decides the rows that come out, without the model and the day."""
        fields = {
            "late_days", "format", "rescore", "bucket_rows", "group_window_s", "resample", "map", "file",
        }  # fmt: skip
        formats = LOG_FORMATS if self.format == AUTO else [self.format]
        return {**self.model_dump(mode="json", include=fields), **LOG_FORMATS.plugins(*formats)}
