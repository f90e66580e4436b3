"""`python -m infra.count`: prints lines, data classes, names and docstrings of the tree."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("sgpu", "pipelines")
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
        ("data classes", sum("dataclass" in ast.unparse(mark) for node in nodes for mark in _marks(node))),
        ("definitions per 1,000 code lines", round(1000 * definitions / max(product, 1))),
        ("public function names in two modules", len(find_shared_names(trees))),
        ("functions named by a verb", percent([starts_with_verb(f.name.strip("_")) for f in named])),
        ("docstrings that begin with a verb", percent([starts_with_verb(text) for text in docstrings])),
    ]


def _is_property(function: Function) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def _marks(node: ast.AST) -> list[ast.expr]:
    return node.decorator_list if isinstance(node, ast.ClassDef) else []


def main() -> None:
    """Print the table."""
    for title, value in count_tree():
        print(f"{title:<40}{value:>10,}" if isinstance(value, int) else f"{title:<40}{value:>10}")


if __name__ == "__main__":
    main()
