"""The command line, `sgpu`.

Exit codes: 0 done, 1 failed, 2 bad usage or study file, 3 done with too much in quarantine or without
a label, 130 interrupted;
of `sgpu score` also 4 yellow and 5 red.
"""

from __future__ import annotations

import importlib.resources
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import sgpu
from sgpu.cli import listing, models, scoring
from sgpu.errors import SgpuError, UsageError
from sgpu.visible import controls_shown

app = typer.Typer(
    name="sgpu",
    help="When to trust a language model: a calibrated probability from the spectrum of its sampled answers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _find_study(file: Path) -> Path:
    """Return the study file, or the shipped study of that name where there is no such file."""
    shipped = Path(str(importlib.resources.files("pipelines"))) / "studies" / file.name
    return shipped if file.name == str(file) and not file.exists() and shipped.is_file() else file


StudyFile = Annotated[
    Path,
    typer.Argument(
        metavar="STUDY.yaml",
        help="Study file, or a shipped one by its name (paper.yaml).",
        show_default=False,
        callback=_find_study,
    ),
]
# As text: a path would make one slash of the two in s3://bucket/prefix.
Output = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Folder, s3://bucket/prefix or gs://bucket/prefix. Default: runs/<study name>.",
        show_default=False,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="a.b=VALUE", help="Change one setting of the study; may be repeated."),
]
Address = Annotated[
    str | None,
    typer.Option("--address", help="Ray cluster to use (auto or host:port). Default: a local Ray."),
]


Private = Annotated[
    bool, typer.Option("--private", help="Only this user may read tables and reports (0700).")
]


data = typer.Typer(no_args_is_help=True, help="Data sets of a study.")
app.add_typer(data, name="data")
app.command()(models.fit)
app.add_typer(models.model, name="model")
app.command(cls=scoring.ScoreCommand)(scoring.score)
app.command()(scoring.vacuum)
app.add_typer(scoring.logs, name="logs")
app.command("list")(listing.list_names)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(f"sgpu {sgpu.__version__}")
        raise typer.Exit


@app.command()
def benchmark(
    study: StudyFile,
    out: Output = None,
    set_: Overrides = None,
    address: Address = None,
    private: Private = False,
) -> None:
    """Run a study: sample, judge, encode, fit, evaluate, report. A second call runs only what is new."""
    from pipelines.benchmark import benchmark_study

    page = benchmark_study(study, out, set_ or [], address, private)
    print(page)


@app.command()
def transfer(
    study: StudyFile,
    out: Output = None,
    set_: Overrides = None,
    address: Address = None,
    private: Private = False,
) -> None:
    """Evaluate classifiers on cells that they were not trained on, from finished runs; samples nothing."""
    from pipelines.transfer import transfer_study

    page = transfer_study(study, out, set_ or [], private, address)
    print(page)


@app.command("report")
def render_report(
    folder: Annotated[
        str | None,
        typer.Argument(metavar="[DIR]", help="Folder of a finished study: render its report again."),
    ] = None,
    cells: Annotated[
        Path | None,
        typer.Option(
            "--cells",
            metavar="FILE.csv",
            help="Numbers per cell: dataset, model, method, auroc, auarc_20, ece; or a run's metrics.csv.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="DIR", help="Output of --cells: a folder or s3://, gs://."),
    ] = None,
    transfer: Annotated[
        Path | None,
        typer.Option("--transfer", metavar="FILE.csv", help="As --cells, for cells of a transfer study."),
    ] = None,
) -> None:
    """Render the report of a finished study, or aggregate tables from per-cell numbers alone."""
    if folder is not None and cells is None:
        from pipelines.benchmark import report_study

        print(report_study(folder))
    elif folder is None and cells is not None and out is not None:
        from sgpu.report.aggregate.page import publish_aggregate_report

        print(publish_aggregate_report(cells, out, transfer))
    else:
        raise UsageError("give either DIR, or --cells FILE.csv with --out DIR")


@data.command("prepare")
def data_prepare(study: StudyFile, out: Output = None, set_: Overrides = None) -> None:
    """Write the study's questions as Parquet shards with a manifest; later stages read nothing else."""
    from sgpu.cli.prepare import prepare_data

    prepare_data(study, out, set_ or [])


@app.command("fetch")  # the module has this name
def fetch_files(
    study: StudyFile,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="DIR", help="Folder, for HF_HOME. Default: HF_HOME as it is.", show_default=False
        ),
    ] = None,
    set_: Overrides = None,
) -> None:
    """Fetch a study's models, encoders and data sets from the Hub into one folder; compare their hashes."""
    from sgpu.cli.fetch import fetch_study

    os.environ.pop("TQDM_DISABLE", None)  # the bars are all that shows here
    fetch_study(study, to, set_ or [])


@app.command()
def plan(
    study: StudyFile,
    set_: Overrides = None,
    rates: Annotated[
        Path | None,
        typer.Option(
            "--rates",
            metavar="FILE",
            help="Rates in YAML, or a run.json.",
            show_default=False,
        ),
    ] = None,
    gpus: Annotated[int, typer.Option("--gpus", help="GPUs that the study may use.")] = 8,
    json_: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Estimate what a study will cost before it is run. --set also takes rates.SECTION.NAME=VALUE."""
    from sgpu.plan.plan import make_plan
    from sgpu.plan.tables import as_json, as_text

    made = make_plan(study, set_ or [], rates, gpus)
    print(as_json(made) if json_ else as_text(made))


@app.command("doctor")  # the module has this name
def check_machine(out: Output = None) -> None:
    """Show what is installed, which engine will be used, what is missing and how to get it."""
    from sgpu.cli.doctor import run_doctor
    from sgpu.storage.location import Location

    location = Location.of(out or "runs")
    # Of results in object storage only a working folder is on this machine.
    raise typer.Exit(run_doctor(location.local if location.is_local else Path("runs")))


def main() -> None:
    """Entry point: deliberate errors become one message and their exit code, never a traceback."""
    # Stages show their own progress; bars of the libraries beneath would write over it.
    os.environ.setdefault("TQDM_DISABLE", "1")
    # Libraries beneath that report home are told not to.
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")
    console = Console(stderr=True, highlight=False)
    try:
        app()
    except SgpuError as error:
        console.print("error:", style="bold red", end=" ")
        console.print(controls_shown(str(error)), markup=False, soft_wrap=True)
        sys.exit(error.exit_code)
