"""Reads what a run has stored, Delta tables and run.json, and writes it as text that can be compared."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from deltalake import DeltaTable


def write_schemas(tables: Path, file: Path) -> None:
    """Columns with their types, and partition columns, of every Delta table in the folder ``tables``."""
    schemas = {}
    for folder in sorted(path.parent for path in tables.glob("*/_delta_log")):
        table = DeltaTable(str(folder))
        columns = {field.name: json.loads(field.to_json()) for field in table.schema().fields}
        partitions = table.metadata().partition_columns
        schemas[folder.name] = {"columns": columns, "partition_by": partitions}
    write_json(schemas, file)


def rows(table: Path, *, without: Collection[str] = ()) -> list[dict[str, Any]]:
    """The rows of one Delta table without some of its columns, sorted by the columns that are words."""
    delta = DeltaTable(str(table)).to_pyarrow_table()
    kept = delta.select([name for name in delta.column_names if name not in without]).to_pylist()
    return sorted(kept, key=lambda row: json.dumps([v for v in row.values() if isinstance(v, str)]))


def write_csv(content: Iterable[Mapping[str, Any]], file: Path) -> None:
    """Rows of the same columns; lists and structures become JSON, null an empty cell."""
    written = [{name: _cell(value) for name, value in row.items()} for row in content]
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.DictWriter(opened, list(written[0]) if written else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(written)


def write_json(content: Any, file: Path) -> None:
    """As text with one value a line."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", "utf-8")


def write_measures(measures: Path, out: Path) -> None:
    """A file of metrics or comparisons, with its settings beside it: each once, the rows have their numbers.

    The code's version, another one at each commit, and names of fits, made of all digits, are left out.
    """
    with measures.open(encoding="utf-8", newline="") as opened:
        content = list(csv.DictReader(opened))
    numbers: dict[str, int] = {}
    for row in content:
        settings = json.loads(row["settings"])
        settings.pop("code_version", None)
        settings.get("method", {}).pop("fit", None)
        row["settings"] = str(numbers.setdefault(json.dumps(settings, sort_keys=True), len(numbers)))
    write_csv(content, out / measures.name)
    every = [json.loads(text) for text in numbers]
    shared = {name: value for name, value in every[0].items() if all(one.get(name) == value for one in every)}
    own = [{name: value for name, value in one.items() if name not in shared} for one in every]
    write_json({"shared": shared, "own": own}, out / f"{measures.stem}-settings.json")


def stages(run: Path) -> Iterator[dict[str, Any]]:
    """What the last command on a run says of its stages, without times."""
    for stage in json.loads((run / "run.json").read_text("utf-8"))["stages"]:
        yield {name: value for name, value in stage.items() if name not in ("seconds", "rate")}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
