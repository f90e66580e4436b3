"""How assets get at the study that is being run."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
from pydantic import Field

from sgpu.location import Location
from sgpu.stages.preflight import check_study
from sgpu.stages.run import Run, open_run
from sgpu.study import load_study

# One Run for each study folder and process, so that all assets of a run report to the same place.
_open_runs: dict[str, Run] = {}


def register(run: Run) -> None:
    """Let assets of this process use a run that the command line has already opened."""
    _open_runs[str(run.root)] = run


class StudyResource(dg.ConfigurableResource):
    """A study file with its overrides, output folder and Ray address, as Dagster configuration."""

    study: str
    out: str
    overrides: list[str] = Field(default_factory=list)
    address: str | None = None

    def open(self) -> Run:
        """The run of this study; opened at first use in a process that the command line did not start."""
        place = str(Location.of(self.out))
        if place not in _open_runs:
            study = load_study(Path(self.study), self.overrides)
            check_study(study, address=self.address)
            register(open_run(study, self.out, self.address))
        return _open_runs[place]
