"""Run all studies of the paper small: real loaders and stages, made-up data, answers and votes.

`make paper-dry-run` checks before a full run that every stage runs and that every table of the paper gets its
rows: it compares the tables of the runs with those in `sgpu/report/published`, and ends with exit code 1 if a
row is missing for a reason that is not known. Nothing is downloaded. Models and judges are the engine of
`echo.py`; two small studies with models from packages have hidden states. Numbers mean nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

ROOT = Path(__file__).resolve().parents[2]
STUDIES, PUBLISHED = ROOT / "pipelines" / "studies", ROOT / "sgpu" / "report" / "published"
SGPU = str(Path(sys.executable).with_name("sgpu"))
N_TRAIN, N_TEST = 120, 40
ROWS = N_TRAIN + N_TEST
SHRINK = 20  # of training sizes
# Rows that this run cannot have: the echo engine has no hidden states, and no package brings these encoders.
HIDDEN = {"SAPLMA", "SEP", "UMPIRE", "Cov Eigenscore", "Cos Eigenscore", "Internal Embedding (layer 16)"}
FETCHED = {"all-MiniLM-L12-v2", "modernbert-embed-large"}
KEYS = ("dataset", "model", "method", "judge", "encoder", "n_samples", "n_train", "kernel", "nu",
        "trained_on", "tested_on", "embedding", "context", "setting")  # fmt: skip


def write_sources(folder: Path) -> dict[str, Path]:
    """Write small files in the layouts of the nine data sets, and return their folders by kind."""
    from tests.datasets import class_fixtures as classes
    from tests.datasets import text_fixtures as texts
    from tests.datasets import vqa_fixtures as vqa

    trivia = [texts.triviaqa_row(f"tc_{i}", f"Which colour is {i}?", "red", ["Red"]) for i in range(2 * ROWS)]
    return {
        "advqa": vqa.write_advqa(folder / "advqa", 2 * ROWS),
        "vqa-rad": vqa.write_vqa_rad(folder / "vqa-rad", 2 * N_TRAIN, 2 * N_TEST),
        "ok-vqa": vqa.write_ok_vqa(folder / "ok-vqa", N_TRAIN, N_TEST),
        "vizwiz": vqa.write_vizwiz(folder / "vizwiz", 2 * ROWS),
        "cifar-10": classes.write_cifar10(folder / "cifar-10", N_TRAIN, N_TEST),
        "imagenette": classes.write_imagenette(folder / "imagenette", N_TRAIN // 10, N_TEST // 10),
        "triviaqa": texts.write_triviaqa(folder / "triviaqa", trivia[:ROWS], trivia[ROWS:]),
        "popqa": texts.write_popqa(folder / "popqa", [texts.popqa_row(i) for i in range(4 * ROWS)]),
        "gsm8k": texts.write_gsm8k(
            folder / "gsm8k",
            [texts.gsm8k_row(i) for i in range(1, N_TRAIN)],
            [texts.gsm8k_row(i) for i in range(1000, 1000 + N_TEST)],
        ),
    }  # fmt: skip


def small_study(file: str, sources: Mapping[str, Path], deberta: Path, **changes: Any) -> Any:
    """Load a shipped study with small sizes, these sources, and the engine of this run for all models."""
    from sgpu.study.benchmark import Study, load_study

    tree = load_study(STUDIES / file).model_dump(mode="json")
    for model in tree["models"]:
        model["engine"] = "echo"
    for dataset in tree["datasets"]:
        n_train = min(dataset["n_train"], N_TRAIN)
        more = {"n_validation": 40} if dataset.get("n_validation") else {}
        dataset |= {"path": str(sources[dataset["kind"]]), "check_rows": False, "n_train": n_train}
        dataset |= {"n_test": N_TEST, **more}
    tree["entailment"]["model"] = str(deberta)
    sizes = [size // SHRINK for size in tree["sensitivity"]["train_sizes"]]
    encoders = [tree["encoder"]["name"]] if tree["sensitivity"]["encoders"] else []
    tree["sensitivity"] |= {"train_sizes": sizes, "encoders": encoders}
    tree |= {"evaluation": tree["evaluation"] | {"bootstrap": 100}, "tracking": {"mlflow": "none"}}
    tree["resources"] = {"device": "cpu"}
    return Study.model_validate({**tree, **changes})


def work_in_this_process() -> None:
    """Let stages of the echo engine run in this process: a process for each would take most of the time."""
    from sgpu.stages import sample

    engines = sample.engine_actors

    def light(run: Any, stage: Any, card: Any, engine: str, *rest: Any) -> Any:
        ask = engines(run, stage, card, engine, *rest)
        return replace(ask, own_process=False) if engine == "echo" else ask

    sample.engine_actors = light


def run_study(study: Any, out: Path) -> Path:
    """Run a study without the checks that look for weights; returns its folder."""
    from pipelines.benchmark import run_benchmark
    from sgpu.stages.run import open_run

    started = time.monotonic()
    run_benchmark(open_run(study, out), STUDIES / "paper.yaml", [], lambda: False)
    print(f"== {study.name}: {len(study.cells())} cells, {time.monotonic() - started:.0f} s", flush=True)
    return out


def hidden_studies(sources: Mapping[str, Path], deberta: Path) -> list[Any]:
    """Return one study of text and one of images whose model comes in a package and has hidden states."""
    made = []
    for file, kind, model in (
        ("paper_text.yaml", "triviaqa", "smollm2-135m-instruct"),
        ("paper.yaml", "vqa-rad", "easy-vqa-llava"),
    ):
        dataset = small_study(file, sources, deberta).dataset(kind).model_dump(mode="json")
        dataset |= {"n_train": 60, "n_test": 30}
        dataset["sampling"] |= {"n": 4, "max_tokens": 4}
        parts = {"name": f"hidden-{kind}", "models": [{"name": model}], "datasets": [dataset],
                 "sensitivity": {"embedding_sets": 4}}  # fmt: skip
        made.append(small_study(file, sources, deberta, **parts))
    return made


def tables_in(folder: Path) -> dict[str, Path]:
    """Return the CSV files of a run's report by name."""
    return {
        file.stem: file for part in ("tables", "aggregate", ".") for file in (folder / part).glob("*.csv")
    }


def compare(name: str, ours: Path | None) -> tuple[list[str], int]:
    """Compare a table with the published one by its rows and columns.

    Returns a line per kind of difference, and how many rows are missing for no known reason.
    """
    printed = pl.read_csv(PUBLISHED / f"{name}.csv", infer_schema=False)
    if ours is None:
        return ["no run writes it"], printed.height
    table = pl.read_csv(ours, infer_schema=False)
    if name == "train_size":
        size = pl.col("n_train").cast(pl.Int64, strict=False) // SHRINK
        printed = printed.with_columns(pl.coalesce(size.cast(pl.String), "n_train"))
    keys = [key for key in KEYS if key in printed.columns]
    measures = [column for column in printed.columns if column not in (*keys, "note", "family")]
    lines = [f"column {column} is missing" for column in measures if column not in table.columns]
    found = {
        tuple(row[key] or "" for key in keys)
        for row in table.iter_rows(named=True)
        if any(row.get(measure) for measure in measures)
    }
    missing = [row for row in printed.iter_rows(named=True) if tuple(row[k] or "" for k in keys) not in found]
    reasons = {"hidden states": HIDDEN, "an encoder's files": FETCHED}
    needing = {why: [row for row in missing if names & set(row.values())] for why, names in reasons.items()}
    lines += [f"{len(rows)} rows need {why}" for why, rows in needing.items() if rows]
    unknown = [row for row in missing if not any(row in rows for rows in needing.values())]
    lines += [f"missing: {', '.join(row[key] or '' for key in keys)}" for row in unknown[:5]]
    return lines, len(unknown)


def install_engine(site: Path) -> None:
    """Lay out `echo.py` as an installed plug-in below ``site``."""
    metadata = site / "sgpu_echo-1.0.dist-info"
    metadata.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("echo.py"), site / "sgpu_echo.py")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: sgpu-echo\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[sgpu.engines]\necho = sgpu_echo:EchoEngine\n")


def dry_run(work: Path) -> int:
    """Run all studies below ``work``, print the comparison, and return the exit code."""
    from bench.random_deberta import write_deberta
    from sgpu.study.models import MODELS

    sources, deberta = write_sources(work / "sources"), write_deberta(work / "deberta", max_length=512)
    for name, card in MODELS.items():
        if not card.packaged:
            MODELS[name] = replace(card, engine="echo")
    work_in_this_process()
    paper = run_study(small_study("paper_ablations.yaml", sources, deberta), work / "runs" / "paper")
    text = run_study(small_study("paper_text.yaml", sources, deberta), work / "runs" / "paper-text")
    for study in hidden_studies(sources, deberta):
        run_study(study, work / "runs" / study.name)
    transfer = run_transfer(work, paper, text)
    tables = {**tables_in(paper / "report"), **transfer}
    failed = 0
    for file in sorted(PUBLISHED.glob("*.csv")):
        lines, unknown = compare(file.stem, tables.get(file.stem))
        failed += unknown
        print(f"{file.stem:<20} {'; '.join(lines) or 'every row and column'}")
    figures = len(list((paper / "report" / "figures").rglob("histogram.svg")))
    print(f"{figures} figures of unsafe predictions, one per cell", flush=True)
    for study in ("paper_ablations.yaml", "paper_text.yaml"):
        plan = subprocess.run(
            [SGPU, "plan", str(STUDIES / study)], capture_output=True, text=True, check=True
        )
        print(f"A full run of {study} needs:", plan.stdout[plan.stdout.index("TOTAL") :], sep="\n\n")
    return 1 if failed else 0


def run_transfer(work: Path, paper: Path, text: Path) -> dict[str, Path]:
    """Run the transfer study on the finished runs, and return the tables that stand beside the paper's."""
    runs = f"runs=[{{path: {paper}}}, {{path: {text}}}]"
    out = work / "runs" / "paper-transfer"
    changes = ["--set", runs, "--set", "fitters=0", "--set", "bootstrap=100"]
    study = str(STUDIES / "paper_transfer.yaml")
    subprocess.run([SGPU, "transfer", study, "--out", str(out), *changes], check=True)
    tables = work / "tables"
    cells = ["--cells", str(paper / "metrics.csv"), "--transfer", str(out / "metrics.csv")]
    subprocess.run([SGPU, "report", *cells, "--out", str(tables)], check=True)
    return tables_in(tables)


def main() -> int:
    """Start again with the engine on the path, which workers inherit, and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "paper-dry-run")
    work = parser.parse_args().out.resolve()
    site = work / "site"
    if str(site) not in os.environ.get("PYTHONPATH", ""):
        shutil.rmtree(work, ignore_errors=True)
        install_engine(site)
        path = os.pathsep.join([str(site), str(ROOT)])
        command = [sys.executable, "-m", "tests.paper", "--out", str(work)]
        return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}).returncode
    return dry_run(work)


if __name__ == "__main__":
    sys.exit(main())
