"""Cells of the study: what is asked how, which questions a pilot chooses, and the runs that sample them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from bench.study_plus import questions
from bench.study_plus.questions import Asked
from sgpu.storage.store import Partition, Store

TEXT_MODEL, IMAGE_MODEL = "smollm2-135m-instruct", "easy-vqa-llava"
POOL, PILOT_ANSWERS, PILOT_SEED = 400, 4, 1
QUESTIONS, ANSWERS, SEED = 150, 20, 0
COMMAND = (sys.executable, "-c", "from sgpu.cli import main; main()")
USER, ASSISTANT = "<|im_end|>\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"


@dataclass(frozen=True)
class StudyCell:
    """A family of questions asked in one way.

    ``turns`` are earlier turns of the conversation, which show the form of an answer. ``set_labels`` says
    whether a majority of answers means anything; a ``declined`` cell only shows that the method declines.
    """

    name: str
    pool: Callable[[], list[Asked]]
    temperature: float
    turns: tuple[tuple[str, str], ...] = ()
    max_tokens: int = 8
    set_labels: bool = True
    declined: bool = False

    @property
    def prompt(self) -> str:
        """The template of a request, with the earlier turns in the model's own marks."""
        return "".join(f"{asked}{ASSISTANT}{said}{USER}" for asked, said in self.turns) + "{question}"


SENTENCE = 24  # tokens
CITY = "In which country is the city of {}?"
COUNTS = (("How many legs has a spider?", "8"), ("How many days has a week?", "7"))
PASSAGE = "{0} is a city in {1}. Many people live in {0} and work there. In which country is the city of {0}?"


def _turns(form: str, *said: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return earlier turns in the form of the questions, about what no pool asks; answers come last."""
    return tuple((form.format(*items[:-1]), items[-1]) for items in said)


CELLS = (
    StudyCell("city-names", questions.cities, 1.0, _turns(CITY, ("Turku", "Finland"), ("Bruges", "Belgium"))),
    StudyCell("capital-names", questions.capitals, 0.7, max_tokens=12),
    StudyCell("language-sentences", questions.languages, 1.0, max_tokens=SENTENCE),
    StudyCell("region-sentences", questions.regions, 0.7, max_tokens=SENTENCE),
    StudyCell("sums", questions.sums, 1.0, COUNTS, max_tokens=12),
    StudyCell(
        "next-number",
        questions.next_numbers,
        0.7,
        _turns("Which number comes directly {} {}?", ("after", "104", "105"), ("before", "120", "119")),
    ),
    StudyCell(
        "yes-no",
        questions.yes_no,
        1.0,
        _turns("Is {} a country in {}?", ("Andorra", "Europe", "Yes"), ("Tonga", "Africa", "No")),
    ),
    StudyCell(
        "options",
        questions.options,
        1.0,
        _turns(
            "Is {} in {}, {}, {} or {}?",
            ("Bruges", "Africa", "Europe", "Asia", "Oceania", "Europe"),
            ("Apia", "Oceania", "North America", "Africa", "Europe", "Oceania"),
        ),
    ),
    StudyCell(
        "larger",
        questions.larger,
        0.7,
        _turns("Which number is larger, {} or {}?", ("12", "57", "57"), ("88", "31", "88")),
    ),
    StudyCell(
        "neighbours",
        questions.neighbours,
        1.0,
        _turns("Name a country that borders {}.", ("Andorra", "Spain"), ("Monaco", "France")),
        set_labels=False,
    ),
    StudyCell(
        "context",
        questions.passages,
        1.0,
        _turns(PASSAGE, ("Turku", "Finland", "Finland"), ("Bruges", "Belgium", "Belgium")),
        declined=True,
    ),
)
IMAGE_CELL = StudyCell("easy-vqa", list, 1.0, max_tokens=4)


def sample_cells(out: Path, cells: Sequence[StudyCell], size: int = QUESTIONS) -> None:
    """Sample pilot and study into ``out``; what is there already is not sampled again."""
    pools = {cell.name: cell.pool()[:POOL] for cell in cells}
    _run(out / "pilot", cells, pools, PILOT_ANSWERS, PILOT_SEED)
    chosen = {
        cell.name: choose_questions(pools[cell.name], pilot_votes(out / "pilot", cell.name), size)
        for cell in cells
    }
    _run(out / "text", cells, chosen, ANSWERS, SEED)


def sample_images(out: Path, size: int = QUESTIONS) -> None:
    """Do the same with the questions of easy-VQA, whose pictures come from its package."""
    name, pilot = IMAGE_CELL.name, out / "image-pilot"
    sampling = {"prompt": "plain", "temperature": IMAGE_CELL.temperature, "max_tokens": IMAGE_CELL.max_tokens}
    dataset = {"kind": name, "n_train": 0, "n_test": POOL, "sampling": sampling}
    _benchmark(pilot, IMAGE_MODEL, [dataset], PILOT_ANSWERS, PILOT_SEED)
    rows = {row["question_id"]: row for row in published(pilot, "questions", name).to_pylist()}
    pool = [Asked(key, row["question"], tuple(row["references"])) for key, row in rows.items()]
    chosen = choose_questions(pool, pilot_votes(pilot, name, IMAGE_MODEL), size)
    columns = ("question_id", "question", "references", "image")
    table = pa.Table.from_pylist(
        [{column: rows[one.question_id][column] for column in columns} for one in chosen]
    )
    run = out / "images"
    run.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, run / f"{name}.parquet")
    given = {"kind": "parquet", "path": str(run / f"{name}.parquet"), "n_train": 0, "n_test": len(chosen)}
    _benchmark(run, IMAGE_MODEL, [{**given, "name": name, "sampling": sampling}], ANSWERS, SEED)


def pilot_votes(run: Path, cell: str, model: str = TEXT_MODEL) -> dict[str, list[int]]:
    """Return the votes on the pilot's answers by question."""
    rows = published(run, "labels", cell, model, judge="alias").to_pylist()
    return {row["question_id"]: [vote for vote in row["votes"] or [] if vote is not None] for row in rows}


def choose_questions(pool: Sequence[Asked], votes: Mapping[str, Sequence[int]], size: int) -> list[Asked]:
    """Choose questions on which the pilot is divided, then all right and all wrong ones in turn.

    An all right question is taken where fewer than half of the pilot's answers so far are right.
    """
    known = [one for one in pool if votes.get(one.question_id)]
    share = {one.question_id: sum(v := votes[one.question_id]) / len(v) for one in known}
    divided = [one for one in known if 0 < share[one.question_id] < 1][:size]
    right = [one for one in known if share[one.question_id] == 1]
    wrong = [one for one in known if share[one.question_id] == 0]
    chosen, total = divided, sum(share[one.question_id] for one in divided)
    while len(chosen) < size and (right or wrong):
        take = right if right and (total < len(chosen) / 2 or not wrong) else wrong or right
        chosen.append(take.pop(0))
        total += share[chosen[-1].question_id]
    return chosen


def published(run: Path, table: str, dataset: str, model: str = TEXT_MODEL, **more: str) -> Any:
    """Return the rows of a published table of one cell."""
    keys = {"dataset": dataset} if table == "questions" else {"model": model, "dataset": dataset, **more}
    return Store(run).require(table, Partition.of(**keys)).read()


def _run(
    out: Path, cells: Sequence[StudyCell], asked: Mapping[str, Sequence[Asked]], n: int, seed: int
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    datasets = []
    for cell in cells:
        file = out / f"{cell.name}.jsonl"
        rows = (
            {"question_id": one.question_id, "question": one.question, "references": list(one.references)}
            for one in asked[cell.name]
        )
        file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        sampling = {
            "prompt": cell.prompt, "temperature": cell.temperature, "max_tokens": cell.max_tokens
        }  # fmt: skip
        size = len(asked[cell.name])
        given = {"kind": "jsonl", "name": cell.name, "path": str(file), "n_train": 0, "n_test": size}
        datasets.append({**given, "sampling": sampling})
    _benchmark(out, TEXT_MODEL, datasets, n, seed)


def _benchmark(out: Path, model: str, datasets: Sequence[Any], n: int, seed: int) -> None:
    """Sample, judge and encode with `sgpu benchmark`."""
    study = {
        "name": f"study-plus-{out.name}",
        "seed": seed,
        "models": [model],
        "datasets": list(datasets),
        "sampling": {"n": n},
        "judge": {"name": "alias"},
        "methods": ["largest_eigenvalue"],
        "evaluation": {"bootstrap": 100},
        "tracking": {"mlflow": "none"},
    }
    out.mkdir(parents=True, exist_ok=True)
    file = out / "study.yaml"
    file.write_text(yaml.safe_dump(study, sort_keys=False, allow_unicode=True))
    subprocess.run([*COMMAND, "benchmark", str(file), "--out", str(out)], check=True)
