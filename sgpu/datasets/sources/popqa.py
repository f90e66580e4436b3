"""PopQA: questions on entities from famous to obscure (Mallen et al., ACL 2023)."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sgpu.datasets.base import DatasetCard, Departure, HubFiles, LoadRequest, Question, Source
from sgpu.datasets.fields import RowError, number_of, quote, references_of, require_text
from sgpu.datasets.source_rows import DatasetRow, SourceReading, expect_columns
from sgpu.errors import DataError

REVISION = "098765c79ea10a2cb19c828324e33281b8336ec0"
COLUMNS = ("id", "prop", "subj_id", "s_pop", "o_pop", "question", "possible_answers")
REMEDY = "Write one row a line, tabs between its fields, quotes doubled inside quotes."


def load_popqa(request: LoadRequest) -> Source:
    """Load one pool; a group is one subject. Raises DataError, UsageError."""
    reading = SourceReading.without_options(CARD, request)
    root = reading.root
    files = sorted(root.rglob("test.tsv"))
    if len(files) != 1:
        raise reading.lacks(root, f"{len(files)} files test.tsv, expected 1")
    return reading.source({"all": reading.pool("all", _rows(files[0]), _question, name=files[0].name)})


def _question(_: int, row: DatasetRow) -> Question:
    values = row.values
    return Question(
        str(number_of(values, "id")),
        require_text(values, "question"),
        references_of(_list_in_text(values, "possible_answers"), "possible_answers"),
        group=require_text(values, "subj_id"),
        meta={
            "prop": require_text(values, "prop"),
            "s_pop": number_of(values, "s_pop"),
            "o_pop": number_of(values, "o_pop"),
        },
    )


def _list_in_text(values: Mapping[str, Any], column: str) -> Any:
    """What the JSON in a text column says; taken as text it would be one long answer."""
    try:
        return json.loads(require_text(values, column))
    except (ValueError, RecursionError) as error:
        raise RowError(
            f"{column} is {quote(values[column])}, not JSON: {error}", "Write the list as JSON in one field."
        ) from None


def _rows(file: Path) -> Iterator[DatasetRow]:
    """The rows by column name. A line that cannot be one is given with its fault."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, delimiter="\t", strict=True)
            header = next(reader, [])
            expect_columns(file, header, COLUMNS)
            while True:
                position = f"line {reader.line_num + 1}"
                try:
                    fields = next(reader, None)
                except csv.Error as error:
                    fault = RowError(f"the line cannot be read: {error}", REMEDY)
                    yield DatasetRow(file, position, {}, fault=fault)
                    continue
                if fields is None:
                    return
                if len(fields) == len(header):
                    yield DatasetRow(file, position, dict(zip(header, fields, strict=True)))
                elif fields:
                    fault = RowError(f"the line has {len(fields)} fields, expected {len(header)}", REMEDY)
                    yield DatasetRow(file, position, {}, fault=fault)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file} cannot be read as tab-separated UTF-8: {error}. Fetch it again.") from None


CARD = DatasetCard(
    name="popqa",
    title="PopQA",
    load=load_popqa,
    licence="not stated on the Hub",
    citation=(
        "A. Mallen et al. When not to trust language models: investigating effectiveness of parametric and "
        "non-parametric memories. ACL 2023."
    ),
    prompt="text-qa",
    pools={"all": 14_267},
    paper=(10_000, 1_000),
    hub=(HubFiles("akariasai/PopQA", ("test.tsv",), REVISION),),
    raw=f"Put test.tsv of https://huggingface.co/datasets/akariasai/PopQA/tree/{REVISION} into the folder.",
    question_tokens=30,
    answer_tokens=8,
    departures=Departure.of("popqa"),
)
