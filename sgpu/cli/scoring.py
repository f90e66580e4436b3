"""The commands of the nightly job: `sgpu score` and `sgpu vacuum`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sgpu.errors import UsageError

logs = typer.Typer(no_args_is_help=True, help="Production logs.")


def score(
    logs: Annotated[
        str | None,
        typer.Option("--logs", metavar="PATH", help="Logs: a folder (dt=YYYY-MM-DD/), file or s3://."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="URI", help="models:/NAME@champion, or a folder of a fit."),
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="TABLE", help="Where the scores are kept.")
    ] = None,
    day: Annotated[
        str | None,
        typer.Option(
            "--date", metavar="YYYY-MM-DD", help="The day. Default: yesterday, UTC.", show_default=False
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="YYYY-MM-DD", help="Score all days from this one to --date.", show_default=False
        ),
    ] = None,
    challenger: Annotated[
        str | None,
        typer.Option("--challenger", metavar="URI", help="A model that is scored beside it, not used."),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", help="auto, or a format of README's table: sgpu, openai, otel, ..."),
    ] = None,
    late_days: Annotated[
        int | None, typer.Option("--late-days", help="Days before it that are looked at again. Default: 2.")
    ] = None,
    map_: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE.yaml", help="Where the fields are in rows of no known format."),
    ] = None,
    max_bad: Annotated[
        float | None,
        typer.Option("--max-bad", help="Share of bad rows above which the exit code is 3. Default: 0.01."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels", metavar="FILE", help="JSON Lines of request_id, label (0, 1) and maybe model; kept."
        ),
    ] = None,
    thresholds: Annotated[
        str | None, typer.Option("--thresholds", metavar="FILE.yaml", help="Bounds for yellow and red.")
    ] = None,
    rescore: Annotated[
        bool,
        typer.Option("--rescore", help="Replace the day by scores of this model; else only what is new."),
    ] = False,
    private: Annotated[
        bool, typer.Option("--private", help="Tables and pages are for this user alone (0700).")
    ] = False,
    resample: Annotated[
        str | None,
        typer.Option(
            "--resample", metavar="URL", help="Ask this server for more answers where there is one only."
        ),
    ] = None,
    allow_encoder_path: Annotated[
        bool,
        typer.Option("--allow-encoder-path", help="Open an encoder that the model names by its folder."),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Processes that encode; 0: this one. Default: one a core or GPU."),
    ] = None,
    tracking: Annotated[
        str | None,
        typer.Option(
            "--tracking",
            metavar="URI",
            help="MLflow store, or none. Default: MLFLOW_TRACKING_URI, else runs/mlflow.db.",
        ),
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help="auto, cpu or cuda.")] = None,
    address: Annotated[
        str | None, typer.Option("--address", help="Ray cluster to use (auto). Default: a local Ray.")
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option("--settings", metavar="FILE.yaml", help="All of this and more as a file; flags win."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="a.b=VALUE", help="Change one setting, also of a flag; repeatable."),
    ] = None,
) -> None:
    """Score a day of production logs, each request once. A second call does only what is new.

    Exit codes: 0 green, 3 too many bad rows, 4 yellow, 5 red; 1 failed, 2 bad usage. Of several 1 beats 5,
    5 beats 3, 3 beats 4; all are told.
    """
    given: dict[str, Any] = {
        "logs": logs, "model": model, "out": out, "date": day, "start": start, "challenger": challenger,
        "format": format_, "map": map_ and str(map_), "late_days": late_days, "max_bad": max_bad,
        "labels": labels,
        "thresholds": thresholds, "rescore": rescore or None, "workers": workers, "device": device,
        "address": address, "tracking": tracking, "resample": {"base_url": resample} if resample else None,
        "allow_encoder_path": allow_encoder_path or None, "private": private or None,
    }  # fmt: skip
    overridden = {one.partition("=")[0] for one in set_ or []}
    needed = [key for key in ("logs", "model", "out") if key not in overridden]
    if settings is None and (missing := [f"--{key}" for key in needed if given[key] is None]):
        raise UsageError(f"give {', '.join(missing)}, or a file of them with --settings")
    from pipelines.scoring import score_logs

    known = {key: value for key, value in given.items() if value is not None}
    raise typer.Exit(score_logs(settings, known, set_ or []))


def vacuum(
    out: Annotated[str, typer.Option("--out", metavar="TABLE", help="Where the scores are kept.")],
    older_than: Annotated[int, typer.Option("--older-than", help="Hours; at least 24.")] = 168,
) -> None:
    """Remove what dead scoring runs have left, and old versions of the score table."""
    from sgpu.scoring.vacuum import vacuum as remove

    done = remove(out, older_than)
    print(f"{done.files} files and {done.folders} folders of work removed from {out}")


@logs.command("check")
def logs_check(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A folder, file or s3://.", show_default=False)],
    map_: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE.yaml", help="Where the fields are in rows of no known format."),
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows of each file to look at.")] = 1000,
    format_: Annotated[str, typer.Option("--format", help="As of `sgpu score`.")] = "auto",
) -> None:
    """What logs are read as, how many rows could be scored and why not the others; writes nothing.

    Exit codes: 0 something could be scored, 3 nothing could; 1 no logs, 2 bad usage.
    """
    from rich.console import Console

    from sgpu.logs.formats.mapped import FieldMap
    from sgpu.scoring.logs_check import NOTHING, check_logs, show
    from sgpu.study.file import read_tree, validated

    map = validated(FieldMap, read_tree(map_, what="map"), f"map {map_}") if map_ else None
    found = check_logs(path, format_, map, rows)
    show(found, Console())
    raise typer.Exit(0 if found.sets else NOTHING)
