"""Schemas and policies that every Kubernetes manifest keeps, those of Ray included."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes_validate import ValidationError, validate

from tests.infra.manifests import INFRA, KUBERNETES, ROOT, Document, containers, pods, variables, walk

VERSION = "1.37"
PINNED = re.compile(r"@sha256:[0-9a-f]{64}$|:v?\d+\.\d+[\w.+-]*$")
# Fields of operators' objects that we may use; those of KubeRay as in its reference of 1.7 (its definition
# has 1.4 MB).
# Not backoffLimit of a job: Ray's jobs end with 1 whatever the command's exit code was.
OPERATORS = {
    "RayJob": "activeDeadlineSeconds clusterSelector entrypoint entrypointNumCpus metadata rayClusterSpec "
    "runtimeEnvYAML shutdownAfterJobFinishes submissionMode submitterPodTemplate suspend "
    "ttlSecondsAfterFinished",
    "RayCluster": "authOptions autoscalerOptions enableInTreeAutoscaling gcsFaultToleranceOptions "
    "headGroupSpec headServiceAnnotations managedBy rayVersion suspend workerGroupSpecs",
    "PodMonitor": "podMetricsEndpoints selector",
    "PrometheusRule": "groups",
    "group": "groupName idleTimeoutSeconds labels maxReplicas minReplicas numOfHosts priority rayStartParams "
    "replicas resources scaleStrategy suspend template",
}
# What is assigned; tests/security/test_secrets.py looks for the forms of real keys in every file.
CREDENTIAL = re.compile(
    r"(?i)(password|secret|token|api[_-]?key|access[_-]?key)[\"']?\s*[:=]\s*[\"']?(?![~$%/{(])[a-z0-9+/_-]{12,}"
    r"|eyJ[\w-]{20,}\.|://[^/\s:@]+:[^$@\s(]+@"
)
FILES = [ROOT / "cluster.yaml", ROOT / ".dockerignore", *sorted(p for p in INFRA.rglob("*") if p.is_file())]


def check_schema(document: Document) -> None:
    """Validate an object; of an operator's object, which Kubernetes has no schema of, its fields and pods."""
    if document["kind"] not in OPERATORS:
        validate(document, VERSION, strict=True)
        return
    check_fields(document["kind"], document["spec"])
    for pod in pods(document):
        wrapped = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod}
        validate(wrapped, VERSION, strict=True)


def check_fields(kind: str, spec: Document) -> None:
    groups = {name for group in spec.get("workerGroupSpecs", []) for name in group}
    assert spec.keys() - {*OPERATORS[kind].split()} | groups - {*OPERATORS["group"].split()} == set()
    if "rayClusterSpec" in spec:
        check_fields("RayCluster", spec["rayClusterSpec"])


def has_what_it_mounts(document: Document) -> bool:
    claims = {
        one["metadata"]["name"] for part in walk(document) for one in part.get("volumeClaimTemplates", [])
    }
    return all(
        {volume["name"] for volume in pod.get("volumes", [])} | claims
        == {mount["name"] for one in containers(pod) for mount in one.get("volumeMounts", [])}
        for pod in pods(document)
    )


def reads_secrets_by_reference(container: Document) -> bool:
    secret = [
        one for one in container.get("env", []) if re.search(r"PASSWORD$|TOKEN$|SECRET|_KEY$", one["name"])
    ]
    return all("secretKeyRef" in one.get("valueFrom", {}) for one in secret)


def whole(document: Document) -> list[Document]:
    return [document]


def context(part: Document, key: str) -> Any:
    return part.get("securityContext", {}).get(key)


# What every object, pod or container keeps, and a violation that is planted in a Deployment that keeps all:
# (parts, what each keeps, keys from the object down, planted value).
POD = ("spec", "template", "spec")
FIRST = (*POD, "containers", 0)
Policy = tuple[Callable[[Document], list[Document]], Callable[[Document], Any], tuple[str | int, ...], Any]
POLICIES: dict[str, Policy] = {
    "lives in the namespace": (
        whole, lambda one: one["kind"] == "Namespace" or one["metadata"].get("namespace") == "sgpu",
        ("metadata", "namespace"), "default",
    ),
    "is not a secret with content": (whole, lambda one: one["kind"] != "Secret", ("kind",), "Secret"),
    "admits only listed peers": (
        lambda document: [rule for part in walk(document) for rule in part.get("ingress", [])],
        lambda rule: rule.get("from"), ("spec", "ingress"), [{"ports": [{"port": 80}]}],
    ),
    "mounts what exists": (whole, has_what_it_mounts, (*POD, "volumes", 0, "name"), "other"),
    "is not root": (
        pods, lambda pod: context(pod, "runAsNonRoot") is True and (context(pod, "runAsUser") or 0) > 0,
        (*POD, "securityContext", "runAsUser"), 0,
    ),
    "filters system calls": (
        pods, lambda pod: context(pod, "seccompProfile") == {"type": "RuntimeDefault"},
        (*POD, "securityContext", "seccompProfile"), {"type": "Unconfined"},
    ),
    "has pinned images": (
        containers, lambda one: PINNED.search(one["image"]), (*FIRST, "image"), "postgres:latest",
    ),
    "cannot gain privileges": (
        containers,
        lambda one: context(one, "allowPrivilegeEscalation") is False
        and context(one, "capabilities") == {"drop": ["ALL"]},
        (*FIRST, "securityContext", "capabilities"), {"add": ["SYS_ADMIN"]},
    ),
    "has a read-only root": (
        containers, lambda one: context(one, "readOnlyRootFilesystem") is True,
        (*FIRST, "securityContext", "readOnlyRootFilesystem"), False,
    ),
    "is bounded": (
        containers, lambda one: {"cpu", "memory"} <= one.get("resources", {}).get("limits", {}).keys(),
        (*FIRST, "resources", "limits"), {"cpu": "1"},
    ),
    "reads secrets by reference": (
        containers, reads_secrets_by_reference, (*FIRST, "env"), [{"name": "HF_TOKEN", "value": "x"}],
    ),
    "keeps weights in the image's cache": (
        containers, lambda one: not {"HF_HOME", "SGPU_CACHE"} & variables(one).keys(),
        (*FIRST, "env"), [{"name": "HF_HOME", "value": "/x"}],
    ),
}  # fmt: skip


def keeps(policy: str, document: Document) -> bool:
    parts, keep, *_ = POLICIES[policy]
    return all(keep(part) for part in parts(document))


@pytest.mark.parametrize("where", KUBERNETES)
def test_a_manifest_fits_its_schema(where: str) -> None:
    check_schema(KUBERNETES[where])


@pytest.mark.parametrize("where", ["Deployment/dagster", "RayCluster/sgpu"])
def test_a_wrong_field_of_a_container_is_found(where: str) -> None:
    document = copy.deepcopy(KUBERNETES[where])
    containers(document)[0]["imagePullpolicy"] = "Always"
    with pytest.raises(ValidationError, match="imagePullpolicy"):
        check_schema(document)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_manifest_keeps_the_policy(policy: str) -> None:
    assert [where for where, document in KUBERNETES.items() if not keeps(policy, document)] == []


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_finds_a_planted_violation_and_nothing_else(policy: str) -> None:
    document, (*_, (*path, last), value) = copy.deepcopy(KUBERNETES["Deployment/dagster"]), POLICIES[policy]
    part: Any = document
    for key in path:
        part = part[key]
    part[last] = value
    assert [name for name in POLICIES if not keeps(name, document)] == [policy]


def test_no_file_assigns_a_credential() -> None:
    lines = [line for path in FILES for line in path.read_text(encoding="utf-8").splitlines()]
    allowed = ("secretName", "admin_password from", "HttpTokens")
    assert [one for one in lines if CREDENTIAL.search(one) and not any(word in one for word in allowed)] == []
    for planted in (
        "password: correcthorsebattery",
        "RAY_AUTH_TOKEN=" + "0" * 64,
        "a://sgpu:hunter2@postgres/mlflow",
    ):
        assert CREDENTIAL.search(planted)
