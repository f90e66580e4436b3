"""`python -m infra.count`: prints lines, names and docstrings of the tree, and files that a task executes."""

from __future__ import annotations

import argparse
import ast
import io
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import tokenize
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("sgpu", "pipelines")
GOLDEN = ROOT / "tests" / "golden" / "data"
Function = ast.FunctionDef | ast.AsyncFunctionDef
BLANK = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
WORDS = """
accept account add adjust admit advance aggregate align allow annotate announce answer append apply ask
assemble assess assign attach average balance begin bin bind bound bring bucket build bundle call can
cap carry cast change check choose claim classify clean clear climb clip close coerce collect combine
commit compare complete compute configure confine connect construct consume contradict convert copy
count create cut deal decide declare decline decode delete dequantise derive describe detect determine
discard distribute divide download draw drop embed encode end enforce enter escape estimate evaluate
evict examine exclude execute exit expand explain export expose extend extract fail fetch fill filter
find finish fit flag flatten flush fold follow forbid forget form format forward freeze gather generate
get give go group guess halve handle has hash hold identify ignore import include increment index inform
insert install invoke is iterate join judge keep label launch lay leave let limit list load locate lock
log look make map mark mask match materialise maximise may measure merge minimise move must name needs
normalise note observe open order overlap override package pad pair parse pause permute pick pin place
plan plot poll pool postpone prefix prepare print promote prompt propagate prune publish pull push put
quarantine quote raise rank read rebuild recalibrate receive recognise record redirect reduce refit
refuse register regress reject relate release remember remove rename render renew reorder repeat replace
report request require rerun resample reserve reset resolve restore retry return reuse rewrite round run
sample save say scale scan score search seed seek select send separate serve set shade shape share show
shuffle shut sign skip sort split spread start state stop store stream strip subtract sum summarise swap
take tally tell test throw tie trace track train transfer transform translate trim try tune turn
uninstall unpack unpickle update upload use validate verify vote wait walk warn watch weigh weight wrap
write yield
"""
VERBS = frozenset(WORDS.split())


def parse_tree(package: str, root: Path = ROOT) -> dict[Path, ast.Module]:
    """Return the syntax tree of every module beneath ``package``."""
    return {file: ast.parse(file.read_bytes()) for file in sorted((root / package).rglob("*.py"))}


def count_code_lines(source: str) -> int:
    """Return how many lines hold code: docstrings, comments and blank lines do not count."""
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in BLANK:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function | ast.ClassDef | ast.Module) and ast.get_docstring(node) is not None:
            held.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(held)


def find_functions(tree: ast.Module) -> Iterator[Function]:
    """Yield every function and method, also those inside of others."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def starts_with_verb(words: str) -> bool:
    """Tell whether the first word, of a name or a sentence, is a verb in its base form."""
    first = words.lower().replace("_", " ").split()[:1]
    return bool(first) and first[0].rstrip(".,:;") in VERBS


def find_shared_names(trees: dict[Path, ast.Module]) -> dict[str, list[Path]]:
    """Return public functions at the top of more than one module, with the modules."""
    places: dict[str, list[Path]] = {}
    for file, tree in trees.items():
        names = {node.name for node in tree.body if isinstance(node, Function)}
        for name in sorted(name for name in names if not name.startswith("_")):
            places.setdefault(name, []).append(file)
    return {name: files for name, files in places.items() if len(files) > 1}


def percent(flags: Sequence[bool]) -> str:
    """Return the share of true values as "12.3%"; a hyphen if there are none at all."""
    return f"{100 * sum(flags) / len(flags):.1f}%" if flags else "-"


def count_tree(root: Path = ROOT) -> list[tuple[str, object]]:
    """Return title and value of each figure that can be read from the source."""
    lines = {
        package: sum(count_code_lines(file.read_text(encoding="utf-8")) for file in parse_tree(package, root))
        for package in (*PRODUCT, "examples", "bench", "infra", "tests")
    }
    product = sum(lines[package] for package in PRODUCT)
    trees = {file: tree for package in PRODUCT for file, tree in parse_tree(package, root).items()}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    definitions = sum(isinstance(node, Function | ast.ClassDef) for node in nodes)
    functions = [function for tree in trees.values() for function in find_functions(tree)]
    named = [f for f in functions if not f.name.startswith("__") and not _is_property(f)]
    docstrings = [text for function in functions if (text := ast.get_docstring(function))]
    physical = sum(len(file.read_bytes().splitlines()) for file in parse_tree("tests", root))
    return [
        ("code lines of the product", product),
        *((f"code lines of {name}", count) for name, count in lines.items() if name not in PRODUCT),
        ("physical lines of tests", physical),
        ("modules of the product", len(trees)),
        ("definitions per 1,000 code lines", round(1000 * definitions / max(product, 1))),
        ("public function names in two modules", len(find_shared_names(trees))),
        ("functions named by a verb", percent([starts_with_verb(f.name.strip("_")) for f in named])),
        ("docstrings that begin with a verb", percent([starts_with_verb(text) for text in docstrings])),
    ]


def _is_property(function: Function) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def trace_files(task: Callable[[], object]) -> set[str]:
    """Run ``task`` and return our files of which a function was called, in any thread of this process."""
    codes: set[CodeType] = set()

    def note_call(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    threading.setprofile(note_call)
    sys.setprofile(note_call)
    try:
        task()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    ours = tuple(f"{ROOT / package}/" for package in PRODUCT)
    called = (code for code in codes if code.co_name != "<module>")
    return {code.co_filename for code in called if code.co_filename.startswith(ours)}


def prepare_predict(_: Path) -> Callable[[], object]:
    """Load a model, so that only its `predict` is traced."""
    from sgpu.fitted.model import FittedModel

    model = FittedModel.load(GOLDEN / "nights" / "given" / "model")
    return lambda: model.predict([["Lima", "Lima.", "Lima", "Lima", "Cusco"] * 2])


def prepare_cell(work: Path) -> Callable[[], object]:
    """Copy a finished run of one cell and remove what comes after its answers."""
    given, run = GOLDEN / "benchmark" / "given", work / "run"
    shutil.copytree(given / "run", run)
    for name in ("spectra", "predictions", "metrics", "comparisons", "sensitivity"):
        shutil.rmtree(run / "tables" / name)
    shutil.rmtree(run / "fits")
    return lambda: _run_command("benchmark", given / "study.yaml", "--out", run)


def prepare_log_line(work: Path) -> Callable[[], object]:
    """Write a log of one line."""
    day, samples = "2026-11-01", [{"index": n, "text": "Lima" if n % 3 else "Cusco"} for n in range(10)]
    line = {"schema_version": 1, "request_id": "r", "timestamp": f"{day}T12:00:00Z", "model": "m"}
    (work / "log.jsonl").write_text(json.dumps({**line, "prompt": "Peru?", "samples": samples}) + "\n")
    given = ("--logs", work / "log.jsonl", "--model", GOLDEN / "nights" / "given" / "model", "--date", day)
    options = ("--out", work / "out", "--workers", "0", "--tracking", "none")
    return lambda: _run_command("score", *given, *options)


TASKS = {"predict": prepare_predict, "one cell": prepare_cell, "one log line": prepare_log_line}


def _run_command(*words: object) -> None:
    """Run `sgpu WORDS` in this process; RuntimeError unless it succeeds."""
    sys.argv = ["sgpu", *map(str, words)]
    try:
        import_module("sgpu.cli").main()  # a name in a string: the command line lies above this package
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"{' '.join(sys.argv)} ended with exit code {end.code}") from None


def main(words: Sequence[str] | None = None) -> None:
    """Print the table, or (in a process of its own) the files of one traced task."""
    parser = argparse.ArgumentParser(prog="python -m infra.count", description="Print figures of the tree.")
    parser.add_argument("--no-trace", action="store_true", help="Leave out files that a task executes.")
    parser.add_argument("--traced", choices=TASKS, help="Print the files that this task executes.")
    chosen = parser.parse_args(words)
    if chosen.traced:
        with tempfile.TemporaryDirectory() as folder:
            files = trace_files(TASKS[chosen.traced](Path(folder)))
        print(*sorted(files), sep="\n")
        return
    figures = count_tree()
    for task in () if chosen.no_trace else TASKS:
        command = [sys.executable, "-m", "infra.count", "--traced", task]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{task} failed:\n{done.stderr}")
        ours = sum(line.startswith(f"{ROOT}/") for line in done.stdout.splitlines())
        figures.append((f"files that execute code: {task}", ours))
    for title, value in figures:
        print(f"{title:<40}{value:>10,}" if isinstance(value, int) else f"{title:<40}{value:>10}")


if __name__ == "__main__":
    main()
