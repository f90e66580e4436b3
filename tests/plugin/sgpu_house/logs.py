"""A log format: rows of `house_id`, `asked`, `replies`, `at` and `model`."""

from __future__ import annotations

from sgpu.logs.formats.mapped import FieldMap, MappedRows


class HouseLog(MappedRows):
    columns = frozenset({"house_id", "asked", "replies", "at", "model"})

    def __init__(self) -> None:
        where = FieldMap(answers="replies", id="house_id", question="asked", time="at", model="model")
        super().__init__("house-log", where, ("house_id", "replies"))
