"""What no file of ours may contain: code that can run what an input says, found in the syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("sgpu", "pipelines")

MODULES = {
    "pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "jsonpickle",
}  # fmt: skip
BUILTINS = {"eval", "exec", "compile", "__import__"}
CALLS = {
    "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn",
    "tempfile.mktemp", "yaml.load", "yaml.load_all", "yaml.full_load", "yaml.full_load_all",
    "yaml.unsafe_load", "yaml.unsafe_load_all", "torch.load", "torch.hub.load", "pandas.read_pickle",
    "shutil.unpack_archive", "ssl._create_unverified_context", "mlflow.pyfunc.load_model",
}  # fmt: skip
# Nothing is unpacked: archives are read in place.
METHODS = {"extractall", "extract", "unpack_archive", "read_pickle", "to_pickle"}
# Keyword -> the one value that it may have, written out.
KEYWORDS: dict[str, object] = {
    "shell": False, "trust_remote_code": False, "allow_pickle": False, "weights_only": True,
    "autoescape": True,
}  # fmt: skip
# Method -> a keyword that each call has to give: where it is left out, transformers asks the user.
DEMANDED = {"from_pretrained": "trust_remote_code"}
NEVER = {"verify": False}  # keyword -> the value that it may not have
# Where modules are imported by a name; each takes it from code or a registry, never from an input.
IMPORTS_BY_NAME = ("importlib.import_module", "importlib.metadata.entry_points", "pkgutil.resolve_name")
IMPORTERS = {
    "sgpu/registry.py": "names that stand in registries, or in the entry points of installed packages",
    "sgpu/runtime/stage.py": "names that stages pass to their own actors",
}
# Readers of Parquet, Arrow and Delta files, whose types may run code: by module, and by name on any object,
# since a module can be given another name in too many ways. What a package offers beside it is named in full.
READING_MODULES = {f"pyarrow.{name}" for name in ("parquet", "ipc", "feather", "dataset", "orc", "_parquet")}
READERS = {
    "ParquetFile", "ParquetDataset", "RecordBatchFileReader", "RecordBatchStreamReader", "open_stream",
    "read_feather", "read_parquet", "scan_parquet", "read_parquet_schema", "read_ipc", "read_ipc_stream",
    "scan_ipc", "read_ipc_schema", "read_delta", "scan_delta", "read_orc", "scan_pyarrow_dataset",
    "QueryBuilder", "to_pyarrow_table", "to_pyarrow_dataset", "to_pandas", "load_cdf", "ipc", "feather",
    "parquet",
}  # fmt: skip
STORAGE = "sgpu/storage/parquet_files.py"
# Ray refuses pickled columns in its own reader; `tests/runtime/test_hostile_tables.py` holds it to that.
# Pickled weights are read in one process, by PyTorch's restricted reader (`weights_only` below KEYWORDS).
UNPICKLER = ("sgpu/models/unpickling.py", "torch.load")
RAYS_READER = ("sgpu/runtime/dataflow.py", "ray.data.read_parquet")


def files(root: Path) -> list[Path]:
    return [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]


def violations(root: Path) -> list[str]:
    """`file:line what` for everything beneath the packages that is forbidden."""
    found = []
    for path in files(root):
        name = path.relative_to(root).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=name)
        aliases = dict(_aliases(tree))
        for node in ast.walk(tree):
            found += [f"{name}:{node.lineno} {what}" for what in _wrong(node, aliases, name)]  # type: ignore[attr-defined]
    return found


def _aliases(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Local name -> full name, for every import at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _wrong(node: ast.AST, aliases: dict[str, str], name: str) -> Iterator[str]:
    if name != STORAGE:
        yield from _reading(node, aliases, name)
    if isinstance(node, ast.Import):
        yield from (f"import {one.name}" for one in node.names if one.name.split(".")[0] in MODULES)
    elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES and not node.level:
        yield f"from {node.module} import"
    elif isinstance(node, ast.Call):
        yield from _wrong_call(node, aliases, name)
    elif isinstance(node, ast.Dict):
        # Keywords that are handed on as a dictionary.
        pairs = (
            (key.value, value) for key, value in zip(node.keys, node.values, strict=True) if _is_text(key)
        )  # type: ignore[union-attr]
        yield from (f"{key!r} is not {KEYWORDS[key]}" for key, value in pairs if _differs(key, value))


def _reading(node: ast.AST, aliases: dict[str, str], name: str) -> Iterator[str]:
    """What opens files that only `STORAGE` may open, imported, or taken from a module or an object."""
    if isinstance(node, ast.Import):
        named = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        named = [f"{node.module}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Attribute):
        named = [_full_name(node, aliases) or node.attr]
    else:
        return
    for full in named:
        module = any(full == one or full.startswith(f"{one}.") for one in READING_MODULES)
        if (module or full.rpartition(".")[2] in READERS) and (name, full) != RAYS_READER:
            yield f"{full} outside of {STORAGE}"


def _wrong_call(call: ast.Call, aliases: dict[str, str], name: str) -> Iterator[str]:
    called = _full_name(call.func, aliases)
    if isinstance(call.func, ast.Name) and called in BUILTINS:
        yield f"{called}("
    if called in CALLS and (name, called) != UNPICKLER:
        yield f"{called}("
    if isinstance(call.func, ast.Attribute) and call.func.attr in METHODS and called not in CALLS:
        yield f".{call.func.attr}("
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method in DEMANDED and DEMANDED[method] not in {keyword.arg for keyword in call.keywords}:
        yield f".{method}( without {DEMANDED[method]}"
    if called in IMPORTS_BY_NAME and name not in IMPORTERS:
        yield f"{called}("
    for keyword in call.keywords:
        if keyword.arg and _differs(keyword.arg, keyword.value):
            yield f"{keyword.arg} is not {KEYWORDS[keyword.arg]}"
        value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
        if keyword.arg in NEVER and value is NEVER[keyword.arg]:
            yield f"{keyword.arg}={value}"


def _differs(keyword: str, value: ast.expr) -> bool:
    if keyword not in KEYWORDS:
        return False
    return not (isinstance(value, ast.Constant) and value.value is KEYWORDS[keyword])


def _is_text(key: ast.expr | None) -> bool:
    return isinstance(key, ast.Constant) and isinstance(key.value, str)


def _full_name(node: ast.expr, aliases: dict[str, str]) -> str:
    """`np.load` as numpy.load; "" for a call of something that has no name."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([aliases.get(node.id, node.id), *reversed(parts)])
