"""The batch file for Slurm, run as one node without Slurm: ended as at its time limit, and run again.

It gets its own process and network namespaces, because `ray stop` at its end stops every Ray that it sees.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.cluster.nodes import with_folders
from tests.infra.manifests import INFRA, ROOT
from tests.pipelines.own_answers import response_sets, write_study

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
STUDY = (
    "datasets: [{kind: responses, path: answers.jsonl, model: my-model}]\n"
    "methods: [sgpu, predictive_entropy]\n"
    "evaluation: {bootstrap: 100}\n"
    "tracking: {mlflow: none}\n"
)
ALONE = ["unshare", "--user", "--map-root-user", "--pid", "--net", "--mount-proc", "--kill-child", "--fork"]
# This `srun` drops its own options and runs the rest, as on the only node of a job.
STUBS = {
    "srun": 'while [[ "$1" == --* ]]; do shift; done; exec "$@"',
    "scontrol": '[[ "$1" == requeue ]] && echo "$*" >>"$SCRATCH/requeued"; echo "JobState=RUNNING"',
    "sgpu": f"exec {sys.executable} -c 'from sgpu.cli import main; main()' \"$@\"",
}
JOB = f"test{os.getpid()}"
STAGES = ("import", "judge", "encode")


def start(folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start the batch file as process 1 of new namespaces."""
    environment = with_folders({k: v for k, v in os.environ.items() if not k.startswith("RAY_")}, ROOT)
    environment |= {
        "HOME": str(folder), "SCRATCH": str(folder), "SLURM_JOB_ID": JOB, "SLURM_NNODES": "1",
        "SLURMD_NODENAME": "127.0.0.1", "RAY_OVERRIDE_RESOURCES": '{"CPU": 8}',
        "PATH": f"{folder}:{Path(sys.executable).parent}:{environment['PATH']}",
    }  # fmt: skip
    batch = f"ip link set lo up && exec bash {INFRA}/slurm/benchmark.sbatch own.yaml {folder}/out"
    command = [*ALONE, "bash", "-c", f"{batch} --set resources.device=cpu"]
    with log.open("wb") as file:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT)


@pytest.mark.skipif(
    not shutil.which("unshare") or bool(subprocess.run([*ALONE, "ip", "link", "set", "lo", "up"]).returncode),
    reason="needs namespaces of its own (unshare, ip)",
)
def test_a_job_ended_at_its_time_limit_is_requeued_and_goes_on(tmp_path: Path) -> None:
    write_study(tmp_path, response_sets(120), STUDY)
    for name, body in STUBS.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    log = tmp_path / "log"
    process = start(tmp_path, log)
    while "\nencode " not in log.read_text():
        assert process.poll() is None, log.read_text()
        time.sleep(0.2)
    [batch] = psutil.Process(process.pid).children()
    batch.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 130, log.read_text()
    assert "the same command goes on from there" in log.read_text()
    assert (tmp_path / "requeued").read_text() == f"requeue {JOB}\n"
    assert (tmp_path / ".ray/auth_token").stat().st_mode & 0o777 == 0o600

    assert start(tmp_path, log).wait(timeout=300) == 0, log.read_text()
    lines = [line for line in log.read_text().splitlines() if line.startswith(STAGES)]
    assert len(lines) == 4 and all(line.endswith("unchanged, not run again") for line in lines)
    assert (tmp_path / "out/report/index.html").is_file()
    assert (tmp_path / "requeued").read_text().count("\n") == 1
    shutil.rmtree(f"/tmp/sgpu-{JOB}")
