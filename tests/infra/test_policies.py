"""Schemas and policies that every Kubernetes manifest keeps, those of Ray included."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes_validate import ValidationError, validate

from tests.infra.manifests import INFRA, KUBERNETES, ROOT, Document, containers, pods, walk

VERSION = "1.37"
PINNED = re.compile(r"@sha256:[0-9a-f]{64}$|:v?\d+\.\d+[\w.+-]*$")
# Fields of KubeRay's v1 objects that we may use, as in its reference of 1.6; the definition itself is 1.4 MB.
# Not backoffLimit of a job: Ray's jobs end with 1 whatever the command's exit code was.
KUBERAY = {
    "RayJob": "activeDeadlineSeconds clusterSelector entrypoint entrypointNumCpus metadata runtimeEnvYAML "
    "shutdownAfterJobFinishes submissionMode submitterPodTemplate suspend ttlSecondsAfterFinished",
    "RayCluster": "authOptions autoscalerOptions enableInTreeAutoscaling gcsFaultToleranceOptions "
    "headGroupSpec headServiceAnnotations managedBy rayVersion suspend workerGroupSpecs",
    "group": "groupName idleTimeoutSeconds labels maxReplicas minReplicas numOfHosts rayStartParams replicas "
    "resources scaleStrategy suspend template",
}
CREDENTIAL = re.compile(
    r"AKIA[0-9A-Z]{16}|hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|eyJ[A-Za-z0-9_-]{20,}\.|://[^/\s:@]+:[^$@\s(]+@"
    r"|(?i:password|secret|token|api[_-]?key|access[_-]?key)[\"']?\s*[:=]\s*[\"']?(?![~$%/{(])[A-Za-z0-9+/_-]{12,}"
)
NO_CREDENTIAL = ("secretName", "admin_password from", "HttpTokens")
FILES = [ROOT / "cluster.yaml", ROOT / ".dockerignore", *sorted(p for p in INFRA.rglob("*") if p.is_file())]


def check_schema(document: Document) -> None:
    """Validate an object; of a Ray object, of whose kind Kubernetes has no schema, fields and pods."""
    if document["apiVersion"] != "ray.io/v1":
        validate(document, VERSION, strict=True)
        return
    spec = document["spec"]
    groups = {name for group in spec.get("workerGroupSpecs", []) for name in group}
    unknown = spec.keys() - {*KUBERAY[document["kind"]].split()} | groups - {*KUBERAY["group"].split()}
    assert unknown == set()
    for pod in pods(document):
        validate(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod}, VERSION, strict=True
        )


def for_each(
    parts: Callable[[Document], list[Document]], keeps: Callable[[Document], Any]
) -> Callable[[Document], bool]:
    return lambda document: all(keeps(part) for part in parts(document))


def has_what_it_mounts(document: Document) -> bool:
    claims = {
        claim["metadata"]["name"] for one in walk(document) for claim in one.get("volumeClaimTemplates", [])
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


def security(part: Document) -> Document:
    return dict(part.get("securityContext", {}))


POLICIES: dict[str, Callable[[Document], bool]] = {
    "lives in the namespace": lambda one: (
        one["kind"] == "Namespace" or one["metadata"].get("namespace") == "sgpu"
    ),
    "is not a secret with content": lambda one: one["kind"] != "Secret",
    "admits only listed peers": lambda one: (
        one["kind"] != "NetworkPolicy" or all(rule.get("from") for rule in one["spec"].get("ingress", []))
    ),
    "mounts what exists": has_what_it_mounts,
    "is not root": for_each(
        pods, lambda pod: security(pod).get("runAsNonRoot") is True and security(pod).get("runAsUser", 0) > 0
    ),
    "filters system calls": for_each(
        pods, lambda pod: security(pod).get("seccompProfile") == {"type": "RuntimeDefault"}
    ),
    "has pinned images": for_each(containers, lambda one: PINNED.search(one["image"])),
    "cannot gain privileges": for_each(
        containers,
        lambda one: (
            security(one).get("allowPrivilegeEscalation") is False
            and security(one).get("capabilities") == {"drop": ["ALL"]}
        ),
    ),
    "has a read-only root": for_each(
        containers, lambda one: security(one).get("readOnlyRootFilesystem") is True
    ),
    "is bounded": for_each(
        containers, lambda one: {"cpu", "memory"} <= one.get("resources", {}).get("limits", {}).keys()
    ),
    "reads secrets by reference": for_each(containers, reads_secrets_by_reference),
    "keeps weights in the image's cache": for_each(
        containers, lambda one: not {"HF_HOME", "SGPU_CACHE"} & {v["name"] for v in one.get("env", [])}
    ),
}
# One violation of each policy, planted in an object that keeps all: (keys from the object down, value).
CONTAINER = ("spec", "containers", 0)
PLANTED: dict[str, tuple[tuple[str | int, ...], Any]] = {
    "lives in the namespace": (("metadata", "namespace"), "default"),
    "is not a secret with content": (("kind",), "Secret"),
    "admits only listed peers": (("spec", "ingress"), [{"ports": [{"port": 80}]}]),
    "mounts what exists": (("spec", "volumes", 0, "name"), "other"),
    "is not root": (("spec", "securityContext", "runAsUser"), 0),
    "filters system calls": (("spec", "securityContext", "seccompProfile"), {"type": "Unconfined"}),
    "has pinned images": ((*CONTAINER, "image"), "postgres:latest"),
    "cannot gain privileges": ((*CONTAINER, "securityContext", "capabilities"), {"add": ["SYS_ADMIN"]}),
    "has a read-only root": ((*CONTAINER, "securityContext", "readOnlyRootFilesystem"), False),
    "is bounded": ((*CONTAINER, "resources", "limits"), {"cpu": "1"}),
    "reads secrets by reference": ((*CONTAINER, "env"), [{"name": "HF_TOKEN", "value": "x"}]),
    "keeps weights in the image's cache": ((*CONTAINER, "env"), [{"name": "HF_HOME", "value": "/x"}]),
}
KEEPS_ALL: Document = {
    "kind": "NetworkPolicy",  # the policy on networks looks at no other kind
    "metadata": {"namespace": "sgpu"},
    "spec": {
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [{"name": "tmp"}],
        "containers": [
            {
                "image": "postgres:17.6", "volumeMounts": [{"name": "tmp"}],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    },
}  # fmt: skip


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
    assert [where for where, document in KUBERNETES.items() if not POLICIES[policy](document)] == []


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_finds_a_planted_violation_and_nothing_else(policy: str) -> None:
    assert POLICIES[policy](KEEPS_ALL)
    document, ((*path, last), value) = copy.deepcopy(KEEPS_ALL), PLANTED[policy]
    part: Any = document
    for key in path:
        part = part[key]
    part[last] = value
    assert [name for name, keeps in POLICIES.items() if not keeps(document)] == [policy]


def test_no_file_holds_a_credential() -> None:
    lines = [line for path in FILES for line in path.read_text(encoding="utf-8").splitlines()]
    found = [line for line in lines if CREDENTIAL.search(line)]
    assert [line for line in found if not any(word in line for word in NO_CREDENTIAL)] == []


@pytest.mark.parametrize(
    "line",
    ["value: hf_" + "a" * 34, "password: correcthorsebattery", "RAY_AUTH_TOKEN=" + "0" * 64,
     "uri: postgresql://sgpu:hunter2@postgres/mlflow", "AWS: AKIA" + "A" * 16],
)  # fmt: skip
def test_the_search_for_credentials_can_find_one(line: str) -> None:
    assert CREDENTIAL.search(line)
