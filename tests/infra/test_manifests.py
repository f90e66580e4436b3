"""The Kubernetes manifests: who runs, as whom, with which image and which secrets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ray import __version__ as ray_version

from tests.infra.manifests import (
    ALL_FILES,
    YAML_FILES,
    cluster,
    containers,
    documents,
    kubernetes,
    of_kind,
    pods,
)

PODS, CONTAINERS = dict(pods()), dict(containers())
PINNED = re.compile(r"@sha256:[0-9a-f]{64}$|:v?\d+\.\d+[\w.+-]*$")
# Fields of KubeRay's v1 objects that we may use, as in its reference of 1.6; the definition itself is 1.4 MB.
RAY_JOB = {
    "activeDeadlineSeconds", "backoffLimit", "clusterSelector", "deletionStrategy", "entrypoint",
    "entrypointNumCpus", "entrypointNumGpus", "entrypointResources", "jobId", "metadata",
    "preRunningDeadlineSeconds", "rayClusterSpec", "runtimeEnvYAML", "shutdownAfterJobFinishes",
    "submissionMode", "submitterConfig", "submitterPodTemplate", "suspend", "ttlSecondsAfterFinished",
}  # fmt: skip
RAY_CLUSTER = {
    "authOptions", "autoscalerOptions", "enableInTreeAutoscaling", "gcsFaultToleranceOptions",
    "headGroupSpec", "headServiceAnnotations", "managedBy", "rayVersion", "suspend", "workerGroupSpecs",
}  # fmt: skip
GROUP = {
    "groupName", "idleTimeoutSeconds", "labels", "maxReplicas", "minReplicas", "numOfHosts",
    "rayStartParams", "replicas", "resources", "scaleStrategy", "suspend", "template",
}  # fmt: skip
# What a value that looks like a credential may be instead of one.
CREDENTIAL = re.compile(
    r"AKIA[0-9A-Z]{16}|hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|eyJ[A-Za-z0-9_-]{20,}\.|://[^/\s:@]+:[^$@\s(]+@"
    r"|(?i:password|secret|token|api[_-]?key|access[_-]?key)[\"']?\s*[:=]\s*[\"']?(?![~$%/{(])[A-Za-z0-9+/_-]{12,}"
)
ALLOWED_WORDS = ("secretName", "admin_password from", "HttpTokens")


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: path.name)
def test_a_file_loads_safely_and_holds_no_tag_of_python(path: Path) -> None:
    assert documents(path)
    assert "!!python" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", ALL_FILES, ids=lambda path: str(path.name))
def test_no_file_holds_a_credential(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [line for line in lines if CREDENTIAL.search(line)]
    assert [line for line in found if not any(word in line for word in ALLOWED_WORDS)] == []


@pytest.mark.parametrize(
    "line",
    [
        "value: hf_" + "a" * 34,
        "password: correcthorsebattery",
        "RAY_AUTH_TOKEN=" + "0" * 64,
        "uri: postgresql://sgpu:hunter2@postgres/mlflow",
        "AWS: AKIA" + "A" * 16,
    ],
)
def test_the_search_for_credentials_can_find_one(line: str) -> None:
    assert CREDENTIAL.search(line)


def test_no_object_is_a_secret_with_content() -> None:
    assert of_kind("Secret") == []


@pytest.mark.parametrize("where", CONTAINERS)
def test_an_image_is_pinned(where: str) -> None:
    assert PINNED.search(CONTAINERS[where]["image"]), CONTAINERS[where]["image"]


def test_images_of_the_launcher_are_pinned_and_the_same_as_on_kubernetes() -> None:
    docker = cluster()["docker"]
    own = {docker["head_image"], docker["worker_image"]}
    own |= {k["docker"]["worker_image"] for k in cluster()["available_node_types"].values() if "docker" in k}
    assert all(PINNED.search(image) for image in own)
    assert own == {c["image"] for c in CONTAINERS.values() if "/sgpu-" in c["image"]}


@pytest.mark.parametrize("where", PODS)
def test_a_pod_runs_as_a_user_that_is_not_root(where: str) -> None:
    context = PODS[where]["securityContext"]
    assert context["runAsNonRoot"] is True and context["runAsUser"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}


@pytest.mark.parametrize("where", CONTAINERS)
def test_a_container_has_no_privileges_and_a_read_only_root(where: str) -> None:
    context = CONTAINERS[where]["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("where", CONTAINERS)
def test_a_container_is_bounded(where: str) -> None:
    assert {"cpu", "memory"} <= CONTAINERS[where]["resources"]["limits"].keys()


@pytest.mark.parametrize("where", CONTAINERS)
def test_what_is_secret_comes_by_reference(where: str) -> None:
    for variable in CONTAINERS[where].get("env", []):
        if re.search(r"PASSWORD$|TOKEN$|SECRET|_KEY$", variable["name"]):
            assert "secretKeyRef" in variable["valueFrom"]


@pytest.mark.parametrize("where", PODS)
def test_what_is_mounted_exists_in_the_pod(where: str) -> None:
    pod = PODS[where]
    volumes = {volume["name"] for volume in pod.get("volumes", [])}
    if where.endswith("StatefulSet/postgres.spec.template.spec"):
        volumes.add("data")  # of its claim template
    used = {mount["name"] for c in pod["containers"] for mount in c.get("volumeMounts", [])}
    assert used == volumes


def test_every_claim_that_is_mounted_is_made() -> None:
    made = {claim["metadata"]["name"] for claim in of_kind("PersistentVolumeClaim")}
    used = {
        volume["persistentVolumeClaim"]["claimName"]
        for pod in PODS.values()
        for volume in pod.get("volumes", [])
        if "persistentVolumeClaim" in volume
    }
    assert used == made


def test_every_object_lives_in_the_namespace() -> None:
    outside = {name for name, one in kubernetes() if one["metadata"].get("namespace") != "sgpu"}
    assert outside == {"base.yaml:Namespace/sgpu"}


def test_the_network_is_closed_but_for_what_is_listed() -> None:
    policies = {policy["metadata"]["name"]: policy["spec"] for policy in of_kind("NetworkPolicy")}
    closed = policies.pop("deny-all")
    assert closed == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for spec in policies.values():
        for rule in spec.get("ingress", []):
            assert rule.get("from"), "an ingress rule without `from` admits everybody"


def test_every_label_that_a_policy_selects_is_worn_by_a_pod() -> None:
    worn = {("ray.io/is-ray-node", "yes"), ("ray.io/node-type", "head")}  # KubeRay puts them on
    for _, document in kubernetes():
        worn |= _template_labels(document)
    selected = set()
    for policy in of_kind("NetworkPolicy"):
        selected |= _pod_selectors(policy["spec"])
    assert selected - worn == set()


def _template_labels(node: object) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    if isinstance(node, dict):
        if "spec" in node and isinstance(node.get("metadata"), dict):
            found |= set(node["metadata"].get("labels", {}).items())
        for value in node.values():
            found |= _template_labels(value)
    elif isinstance(node, list):
        for value in node:
            found |= _template_labels(value)
    return found


def _pod_selectors(node: object) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    if isinstance(node, dict):
        found |= set(node.get("podSelector", {}).get("matchLabels", {}).items())
        for value in node.values():
            found |= _pod_selectors(value)
    elif isinstance(node, list):
        for value in node:
            found |= _pod_selectors(value)
    return found


def test_the_cluster_asks_for_a_token_and_is_of_the_pinned_ray() -> None:
    [spec] = [found["spec"] for found in of_kind("RayCluster")]
    assert spec["authOptions"] == {"mode": "token", "secretName": "sgpu-ray"}
    assert spec["rayVersion"] == ray_version
    assert set(spec) <= RAY_CLUSTER
    assert all(set(group) <= GROUP for group in spec["workerGroupSpecs"])


def test_jobs_name_known_fields_and_the_cluster_that_exists() -> None:
    [name] = [found["metadata"]["name"] for found in of_kind("RayCluster")]
    jobs = of_kind("RayJob")
    assert {job["metadata"]["name"] for job in jobs} == {"sgpu-benchmark", "sgpu-transfer", "sgpu-score"}
    for job in jobs:
        assert set(job["spec"]) <= RAY_JOB
        assert job["spec"]["clusterSelector"] == {"ray.io/cluster": name}


def test_nights_do_not_overlap() -> None:
    [nightly] = of_kind("CronJob")
    assert nightly["spec"]["concurrencyPolicy"] == "Forbid"


def test_pages_without_users_listen_on_loopback() -> None:
    [page] = [c for where, c in CONTAINERS.items() if where.endswith("/page")]
    assert "--host=127.0.0.1" in page["args"] and "ports" not in page


def test_mlflow_asks_who_is_there_and_keeps_files_in_object_storage() -> None:
    [server] = [c for where, c in CONTAINERS.items() if where.endswith("/mlflow")]
    assert "--app-name=basic-auth" in server["args"]
    [config] = [c for c in of_kind("ConfigMap") if c["metadata"]["name"] == "mlflow"]
    assert config["data"]["artifacts"].startswith("s3://")
    assert any(a.startswith("--backend-store-uri=postgresql://") for a in server["args"])


def test_dagster_accepts_its_instance_file(tmp_path: Path) -> None:
    from dagster._core.instance.config import dagster_instance_config

    path = next(path for path in YAML_FILES if path.name == "dagster.yaml")
    (tmp_path / "dagster.yaml").write_text(path.read_text())
    config, _ = dagster_instance_config(str(tmp_path))
    assert config["telemetry"] == {"enabled": False}


def test_the_code_location_of_dagster_can_be_imported() -> None:
    import importlib.util

    path = next(path for path in YAML_FILES if path.name == "workspace.yaml")
    [entry] = yaml.safe_load(path.read_text())["load_from"]
    assert importlib.util.find_spec(entry["python_module"]["module_name"])
