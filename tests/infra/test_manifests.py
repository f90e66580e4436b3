"""The Kubernetes manifests: who runs, as whom, with which image and which secrets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray import __version__ as ray_version

from pipelines.nightly import NIGHTLY, score_settings
from tests.infra.manifests import (
    ALL_FILES,
    INFRA,
    YAML_FILES,
    cluster,
    containers,
    documents,
    kubernetes,
    name_of,
    of_kind,
    pods,
    sgpu_commands,
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
    # KubeRay puts the first on; the other is that of Kubernetes' own names, in another namespace.
    worn = {("ray.io/node-type", "head"), ("k8s-app", "kube-dns")}
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
    [name] = [name_of(found) for found in of_kind("RayCluster")]
    jobs = of_kind("RayJob")
    assert {name_of(job) for job in jobs} == {"sgpu-benchmark", "sgpu-transfer", "sgpu-score"}
    for job in jobs:
        assert set(job["spec"]) <= RAY_JOB
        assert job["spec"]["clusterSelector"] == {"ray.io/cluster": name}


def test_a_job_can_be_created_again_and_is_not_tried_again_by_itself() -> None:
    """A finished object keeps its name; and Ray's jobs end with 1 whatever the command's exit code was."""
    for job in of_kind("RayJob"):
        assert "name" not in job["metadata"] and job["metadata"]["generateName"].endswith("-")
        assert "backoffLimit" not in job["spec"]
        assert job["spec"]["submitterPodTemplate"]["spec"]["restartPolicy"] == "Never"


def test_nights_do_not_overlap() -> None:
    [nightly] = of_kind("CronJob")
    assert nightly["spec"]["concurrencyPolicy"] == "Forbid"


def test_a_night_whose_verdict_stands_is_not_tried_again() -> None:
    """Wrong usage, too many bad rows, yellow and red; a crash (1, 137) is tried again."""
    [nightly] = of_kind("CronJob")
    job = nightly["spec"]["jobTemplate"]["spec"]
    pod = job["template"]["spec"]
    [final] = [
        rule["onExitCodes"] for rule in job["podFailurePolicy"]["rules"] if rule["action"] == "FailJob"
    ]
    assert (final["operator"], final["values"]) == ("In", [2, 3, 4, 5])
    assert final["containerName"] in {container["name"] for container in pod["containers"]}
    # Kubernetes takes such a policy with no other restart policy.
    assert job["backoffLimit"] > 0 and pod["restartPolicy"] == "Never"


def _variables(container: dict[str, Any]) -> dict[str, str | None]:
    return {one["name"]: one.get("value") for one in container.get("env", [])}


def _of_pod(part: str) -> list[dict[str, Any]]:
    return [container for where, container in CONTAINERS.items() if part in where]


def test_logs_are_the_folder_above_the_days() -> None:
    """Of the folder of one day nothing is found for the days that are looked at again for late rows."""
    roots = [
        arguments[arguments.index("--logs") + 1] for _, arguments in sgpu_commands() if "--logs" in arguments
    ]
    assert roots == ["/runs/logs", "/runs/logs"]
    assert not any(re.search(r"\b(dt|date)=", root) for root in roots)


def test_the_night_runs_the_settings_that_dagster_runs() -> None:
    [(where, arguments)] = [(w, a) for w, a in sgpu_commands() if "--settings" in a]
    assert "sgpu-nightly-score" in where
    [page] = _of_pod("dagster.spec.template.spec/page")
    assert arguments[arguments.index("--settings") + 1] == _variables(page)["SGPU_NIGHTLY"]
    assert arguments[arguments.index("--date") + 1] == "$day"
    assert {"--logs", "--out"} <= set(arguments)  # those of the file are relative


def test_the_settings_of_the_night_are_complete_with_the_flags_of_the_manifest() -> None:
    given = {"logs": "/runs/logs", "out": "/runs/scores", "date": "2026-11-20"}
    settings = score_settings(NIGHTLY, given)
    assert (settings.logs, settings.out, settings.late_days) == ("/runs/logs", "/runs/scores", 2)


def test_who_resolves_a_registered_model_knows_the_registry() -> None:
    """The command of a RayJob runs on the head, that of the CronJob in its own pod."""
    # The nightly settings name their model in the file.
    resolving = [where for where, arguments in sgpu_commands() if arguments[0] == "score"]
    assert len(resolving) == 2
    for where in resolving:
        [container] = _of_pod("headGroupSpec" if where == "sgpu-score" else where)
        assert _variables(container)["MLFLOW_TRACKING_URI"] == "http://mlflow:5000"


def test_studies_on_the_cluster_name_their_device_and_where_they_are_kept() -> None:
    for where, arguments in sgpu_commands():
        if "--address" in arguments and arguments[0] == "benchmark":
            assert "resources.device=cuda" in arguments, where
        if arguments[0] in {"benchmark", "transfer"} and where != "cluster.yaml":
            assert "tracking.mlflow=http://mlflow:5000" in arguments, where


def test_a_pod_with_a_ray_of_its_own_holds_no_token_of_the_cluster() -> None:
    [nightly] = _of_pod("sgpu-nightly-score")
    assert "RAY_AUTH_TOKEN" not in _variables(nightly)


def test_dagster_s_runs_join_the_cluster_through_a_node_beside_them() -> None:
    page, daemon, ray = (
        _of_pod(f"dagster.spec.template.spec/{name}")[0] for name in ("page", "daemon", "ray")
    )
    [head] = of_kind("RayCluster")
    assert ray["command"] == ["ray"] and {"start", "--block", "--num-cpus=0"} <= set(ray["args"])
    assert f"--address={name_of(head)}-head-svc:6379" in ray["args"]
    assert _variables(daemon)["SGPU_ADDRESS"] == "auto"
    assert "RAY_AUTH_TOKEN" in _variables(daemon).keys() & _variables(ray).keys()
    # Sockets of the session and objects are files of both; what a stage writes is seen by all nodes.
    for path in ("/tmp", "/dev/shm", "/runs", "/cache"):
        [shared] = {mount["name"] for mount in daemon["volumeMounts"] if mount["mountPath"] == path}
        assert {"name": shared, "mountPath": path} in ray["volumeMounts"]
    # The page can do nothing on the cluster: no token, no socket.
    assert not {"RAY_AUTH_TOKEN", "SGPU_ADDRESS"} & _variables(page).keys()
    others = {mount["name"] for one in (daemon, ray) for mount in one["volumeMounts"]}
    assert {mount["name"] for mount in page["volumeMounts"]} & others == {"instance", "runs"}


def test_the_head_lets_in_whoever_joins_the_cluster() -> None:
    policies = {name_of(policy): policy["spec"] for policy in of_kind("NetworkPolicy")}
    rule = policies["ray-nodes"]
    assert rule["ingress"][0]["from"] == rule["egress"][0]["to"] == [{"podSelector": rule["podSelector"]}]
    [(label, value)] = rule["podSelector"]["matchLabels"].items()
    [head] = of_kind("RayCluster")
    joining = [head["spec"]["headGroupSpec"], *head["spec"]["workerGroupSpecs"]]
    templates = [group["template"] for group in joining]
    templates += [one["spec"]["template"] for one in of_kind("Deployment") if name_of(one) == "dagster"]
    assert len(templates) == 5
    assert all(template["metadata"]["labels"].get(label) == value for template in templates)


def test_only_who_fetches_gets_out_and_names_come_from_kubernetes_alone() -> None:
    policies = {name_of(policy): policy["spec"] for policy in of_kind("NetworkPolicy")}
    anywhere = {
        name: (spec["podSelector"], {port["port"] for port in rule["ports"]})
        for name, spec in policies.items()
        for rule in spec.get("egress", [])
        if not rule.get("to")
    }
    assert anywhere == {
        "weights-and-buckets": ({"matchLabels": {"sgpu/fetches": "yes"}}, {443}),
        "autoscaler": ({"matchLabels": {"ray.io/node-type": "head"}}, {443, 6443}),
    }
    [names] = policies["names"]["egress"]
    assert [set(peer) for peer in names["to"]] == [{"namespaceSelector", "podSelector"}]  # both at once
    # Neither the database nor the jobs that only knock at the head, nor the night.
    labels = [
        dict(_template_labels(one)) for kind in ("StatefulSet", "RayJob", "CronJob") for one in of_kind(kind)
    ]
    assert len(labels) == 5 and not any("sgpu/fetches" in one for one in labels)


def test_every_pod_that_loads_weights_has_the_shared_cache() -> None:
    """The images send all weights to /cache; a manifest must not send them elsewhere."""
    for where, container in CONTAINERS.items():
        assert not {"HF_HOME", "SGPU_CACHE"} & _variables(container).keys(), where
    loading = [*_of_pod("RayCluster"), *_of_pod("/daemon"), *_of_pod("sgpu-nightly-score")]
    assert len(loading) == 6
    for container in loading:
        assert {"name": "cache", "mountPath": "/cache"} in container["volumeMounts"]


def _secret_keys(node: object) -> set[tuple[str, str]]:
    """Secret and key of every reference in a document."""
    found: set[tuple[str, str]] = set()
    if isinstance(node, dict):
        if "secretKeyRef" in node:
            found.add((node["secretKeyRef"]["name"], node["secretKeyRef"]["key"]))
        for value in node.values():
            found |= _secret_keys(value)
    elif isinstance(node, list):
        for value in node:
            found |= _secret_keys(value)
    return found


def _made_in_the_readme(kind: str) -> set[tuple[str, str]]:
    text = (INFRA / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    return {
        (command[1], Path(key).name)
        for command in re.finditer(rf"create {kind} ([\w-]+)(.*)", text)
        for key in re.findall(r"--from-(?:literal|file)=([\w./-]+)", command[2])
    }


def test_the_readme_makes_every_secret_key_that_a_manifest_reads() -> None:
    read = {key for _, document in kubernetes() for key in _secret_keys(document)}
    [ray_cluster] = of_kind("RayCluster")
    read.add((ray_cluster["spec"]["authOptions"]["secretName"], "auth_token"))  # the key that KubeRay reads
    assert len(read) >= 7
    assert _made_in_the_readme("secret generic") == read


def test_the_readme_makes_the_config_maps_that_no_manifest_holds() -> None:
    held = {name_of(document) for document in of_kind("ConfigMap")}
    mounted = {
        volume["configMap"]["name"]
        for pod in PODS.values()
        for volume in pod.get("volumes", [])
        if "configMap" in volume
    }
    assert {name for name, _ in _made_in_the_readme("configmap")} == mounted - held


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


def test_the_code_locations_of_dagster_can_be_imported() -> None:
    import importlib.util

    path = next(path for path in YAML_FILES if path.name == "workspace.yaml")
    named = [entry["python_module"]["module_name"] for entry in yaml.safe_load(path.read_text())["load_from"]]
    assert named == ["pipelines.definitions", "pipelines.scoring"]
    assert all(importlib.util.find_spec(name) for name in named)
