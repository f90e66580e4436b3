"""The commands of a model's life: `sgpu fit`, `sgpu model list`, `sgpu model promote`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sgpu.errors import UsageError

model = typer.Typer(no_args_is_help=True, help="Registered models: list versions, promote a champion.")

Store = Annotated[
    str | None,
    typer.Option(
        "--tracking",
        metavar="URI",
        help="MLflow store. Default: MLFLOW_TRACKING_URI, else runs/mlflow.db.",
        show_default=False,
    ),
]
LabelledFile = Annotated[
    Path, typer.Option("--responses", metavar="FILE", help="Labelled response sets: JSON Lines or Parquet.")
]
TargetError = Annotated[
    float | None,
    typer.Option(
        "--target-error",
        help="Find the probability threshold above which at most this share of answers is wrong.",
    ),
]

Confidence = Annotated[float, typer.Option("--confidence", help="Confidence with which that holds.")]
Judge = Annotated[
    str, typer.Option("--judge", help="Labels rows that have references and no label: alias or numeric.")
]

FitMethod = Annotated[
    str,
    typer.Option(
        "--method",
        help="sgpu, or sgpu_plus: also reads questions and chooses the answer. auto: sgpu_plus if it can.",
    ),
]


def fit(
    responses: LabelledFile,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="DIR", help="Folder of the model. With --register: runs/models/NAME."),
    ] = None,
    register: Annotated[
        str | None, typer.Option("--register", metavar="NAME", help="Name of the model in MLflow's registry.")
    ] = None,
    alias: Annotated[
        str, typer.Option("--alias", help="Alias that moves to the new version.")
    ] = "challenger",
    promote: Annotated[bool, typer.Option("--promote", help="Make the new version the champion.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --promote: even below the minimum number of rows and AUROC.")
    ] = False,
    encoder: Annotated[str, typer.Option("--encoder", help="Sentence encoder.")] = "all-MiniLM-L6-v2",
    judge: Judge = "alias",
    method: FitMethod = "auto",
    n: Annotated[
        int | None, typer.Option("--n", help="Answers per set. Default: the most common number.")
    ] = None,
    test_share: Annotated[float, typer.Option("--test-share", help="Share of the rows held out.")] = 0.2,
    target_error: TargetError = None,
    confidence: Confidence = 0.95,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the split and the fit.")] = 0,
    private: Annotated[
        bool, typer.Option("--private", help="Only this user may read the model (0700).")
    ] = False,
    tracking: Store = None,
) -> None:
    """Fit a model to your own labelled response sets, measure it on held-out ones, register it."""
    if out is None and register is None:
        raise UsageError("give --out DIR, --register NAME, or both")
    from sgpu.datasets.response_files import check_file
    from sgpu.own_answers.request import FitRequest
    from sgpu.storage.location import Location, only_ours
    from sgpu.study.fit_settings import FitSettings

    request = FitRequest(
        register=register,
        alias=alias,
        promote=promote,
        force=force,
        tracking_uri=tracking,
        settings=FitSettings(encoder=encoder, seed=seed, method=method),
        judge=judge,
        n=n,
        test_share=test_share,
        target_error=target_error,
        confidence=confidence,
    )
    check_file(responses)
    location = Location.of(out or f"runs/models/{register}")
    if private:
        only_ours(location)
    from sgpu.own_answers.fit import fit_responses  # PyTorch takes seconds: after what can be wrong

    print(fit_responses(responses, str(location), request).folder)


@model.command("list")
def list_versions(name: Annotated[str, typer.Argument(metavar="NAME")], tracking: Store = None) -> None:
    """List the versions of a registered model with their aliases, newest first."""
    from sgpu.scoring.models.registered_models import list_models

    for version in list_models(name, tracking):
        answers = f"N = {version.n_answers or 'unknown'}"
        print(version.version, version.created, answers, ", ".join(version.aliases), sep="\t")


@model.command()
def promote(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    version: Annotated[int, typer.Argument(metavar="VERSION")],
    force: Annotated[
        bool, typer.Option("--force", help="Even below the minimum number of rows and AUROC.")
    ] = False,
    tracking: Store = None,
) -> None:
    """Make a version the champion, after its files have been checked."""
    from sgpu.scoring.models.registered_models import promote_model

    before = promote_model(name, version, tracking, force=force)
    was = f" (was version {before})" if before and before != version else ""
    print(f"version {version} of {name} is now champion{was}")
