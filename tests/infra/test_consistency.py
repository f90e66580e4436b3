"""Files of the cluster against each other, against our own code, and against what reads them."""

from __future__ import annotations

import copy
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray
import yaml

from pipelines.nightly import NIGHTLY, score_settings
from sgpu.errors import UsageError
from sgpu.models.cards import CARDS
from sgpu.runtime.progress import Progress
from sgpu.scoring.outcome import FAILED, SEVERITY
from sgpu.stages.actors import engine_actors, light_actors
from sgpu.stages.run import Run
from sgpu.study.benchmark import load_study
from tests.infra.manifests import (
    CLUSTER,
    INFRA,
    KUBERNETES,
    NODE_TYPES,
    ROOT,
    Document,
    containers,
    documents,
    name_of,
    of_kind,
    sgpu_commands,
    variables,
    walk,
)

RAY_CLUSTER = KUBERNETES["RayCluster/sgpu"]["spec"]
GROUPS = RAY_CLUSTER["workerGroupSpecs"]
COMMANDS = list(sgpu_commands())


def the_container(where: str, name: str) -> Document:
    [found] = [one for one in containers(KUBERNETES[where]) if one["name"] == name]
    return found


def flag(arguments: list[str], name: str) -> str | None:
    return arguments[arguments.index(name) + 1] if name in arguments else None


# cluster.yaml, for Ray's launcher


def test_rays_launcher_accepts_cluster_yaml_and_its_schema_finds_a_wrong_key() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    schema = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text())
    validator = jsonschema.Draft7Validator(schema)
    validator.validate(CLUSTER)
    with pytest.raises(jsonschema.ValidationError, match="max_worker"):
        validator.validate(CLUSTER | {"max_worker": 3})
    validate_config(prepare_config(copy.deepcopy(CLUSTER)))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_engines_and_actors_fit_a_worker_and_their_threads_its_cores(device: str, tmp_path: Path) -> None:
    study = load_study(ROOT / "pipelines/studies/quickstart.yaml", [f"resources.device={device}"])
    run = Run(study, tmp_path, Progress(), address="auto")
    workers = [kind["resources"] for name, kind in NODE_TYPES.items() if name != CLUSTER["head_node_type"]]
    widest = max(CARDS, key=lambda card: card.tensor_parallel_size)
    light = light_actors(run, "encode")
    for ask in (engine_actors(run, "sample", widest, "vllm", 1), light):
        assert any(one["CPU"] >= ask.num_cpus and one.get("GPU", 0) >= ask.num_gpus for one in workers)
    for kind in (kind for kind in workers if kind.get("GPU") and device == "cuda"):
        for ask in (engine_actors(run, "sample", CARDS[0], "vllm", 1, gpus=1.0), light):
            assert kind["GPU"] / ask.num_gpus * ask.threads <= kind["CPU"]


def test_kubernetes_offers_the_labels_sizes_and_images_of_the_launcher() -> None:
    docker = CLUSTER["docker"]
    images = {docker["head_image"], docker["worker_image"]}
    images |= {kind["docker"]["worker_image"] for kind in NODE_TYPES.values() if "docker" in kind}
    ran = {one["image"] for one in containers([*KUBERNETES.values()])}
    assert images == {image for image in ran if "/sgpu-" in image}
    for group in GROUPS:
        kind = NODE_TYPES[group["groupName"].replace("-", "_")]
        gpus = int(containers(group)[0]["resources"]["limits"].get("nvidia.com/gpu", 0))
        assert (group["labels"], group["maxReplicas"]) == (kind["labels"], kind["max_workers"])
        assert gpus == kind["resources"].get("GPU", 0)
    assert len(GROUPS) == len(NODE_TYPES) - 1


def test_objects_leave_room_in_shared_memory_for_engines() -> None:
    from ray._private.resource_and_label_spec import ResourceAndLabelSpec

    for kind in NODE_TYPES.values():
        for option in kind.get("docker", {}).get("worker_run_options", []):
            if option.startswith("--shm-size="):
                # The launcher hands a node type's resources to `ray start`, which reads them so.
                *_, objects, _ = ResourceAndLabelSpec._merge_resources(dict(kind["resources"]), {})
                assert objects <= 0.7 * 2**30 * int(option.removeprefix("--shm-size=").removesuffix("g"))


def test_nodes_of_the_launcher_can_read_the_tokens_that_they_are_told_of() -> None:
    told = re.findall(r"-e \w+_TOKEN_PATH=(\S+)", " ".join(CLUSTER["docker"]["run_options"]))
    assert sorted(told) == sorted(CLUSTER["file_mounts"])


# Kubernetes


def test_the_cluster_asks_for_a_token_and_is_of_the_pinned_ray() -> None:
    assert "-e RAY_AUTH_MODE=token" in CLUSTER["docker"]["run_options"]
    assert RAY_CLUSTER["authOptions"]["mode"] == "token"
    assert RAY_CLUSTER["rayVersion"] == ray.__version__
    shared = [job["spec"]["clusterSelector"] for job in of_kind("RayJob") if "clusterSelector" in job["spec"]]
    selected = {selector["ray.io/cluster"] for selector in shared}
    assert selected == {name_of(one) for one in of_kind("RayCluster")}


def test_the_network_is_closed_and_every_label_that_a_policy_selects_is_worn() -> None:
    closed = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert closed in [policy["spec"] for policy in of_kind("NetworkPolicy")]
    # KubeRay puts the first on; the other is that of Kubernetes' own names, in another namespace.
    worn = {("ray.io/node-type", "head"), ("k8s-app", "kube-dns")}
    worn |= {pair for part in walk([*KUBERNETES.values()]) if "spec" in part
             for pair in part.get("metadata", {}).get("labels", {}).items()}  # fmt: skip
    selected = {pair for part in walk(of_kind("NetworkPolicy"))
                for pair in part.get("podSelector", {}).get("matchLabels", {}).items()}  # fmt: skip
    assert selected and selected <= worn


def test_a_policy_admits_to_ports_that_a_container_opens() -> None:
    opened = {one["containerPort"] for one in walk([*KUBERNETES.values()]) if "containerPort" in one}
    rules = [rule for one in walk(of_kind("NetworkPolicy")) for rule in one.get("ingress", [])]
    admitted = {port["port"] for rule in rules for port in rule.get("ports", [])}
    assert admitted and admitted <= opened


def test_claims_secrets_and_config_maps_are_made_by_a_manifest_or_the_readme() -> None:
    text = (INFRA / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    made = {
        (command[1], command[2], Path(key).name)
        for command in re.finditer(r"create (secret generic|configmap) ([\w-]+)(.*)", text)
        for key in re.findall(r"--from-(?:literal|file)=([\w./-]+)", command[3])
    }
    parts = list(walk([*KUBERNETES.values()]))
    references = [one["secretKeyRef"] for one in parts if "secretKeyRef" in one]
    secrets = {(one["name"], one["key"]) for one in references}
    secrets.add((RAY_CLUSTER["authOptions"]["secretName"], "auth_token"))  # the key that KubeRay reads
    assert {(name, key) for kind, name, key in made if kind == "secret generic"} == secrets
    maps = {one["configMap"]["name"] for one in parts if "configMap" in one}
    held = {name_of(one) for one in of_kind("ConfigMap")}
    [generated] = documents(INFRA / "dagster/kustomization.yaml")[0]["configMapGenerator"]
    assert maps == held | {generated["name"]}
    claims = {one["persistentVolumeClaim"]["claimName"] for one in parts if "persistentVolumeClaim" in one}
    assert claims == {name_of(one) for one in of_kind("PersistentVolumeClaim")}


def test_pages_without_users_listen_on_loopback_and_mlflow_asks_who_is_there() -> None:
    page = the_container("Deployment/dagster", "page")
    assert "--host=127.0.0.1" in page["args"] and "ports" not in page
    assert not {"RAY_AUTH_TOKEN", "SGPU_ADDRESS"} & variables(page).keys()  # the page can do nothing
    assert "--app-name=basic-auth" in the_container("Deployment/mlflow", "mlflow")["args"]


def test_a_night_that_ended_with_a_finding_is_not_tried_again_and_one_that_crashed_is() -> None:
    job = KUBERNETES["CronJob/sgpu-nightly-score"]["spec"]["jobTemplate"]["spec"]
    [final] = [one["onExitCodes"] for one in walk(job) if "onExitCodes" in one]
    assert final["values"] == [UsageError.exit_code, *sorted({*SEVERITY} - {0, FAILED})]
    assert final["containerName"] in {one["name"] for one in containers(job)} and job["backoffLimit"] > 0


def test_the_night_runs_the_settings_that_dagster_runs() -> None:
    [words] = [words for where, words in COMMANDS if where == "CronJob/sgpu-nightly-score"]
    page = variables(the_container("Deployment/dagster", "page"))
    assert flag(words, "--settings") == page["SGPU_NIGHTLY"]
    given = {"logs": flag(words, "--logs"), "out": flag(words, "--out"), "date": "2026-11-20"}
    assert score_settings(NIGHTLY, given).late_days == 2
    # The folder above the days, as late rows are looked for in the days before.
    assert len({flag(words, "--logs") for _, words in COMMANDS} - {None}) == 1


def test_studies_name_their_device_and_everyone_the_tracking_server_that_there_is() -> None:
    on_cluster = [words for _, words in COMMANDS if words[0] == "benchmark" and "--address" in words]
    assert on_cluster and all("resources.device=cuda" in words for words in on_cluster)
    service = KUBERNETES["Service/mlflow"]
    named = set(re.findall(r"http://mlflow:\d+", json.dumps([*KUBERNETES.values()])))
    assert named == {f"http://{name_of(service)}:{port['port']}" for port in service["spec"]["ports"]}


def test_dagster_accepts_its_instance_file_and_can_import_its_code(tmp_path: Path) -> None:
    from dagster._core.instance.config import dagster_instance_config

    (tmp_path / "dagster.yaml").write_text((INFRA / "dagster" / "dagster.yaml").read_text())
    config, _ = dagster_instance_config(str(tmp_path))
    assert config["telemetry"] == {"enabled": False}
    workspace: Any = yaml.safe_load((INFRA / "dagster" / "workspace.yaml").read_text())
    for entry in workspace["load_from"]:
        assert importlib.util.find_spec(entry["python_module"]["module_name"])
