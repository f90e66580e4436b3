"""The cluster's files as parsed documents, and what the tests ask of them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
INFRA = ROOT / "infra"
YAML_FILES = sorted([ROOT / "cluster.yaml", *INFRA.rglob("*.yaml")])
ALL_FILES = sorted(
    path for path in [ROOT / "cluster.yaml", ROOT / ".dockerignore", *INFRA.rglob("*")] if path.is_file()
)
Document = dict[str, Any]


def documents(path: Path) -> list[Document]:
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def kubernetes() -> Iterator[tuple[str, Document]]:
    """Every Kubernetes object with a readable name."""
    for path in YAML_FILES:
        for document in documents(path):
            if "kind" in document and "apiVersion" in document:
                yield f"{path.name}:{document['kind']}/{name_of(document)}", document


def name_of(document: Document) -> str:
    """Its name, or what a name is made from where each `kubectl create` gives another one."""
    metadata = document["metadata"]
    return str(metadata.get("name") or metadata["generateName"].removesuffix("-"))


def of_kind(kind: str) -> list[Document]:
    return [document for _, document in kubernetes() if document["kind"] == kind]


def pods() -> Iterator[tuple[str, Document]]:
    """Every pod specification, wherever in an object it stands."""

    def walk(where: str, node: Any) -> Iterator[tuple[str, Document]]:
        if isinstance(node, dict):
            if "containers" in node:
                yield where, node
            for key, value in node.items():
                yield from walk(f"{where}.{key}", value)
        elif isinstance(node, list):
            for position, value in enumerate(node):
                yield from walk(f"{where}[{position}]", value)

    for name, document in kubernetes():
        yield from walk(name, document)


def containers() -> Iterator[tuple[str, Document]]:
    for where, pod in pods():
        for container in pod["containers"]:
            yield f"{where}/{container['name']}", container


def cluster() -> Document:
    [found] = documents(ROOT / "cluster.yaml")
    return found


def sgpu_commands() -> Iterator[tuple[str, list[str]]]:
    """Every call of our command line in a manifest or in the comments of cluster.yaml, as arguments."""
    for job in of_kind("RayJob"):
        yield name_of(job), shlex.split(job["spec"]["entrypoint"])[1:]
    for where, container in containers():
        for argument in container.get("args", []):
            if "exec sgpu " in argument:
                yield where, shlex.split(argument.split("exec sgpu ")[1])
    text = (ROOT / "cluster.yaml").read_text(encoding="utf-8")
    yield "cluster.yaml", shlex.split(text.split("'sgpu ")[1].split("'")[0])
