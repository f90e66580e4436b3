"""How assets get at the study that is being run."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
from pydantic import Field

from pipelines.open_runs import OpenRuns
from sgpu.runtime.run import Run, open_run
from sgpu.stages.preflight import check_study
from sgpu.storage.location import Location
from sgpu.study.benchmark import load_study

_runs = OpenRuns[Run]()


def register(run: Run) -> None:
    """Let assets of this process use a run that the command line has already opened and locked."""
    _runs.register(run.root, run)


class StudyResource(dg.ConfigurableResource):
    """A study file with its overrides, output folder and Ray address, as Dagster configuration."""

    study: str
    out: str
    overrides: list[str] = Field(default_factory=list)
    address: str | None = None

    def open(self) -> Run:
        """The run of this study; in a process that the command line did not start it is locked first."""
        return _runs.open(Location.of(self.out), self._opened)

    def _opened(self) -> tuple[Run, Path]:
        study = load_study(Path(self.study), self.overrides)
        check_study(study, address=self.address)
        run = open_run(study, self.out, self.address)
        return run, run.out

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Let others have the folder."""
        _runs.close(Location.of(self.out))
