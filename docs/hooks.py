"""What MkDocs adds to the pages of this folder.

The README and pages of infra/, the settings from the schema of study files, and the picture of the packages
from the layers that a test holds. Links are written as they work in the repository (``docs/x.md`` in the
README, ``../infra/x.md`` here) and become those of the site, where --strict checks them.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import runpy
from collections.abc import Callable
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from sgpu.study.benchmark import Study
from sgpu.study.specs import Strict
from sgpu.study.transfer import TransferStudy

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parent.parent
ALSO_PAGES = {"index.md": "README.md", "LICENSE": "LICENSE"} | {
    f"infra/{name}.md": f"infra/{name}.md" for name in ("README", "SCALING", "SECURITY")
}
BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
WORDS = {"object": "mapping", "string": "text", "boolean": "true, false"}
BOX, GAP, ROW = (126, 30), 8, 52


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    for uri, path in ALSO_PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    for mark, made in MADE.items():
        if mark in markdown:
            markdown = markdown.replace(mark, made())
    return (
        markdown.replace("](docs/", "](")
        .replace("](../README.md", "](index.md")
        .replace("](../infra/", "](infra/")
        .replace("](../docs/", "](../")
    )


def settings(root: type[Strict]) -> str:
    """A table for each section of a file, that of the file itself first."""
    schema = root.model_json_schema()
    sections = {section.__name__: section for section in Strict.__subclasses__()}
    parts = {root.__name__: schema} | schema.get("$defs", {})
    keys = keys_of(root, parts)
    return "\n\n".join(section_table(sections[name], parts[name], root, key) for name, key in keys.items())


def keys_of(root: type[Strict], parts: dict[str, Any]) -> dict[str, str]:
    """Section -> the key that it stands at in the file; the outer ones first."""
    keys = {root.__name__: ""}
    waiting = [root.__name__]
    for name in waiting:
        for below, values in parts[name]["properties"].items():
            for section in re.findall(r"#/\$defs/(\w+)", json.dumps(values)):
                if section not in keys:
                    keys[section] = f"{keys[name]}.{below}".lstrip(".")
                    waiting.append(section)
    return keys


def section_table(section: type[Strict], part: dict[str, Any], root: type[Strict], key: str) -> str:
    notes = comments(section)
    rows = []
    for name, values in part["properties"].items():
        cells = (f"`{name}`", kind_of(values, root), default_of(section, name), notes.get(name, ""))
        rows.append("| " + " | ".join(cells) + " |")
    title = f"`{key}`: {section.__name__}" if key else section.__name__
    about = inspect.cleandoc(section.__doc__ or "").replace("``", "`")
    head = f"### {title} {{#{anchor(root, section.__name__)}}}\n\n{about}\n\n"
    return "\n".join([head + "| key | takes | default | notes |", "|---|---|---|---|", *rows])


def anchor(root: type[Strict], section: str) -> str:
    return f"{root.__name__}-{section}".lower()


def kind_of(values: dict[str, Any], root: type[Strict]) -> str:
    """What a setting takes, in words, with its bounds."""
    if "$ref" in values:
        name = values["$ref"].rpartition("/")[2]
        return f"[{name}](#{anchor(root, name)})"
    choices = values.get("anyOf") or values.get("oneOf")
    if choices:
        return " or ".join(kind_of(choice, root) for choice in choices if choice.get("type") != "null")
    if "const" in values or "enum" in values:
        return ", ".join(f"`{value}`" for value in values.get("enum", [values.get("const")]))
    if values.get("type") == "array":
        return "list of " + kind_of(values.get("items", {}), root)
    bounds = [f"{sign} {values[bound]:g}" for bound, sign in BOUNDS.items() if bound in values]
    return ", ".join([WORDS.get(values.get("type", ""), values.get("type", "any")), *bounds])


def default_of(section: type[Strict], name: str) -> str:
    field = section.model_fields[name]
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return ""
    return "none" if value is None else f"`{json.dumps(value, default=str)}`".replace("|", "\\|")


def comments(section: type[Strict]) -> dict[str, str]:
    """Field -> the comment behind it in the source, or on the lines above it."""
    notes: dict[str, str] = {}
    above: list[str] = []
    for line in inspect.getsource(section).splitlines():
        if comment := re.fullmatch(r"    # (.+)", line):
            above.append(comment[1])
            continue
        if field := re.match(r"    (\w+): [^#]*(?:# (.+))?", line):
            notes[field[1]] = " ".join([*above, field[2] or ""]).strip().replace("|", "\\|")
        above = []
    return notes


def layers() -> tuple[tuple[str, ...], ...]:
    table: tuple[tuple[str, ...], ...] = runpy.run_path(str(ROOT / "tests/test_architecture.py"))["LAYERS"]
    return table


def picture() -> str:
    """The layers of packages as SVG, from the top down; single modules have a dashed frame."""
    rows = layers()
    width = max(map(len, rows)) * (BOX[0] + GAP) + GAP
    shapes = []
    for number, units in enumerate(rows):
        left = (width - len(units) * (BOX[0] + GAP) + GAP) / 2
        for place, unit in enumerate(units):
            x, y = left + place * (BOX[0] + GAP), number * ROW + GAP
            is_package = unit != "sgpu" and (ROOT / unit.replace(".", "/")).is_dir()
            dashed = "" if is_package else ' stroke-dasharray="4 3"'
            name = escape(unit.removeprefix("sgpu."))
            shapes.append(
                f'<rect x="{x}" y="{y}" width="{BOX[0]}" height="{BOX[1]}" rx="4" fill="none"'
                f' stroke="currentColor"{dashed}/><text x="{x + BOX[0] / 2}" y="{y + 20}" font-size="13"'
                f' text-anchor="middle" fill="currentColor">{name}</text>'
            )
    size = f'viewBox="0 0 {width} {len(rows) * ROW}" style="width:100%"'
    label = 'role="img" aria-label="The packages, from the top down"'
    return f'<figure style="width:100%"><svg {size} {label}>{"".join(shapes)}</svg></figure>'


def package_table() -> str:
    """What each package and module of the layers says of itself first; a folder without code, its README."""
    rows = [f"| `{unit}` | {first_sentence(unit)} |" for units in layers() for unit in units]
    return "\n".join(["| package or module | is |", "|---|---|", *rows])


def first_sentence(unit: str) -> str:
    path = ROOT / unit.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not source.is_file():
        return (path / "README.md").read_text("utf-8").splitlines()[0].lstrip("# ")
    about = ast.get_docstring(ast.parse(source.read_text("utf-8"))) or ""
    return " ".join(about.split("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")


MADE: dict[str, Callable[[], str]] = {
    "<!-- settings of a study -->": partial(settings, Study),
    "<!-- settings of a transfer study -->": partial(settings, TransferStudy),
    "<!-- picture of the packages -->": picture,
    "<!-- table of the packages -->": package_table,
}
