"""The kinds of log files, told by their extensions."""

from __future__ import annotations

from enum import Enum

JSON_LINES = (".jsonl", ".ndjson", ".json")


class Kind(Enum):
    """How the bytes of a file become rows. A `.json` file is read line by line too."""

    LINES = "JSON Lines"
    GZIP = "JSON Lines in gzip"
    ZSTD = "JSON Lines in Zstandard"
    PARQUET = "Parquet"


_ENDINGS = (
    dict.fromkeys(JSON_LINES, Kind.LINES)
    | {f"{name}.gz": Kind.GZIP for name in JSON_LINES}
    | {f"{name}.{end}": Kind.ZSTD for name in JSON_LINES for end in ("zst", "zstd")}
    | {".parquet": Kind.PARQUET}
)
KNOWN = ", ".join(_ENDINGS)


def kind_of(path: str) -> Kind | None:
    """None for a file that is not read."""
    name = path.lower()
    return next((kind for end, kind in _ENDINGS.items() if name.endswith(end)), None)
