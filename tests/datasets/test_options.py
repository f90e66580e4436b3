"""Options of data sets: what is unknown or invalid is named, with what exists."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from sgpu.datasets.options import NoOptions, read_options
from sgpu.errors import UsageError


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    size: int = Field(default=3, ge=1)


def test_options_replace_defaults() -> None:
    assert read_options("toy", Settings, {}).size == 3
    assert read_options("toy", Settings, {"size": 5}).size == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sise": 5}, "data set 'toy': unknown option 'sise'. Did you mean 'size'"),
        ({"size": 0}, "data set 'toy': size: Input should be greater than or equal to 1. Settings: size"),
        ({"size": 0, "colour": 1}, "size: .*; unknown option 'colour'"),
    ],
)
def test_every_fault_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_options("toy", Settings, options)


def test_a_data_set_without_options_says_so() -> None:
    with pytest.raises(UsageError, match=r"unknown option 'size'. Known: none. Settings: none"):
        read_options("toy", NoOptions, {"size": 3})
