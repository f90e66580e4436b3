"""The commands of the nightly job: `sgpu score` and `sgpu vacuum`."""

from __future__ import annotations

from functools import cache
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand

from sgpu.errors import UsageError

logs = typer.Typer(no_args_is_help=True, help="Production logs.")


class ScoreCommand(TyperCommand):
    """Its flags are fields of `ScoreSettings`, which are imported when they are asked for and not before."""

    def get_params(self, ctx: Any) -> list[Any]:
        return [*_flags(), *super().get_params(ctx)]

    def invoke(self, ctx: Any) -> Any:
        values = {flag.name: ctx.params.pop(flag.name) for flag in _flags()}
        ctx.obj = {name: value for name, value in values.items() if value is not None and value is not False}
        return super().invoke(ctx)


@cache
def _flags() -> list[Any]:
    """An option for each field that has a `Flag`; a number's default is told."""
    from sgpu.scoring.settings import Flag, ScoreSettings

    flags = []
    for name, field in ScoreSettings.model_fields.items():
        kinds = (field.annotation, *get_args(field.annotation))
        kind = next((kind for kind in (bool, int, float) if kind in kinds), str)
        for flag in (item for item in field.metadata if isinstance(item, Flag)):
            has_default = kind in (int, float) and field.default is not None
            help = f"{flag.help} Default: {field.default}." if has_default else flag.help
            spelled = flag.name or f"--{name.replace('_', '-')}"
            value: Any = bool if kind is bool else kind | None
            option = Annotated[value, typer.Option(spelled, metavar=flag.metavar, help=help)]
            default = False if kind is bool else None
            flags.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=option))

    def of_settings() -> None: ...

    of_settings.__signature__ = Signature(flags)  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False)
    app.command()(of_settings)
    return typer.main.get_command(app).params


def score(
    ctx: typer.Context,
    settings: Annotated[
        Path | None,
        typer.Option(
            "--settings",
            metavar="FILE.yaml",
            help="YAML file with these and further settings; flags override it.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="a.b=VALUE", help="Change one setting; may be repeated."),
    ] = None,
) -> None:
    """Score a day of production logs, each request once. A second call scores only what is new.

    Exit codes: 0 green, 3 too many bad rows or files, 4 yellow, 5 red; 1 failed, 2 bad usage. Of
    several 1 beats 5, 5 beats 3, 3 beats 4; all are printed.
    """
    values: dict[str, Any] = ctx.obj
    if "resample" in values:
        values["resample"] = {"base_url": values["resample"]}
    named = values.keys() | {override.partition("=")[0] for override in set_ or []}
    if settings is None and (missing := [f"--{key}" for key in ("logs", "model", "out") if key not in named]):
        raise UsageError(f"give {', '.join(missing)}, or a file of them with --settings")
    from pipelines.nightly import score_logs

    raise typer.Exit(score_logs(settings, values, set_ or []))


def vacuum(
    out: Annotated[
        str, typer.Option("--out", metavar="TABLE", help="Score table: a folder, s3:// or gs://.")
    ],
    older_than: Annotated[int, typer.Option("--older-than", help="Hours; at least 24.")] = 168,
) -> None:
    """Remove files that dead scoring runs have left, and old versions of the score table."""
    from sgpu.scoring.vacuum import vacuum_table

    done = vacuum_table(out, older_than)
    print(f"{done.files} files and {done.folders} folders of work removed from {out}")


@logs.command("check")
def logs_check(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A folder, file or s3://.", show_default=False)],
    map_: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE.yaml", help="Field map for rows of an unknown format."),
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows of each file to look at.")] = 1000,
    format_: Annotated[str, typer.Option("--format", help="As for `sgpu score`.")] = "auto",
) -> None:
    """Show how logs are read, how many rows can be scored and why the others cannot; writes nothing.

    Exit codes: 0 some rows can be scored, 3 none can; 1 no logs, 2 bad usage.
    """
    from rich.console import Console

    from sgpu.logs.formats.mapped import FieldMap
    from sgpu.scoring.logs_check import NOTHING, check_logs, show_logs_check
    from sgpu.study.file import read_tree, validated

    map = validated(FieldMap, read_tree(map_, what="map"), f"map {map_}") if map_ else None
    result = check_logs(path, format_, map, rows)
    show_logs_check(result, Console())
    raise typer.Exit(0 if result.sets else NOTHING)
