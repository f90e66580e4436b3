"""The direction of imports, held as a test: every module imports downward, or inside its own package.

Imports inside functions count too: laziness changes when a dependency is loaded, not that it exists. What
a Registry names in a string is exempt: that is how a lower layer stays ignorant of a higher one.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("sgpu", "pipelines")

# From the top down. A unit is a module or a package; the longest matching name decides, so that
# `sgpu.runtime.train_job` can stand above the rest of `sgpu.gp`. In `*.base` stand the protocols and the records
# that everything exchanges, which belong beneath those that implement them.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("pipelines", "sgpu.cli", "sgpu.cli.doctor", "infra.simulation"),
    ("sgpu.report.aggregate", "sgpu.plan", "sgpu.scoring"),
    ("sgpu.stages", "sgpu.report"),
    # What a night counts and finds, which its page shows.
    ("sgpu.logs.accounting", "sgpu.logs.records", "sgpu.watch"),
    (
        "sgpu.study.departures",
        "sgpu.fitted.model",
        "sgpu.runtime.train_job",
        "sgpu.hidden",
        "sgpu.probes",
        "sgpu.tracking",
        "sgpu.transfer",
    ),
    ("sgpu.fitted.profile",),
    (
        "sgpu.datasets",
        "sgpu.encoders",
        "sgpu.engines",
        "sgpu.entailment",
        "sgpu.evaluation",
        "sgpu.gp",
        "sgpu.judges",
        "sgpu.methods",
        "sgpu.models.small",
    ),
    (
        "sgpu.models.access",
        "sgpu.study.models",
        "sgpu.spectrum",
        "sgpu.storage.store",
        "sgpu.study.benchmark",
        "sgpu.storage.tables",
        "sgpu.study.transfer",
    ),
    ("sgpu.study.data_specs", "sgpu.study.file"),
    (
        "sgpu.storage.bundle_files",
        "sgpu.storage.delta_log",
        "sgpu.images",
        "sgpu.storage.parquet_files",
        "sgpu.study.specs",
    ),
    (
        "sgpu.datasets.base",
        "sgpu.engines.base",
        "sgpu.judges.base",
        "sgpu.storage.location",
        "sgpu.methods.base",
        "sgpu.gp.trainers",
    ),
    (
        "sgpu.addresses",
        "sgpu.errors",
        "sgpu.final_answer",
        "sgpu.models.machine",
        "sgpu.models.cards",
        "sgpu.models.prompt_forms",
        "sgpu.provenance",
        "sgpu.registry",
        "sgpu.seeds",
        "sgpu.storage.errors",
        "sgpu.visible",
        "sgpu.models.weights",
    ),
    ("sgpu",),
)
LAYER_OF = {unit: depth for depth, units in enumerate(LAYERS) for unit in units}

# Imports between neighbours of one layer, or upward, each with its reason.
ALLOWED: dict[tuple[str, str], str] = {
    ("sgpu.cli", "pipelines"): "the command line starts the workflows",
    ("sgpu.cli", "sgpu.cli.doctor"): "one of the commands",
    ("sgpu.registry", "sgpu.errors"): "a miss is a UsageError",
    ("sgpu.models.weights", "sgpu.errors"): "a wrong checksum is an IntegrityError",
    ("sgpu.models.weights", "sgpu.registry"): "one wording for an unknown name",
    ("sgpu.stages", "sgpu.report"): "the last stage renders what the others have published",
    ("sgpu.storage.store", "sgpu.storage.tables"): "the store publishes what the tables describe",
    (
        "sgpu.datasets",
        "sgpu.judges",
    ): "a question that holds its own answer is found by the judge's rule",
    ("sgpu.entailment", "sgpu.judges"): "an LLM is asked yes or no as a judge is, with one reading of both",
    ("sgpu.entailment", "sgpu.methods"): "clusters are made of entailments by the method's own rule",
    ("sgpu.hidden", "sgpu.probes"): "which token a probe reads is defined once, beside the probes",
    ("sgpu.tracking", "sgpu.fitted.model"): "MLflow's model flavour wraps a fitted model",
    ("sgpu", "sgpu.fitted.model"): "the two public names `sgpu` offers, resolved on first use",
}

PURE = ("sgpu.spectrum", "sgpu.methods", "sgpu.evaluation", "sgpu.gp", "sgpu.probes", "sgpu.transfer")
NOT_PURE = ("sgpu.runtime.train_job",)
FORBIDDEN_IN_PURE = ("ray", "dagster", "vllm", "mlflow", "sgpu.stages")
# `sgpu.fitted.model` opens models:/ URIs, which only MLflow can resolve.
MAY_IMPORT_MLFLOW = ("sgpu.tracking", "sgpu.fitted.model")
HEAVY = ("torch", "ray", "vllm", "mlflow", "dagster", "transformers", "sentence_transformers")
SHAPELESS_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}


@dataclass(frozen=True)
class Import:
    """One import: the module that has it, what it names, and where."""

    importer: str
    imported: str
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def modules(root: Path) -> dict[str, Path]:
    """Dotted name -> file of every module of our packages beneath ``root``."""
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(root: Path) -> list[Import]:
    """Every import statement of every module, at whatever depth, but for those of type checkers only."""
    known = modules(root)
    return [
        Import(name, imported, node.lineno)
        for name, path in known.items()
        for node in run_time_nodes(ast.parse(path.read_text(encoding="utf-8"), filename=str(path)))
        for imported in named_by(node, name, path.name == "__init__.py", known)
    ]


def run_time_nodes(tree: ast.AST) -> Iterator[ast.stmt]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for child in node.orelse:
                yield from run_time_nodes(ast.Module([child], []))
        else:
            yield from run_time_nodes(node)


def named_by(node: ast.stmt, importer: str, is_package: bool, known: dict[str, Path]) -> list[str]:
    """Absolute dotted names; `from package import module` names the module, not the package."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert isinstance(node, ast.ImportFrom)
    base = node.module or ""
    if node.level:
        parents = importer.split(".")[: None if is_package and node.level == 1 else -node.level + is_package]
        base = ".".join([*parents, *([base] if base else [])])
    return [f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base for alias in node.names]


def unit_of(module: str) -> str | None:
    parts = module.split(".")
    candidates = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    unit = next((name for name in candidates if name in LAYER_OF), None)
    # `sgpu` itself is its __init__ only; a new module beneath it has to be given a place.
    return None if unit == "sgpu" and module != "sgpu" else unit


def package_of(unit: str) -> str:
    return ".".join(unit.split(".")[:2])


def within(module: str, names: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def unplaced(root: Path) -> list[str]:
    return [module for module in modules(root) if unit_of(module) is None]


def wrong_direction(root: Path) -> list[str]:
    found = []
    for item in imports(root):
        if not within(item.imported, PACKAGES):
            continue
        importer, imported = unit_of(item.importer), unit_of(item.imported)
        if importer is None or imported is None or LAYER_OF[importer] < LAYER_OF[imported]:
            continue
        # A package may use its own parts in any order, but nothing beneath may reach up to its train_job.
        same_package = package_of(importer) == package_of(imported) and imported not in NOT_PURE
        if importer == imported or same_package:
            continue
        if (package_of(importer), package_of(imported)) not in ALLOWED:
            found.append(str(item))
    return found


def impure(root: Path) -> list[str]:
    return [
        str(item)
        for item in imports(root)
        if within(item.importer, PURE)
        and not within(item.importer, NOT_PURE)
        and within(item.imported, FORBIDDEN_IN_PURE)
    ]


def mlflow_outside_tracking(root: Path) -> list[str]:
    return [
        str(item)
        for item in imports(root)
        if within(item.imported, ("mlflow",)) and not within(item.importer, MAY_IMPORT_MLFLOW)
    ]


def shapeless(root: Path) -> list[str]:
    return [name for name in modules(root) if SHAPELESS_NAMES & set(name.split("."))]


CHECKS = {
    "every module has a place in a layer": unplaced,
    "imports go downward": wrong_direction,
    "pure modules stay pure": impure,
    "only tracking imports mlflow": mlflow_outside_tracking,
    "names say what is inside": shapeless,
}


@pytest.mark.parametrize("rule", CHECKS)
def test_the_tree_keeps_the_rule(rule: str) -> None:
    assert CHECKS[rule](ROOT) == []


@pytest.mark.parametrize(
    ("rule", "path", "source"),
    [
        ("every module has a place in a layer", "sgpu/newcomer.py", ""),
        ("imports go downward", "sgpu/spectrum.py", "from sgpu.engines import vllm"),
        ("imports go downward", "sgpu/spectrum.py", "def f():\n    import sgpu.runtime.runner"),
        ("imports go downward", "sgpu/judges/new.py", "from sgpu.encoders import cards"),
        ("imports go downward", "sgpu/judges/new.py", "from ..encoders import cards"),
        ("imports go downward", "sgpu/gp/new.py", "from sgpu.gp import train_job"),
        ("imports go downward", "sgpu/engines/base.py", "from sgpu.study.benchmark import Study"),
        ("imports go downward", "sgpu/stages/new.py", "from pipelines.benchmark import cells"),
        ("imports go downward", "sgpu/errors.py", "if True:\n    from sgpu.seeds import order_key"),
        ("pure modules stay pure", "sgpu/methods/new.py", "import ray.data"),
        ("pure modules stay pure", "sgpu/gp/new.py", "def f():\n    from vllm import LLM"),
        ("pure modules stay pure", "sgpu/evaluation/new.py", "import sgpu.runtime.runner"),
        ("only tracking imports mlflow", "pipelines/new.py", "from mlflow.tracking import MlflowClient"),
        ("names say what is inside", "sgpu/report/utils.py", ""),
    ],
)
def test_a_planted_violation_is_found(rule: str, path: str, source: str, tmp_path: Path) -> None:
    for module in ("sgpu/engines/vllm.py", "sgpu/encoders/cards.py", "sgpu/runtime/train_job.py"):
        (tmp_path / module).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / module).touch()
    assert CHECKS[rule](tmp_path) == []
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(source)
    assert len(CHECKS[rule](tmp_path)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("sgpu/judges/new.py", "from sgpu.engines.base import Engine"),
        ("sgpu/stages/new.py", "from sgpu.gp import kernels"),
        ("sgpu/runtime/train_job.py", "from sgpu.gp import kernels\nimport ray"),
        ("sgpu/gp/new.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import sgpu.stages"),
    ],
)
def test_what_is_allowed_passes(path: str, source: str, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(source)
    assert [problem for rule in CHECKS.values() for problem in rule(tmp_path)] == []


def test_every_exception_is_still_needed() -> None:
    used = {
        (package_of(importer), package_of(imported))
        for item in imports(ROOT)
        if (importer := unit_of(item.importer)) and (imported := unit_of(item.imported))
    }
    assert sorted(set(ALLOWED) - used) == []


def loaded_by(statement: str) -> list[str]:
    code = f"{statement}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.split()


@pytest.mark.parametrize(
    "module", ["sgpu", "sgpu.cli", "sgpu.study.benchmark", "sgpu.storage.tables", "sgpu.study.models"]
)
def test_a_light_module_loads_nothing_heavy(module: str) -> None:
    assert loaded_by(f"import {module}") == []


def test_the_check_for_heavy_modules_can_fail() -> None:
    assert "transformers" in loaded_by(
        "import sys, types; sys.modules['transformers'] = types.ModuleType('x')"
    )
