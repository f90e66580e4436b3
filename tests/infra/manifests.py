"""The cluster's files as parsed documents."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
INFRA = ROOT / "infra"
BUILD = ("Kustomization", "Component")  # read by Kustomize, not by Kubernetes
Document = dict[str, Any]


def documents(path: Path) -> list[Document]:
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def name_of(document: Document) -> str:
    """Return its name, or the prefix of its name if each `kubectl create` makes another one."""
    metadata = document["metadata"]
    return str(metadata.get("name") or metadata["generateName"].removesuffix("-"))


def load_kubernetes() -> dict[str, Document]:
    """Return every Kubernetes object by a readable name."""
    found = [document for path in sorted(INFRA.rglob("*.yaml")) for document in documents(path)]
    return by_name(one for one in found if {"kind", "apiVersion"} <= one.keys() and one["kind"] not in BUILD)


def by_name(objects: Iterable[Document]) -> dict[str, Document]:
    """Return the objects under names like ``Service/mlflow``; an object named twice keeps its last form."""
    return {f"{one['kind']}/{name_of(one)}": one for one in objects}


KUBERNETES = load_kubernetes()
CLUSTER = documents(ROOT / "cluster.yaml")[0]
NODE_TYPES = CLUSTER["available_node_types"]


def of_kind(kind: str) -> list[Document]:
    return [document for document in KUBERNETES.values() if document["kind"] == kind]


def walk(node: Any) -> Iterator[Document]:
    """Yield every mapping in ``node``, at any depth."""
    if isinstance(node, dict):
        yield node
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from walk(value)


def pods(node: Any) -> list[Document]:
    """Return the pod specifications in ``node``."""
    return [one for one in walk(node) if isinstance(one.get("containers"), list)]


def containers(node: Any) -> list[Document]:
    return [one for pod in pods(node) for one in [*pod.get("initContainers", []), *pod["containers"]]]


def variables(container: Document) -> dict[str, str | None]:
    return {one["name"]: one.get("value") for one in container.get("env", [])}


def sgpu_commands() -> Iterator[tuple[str, list[str]]]:
    """Yield every call of our command line in a manifest or in the comments of cluster.yaml, as arguments."""
    for job in of_kind("RayJob"):
        yield name_of(job), shlex.split(job["spec"]["entrypoint"])[1:]
    for where, document in KUBERNETES.items():
        for argument in (text for one in containers(document) for text in one.get("args", [])):
            if "exec sgpu " in argument:
                yield where, shlex.split(argument.split("exec sgpu ")[1])
    text = (ROOT / "cluster.yaml").read_text(encoding="utf-8")
    yield "cluster.yaml", shlex.split(text.split("'sgpu ")[1].split("'")[0])
