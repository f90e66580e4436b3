"""cluster.yaml against Ray's own schema, and against what the stages ask for."""

from __future__ import annotations

import ast
import copy
import importlib.util
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sgpu.models.cards import CARDS
from sgpu.runtime.progress import Progress
from sgpu.stages.run import Run
from sgpu.study.benchmark import load_study
from tests.infra.manifests import ROOT, cluster, of_kind, sgpu_commands

# How Ray is asked for resources and node labels of one's own: as a keyword, or in a mapping of keywords.
CUSTOM = ("resources", "resources_per_worker", "label_selector", "accelerator_type")
RAY_CALLS = ("options", "remote", "map_batches", "ScalingConfig", "placement_group")
PACKAGES = ("sgpu", "pipelines")
ACCELERATOR = "ray.io/accelerator-type"


def _ray_folder() -> Path:
    spec = importlib.util.find_spec("ray")
    assert spec and spec.origin
    return Path(spec.origin).parent


def _node_types() -> dict[str, dict[str, float]]:
    return {name: kind["resources"] for name, kind in cluster()["available_node_types"].items()}


def _labels(kinds: list[dict[str, Any]]) -> set[str]:
    return {label for kind in kinds for label in kind.get("labels", {})}


def _offered(kinds: list[dict[str, Any]]) -> set[str]:
    """Labels and custom resources; the kind of an accelerator is both in Ray."""
    accelerators = {f"accelerator_type:{kind['labels'].get(ACCELERATOR)}" for kind in kinds}
    return _labels(kinds) | {name for kind in kinds for name in kind["resources"]} | accelerators


def _asked_by_name() -> set[str]:
    """Custom resources and labels that our code asks Ray for; "?" for what is not written as a literal."""
    found: set[str] = set()
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if name.startswith("dg."):  # resources of Dagster are objects
                    continue
                ray = name.rpartition(".")[2] in RAY_CALLS
                for keyword in node.keywords:
                    found |= _names(keyword.arg, keyword.value, ray)
            elif isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant):
                        found |= _names(key.value, value, ray=False)
    return found - {"CPU", "GPU"}


def _names(keyword: object, value: ast.expr, ray: bool) -> set[str]:
    if keyword not in CUSTOM:
        return set()
    if keyword == "accelerator_type":
        return {f"accelerator_type:{value.value if isinstance(value, ast.Constant) else '?'}"}
    if isinstance(value, ast.Dict):
        return {str(key.value) if isinstance(key, ast.Constant) else "?" for key in value.keys}
    # `resources` is also what a stage of ours is given: there it is counts of CPUs and GPUs.
    return {"?"} if ray or keyword == "label_selector" else set()


def test_rays_schema_accepts_it() -> None:
    schema = json.loads((_ray_folder() / "autoscaler" / "ray-schema.json").read_text())
    jsonschema.Draft7Validator(schema).validate(cluster())


def test_rays_schema_would_find_a_wrong_key() -> None:
    schema = json.loads((_ray_folder() / "autoscaler" / "ray-schema.json").read_text())
    wrong = cluster() | {"max_worker": 3}
    with pytest.raises(jsonschema.ValidationError, match="max_worker"):
        jsonschema.Draft7Validator(schema).validate(wrong)


def test_rays_launcher_accepts_it() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(copy.deepcopy(cluster())))


def test_the_head_has_no_gpu_and_offers_no_cpu() -> None:
    head = _node_types()[cluster()["head_node_type"]]
    assert head == {"CPU": 0}


def test_gpu_workers_start_at_none_and_spot_goes_first() -> None:
    kinds = cluster()["available_node_types"]
    gpu = {name: kind for name, kind in kinds.items() if kind["resources"].get("GPU")}
    assert all(kind["min_workers"] == 0 for kind in gpu.values())
    spot = [kind for kind in gpu.values() if "InstanceMarketOptions" in kind["node_config"]]
    others = [kind for kind in gpu.values() if "InstanceMarketOptions" not in kind["node_config"]]
    assert spot and others
    assert min(k["priority"] for k in spot) > max(k.get("priority", 0) for k in others)
    assert all(kind["labels"]["ray.io/market-type"] == "spot" for kind in spot)


def test_every_engine_fits_a_node() -> None:
    largest = max(kind.get("GPU", 0) for kind in _node_types().values())
    assert {
        card.name: card.tensor_parallel_size for card in CARDS if card.tensor_parallel_size > largest
    } == {}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_actor_of_a_stage_fits_a_worker(device: str, tmp_path: Path) -> None:
    study = load_study(ROOT / "pipelines/studies/quickstart.yaml", [f"resources.device={device}"])
    run = Run(study, tmp_path, Progress(), address="auto")
    widest = float(max(card.tensor_parallel_size for card in CARDS))
    asked = [run.engine_resources("vllm", 1, None, widest), run.light_resources(1)]
    workers = [kind for name, kind in _node_types().items() if name != cluster()["head_node_type"]]
    for ask in asked:
        assert any(kind["CPU"] >= ask.num_cpus and kind.get("GPU", 0) >= ask.num_gpus for kind in workers), (
            f"no worker has {ask.num_cpus} CPUs and {ask.num_gpus} GPUs"
        )


def test_the_threads_of_actors_that_fill_a_gpu_node_fit_its_cores(tmp_path: Path) -> None:
    study = load_study(ROOT / "pipelines/studies/quickstart.yaml", ["resources.device=cuda"])
    run = Run(study, tmp_path, Progress(), address="auto")
    nodes = [(kind["GPU"], kind["CPU"]) for kind in _node_types().values() if kind.get("GPU")]
    nodes += [(gpus, cores) for gpus, cores in _kubernetes_gpu_nodes()]
    for gpus, cores in nodes:
        for ask in (run.engine_resources("vllm", 8, None, 1), run.light_resources(32)):
            assert gpus / ask.num_gpus * ask.threads <= cores


def _kubernetes_gpu_nodes() -> list[tuple[int, int]]:
    [ray_cluster] = of_kind("RayCluster")
    limits = [
        group["template"]["spec"]["containers"][0]["resources"]["limits"]
        for group in ray_cluster["spec"]["workerGroupSpecs"]
    ]
    return [(int(one["nvidia.com/gpu"]), int(one["cpu"])) for one in limits if "nvidia.com/gpu" in one]


def test_nodes_reach_the_bucket_by_a_role_and_the_example_writes_to_it() -> None:
    """They share no disk, and Ray gives workers no role by itself."""
    kinds = cluster()["available_node_types"]
    roles = {name: kind["node_config"]["IamInstanceProfile"] for name, kind in kinds.items()}
    assert all(set(role) <= {"Name", "Arn"} for role in roles.values())
    assert roles.pop(cluster()["head_node_type"]) not in roles.values()  # the head may do more
    [arguments] = [arguments for where, arguments in sgpu_commands() if where == "cluster.yaml"]
    assert arguments[arguments.index("--out") + 1].startswith("s3://")


def test_every_label_and_custom_resource_that_the_stages_name_exists() -> None:
    assert _asked_by_name() - _offered(list(cluster()["available_node_types"].values())) == set()


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("f(resources={'sampler': 1, 'GPU': 1}, label_selector={'zone': 'a'})", {"sampler", "zone"}),
        ("f.options(accelerator_type='A100')", {"accelerator_type:A100"}),
        ("f.options(accelerator_type=kind)", {"accelerator_type:?"}),
        ("f.options(resources=asked)", {"?"}),
        ("f(ray_remote_args={'label_selector': {'zone': 'a'}})", {"zone"}),
        ("ScalingConfig(resources_per_worker={'CPU': 1, 'head': 1})", {"head"}),
        ("Stage(resources=run.light_resources(1))", set()),
        ("dg.Definitions(resources={'study': study})", set()),
    ],
)
def test_the_search_for_asked_labels_finds_a_planted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, code: str, found: set[str]
) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "stage.py").write_text(code)
    monkeypatch.setattr("tests.infra.test_cluster_yaml.ROOT", tmp_path)
    assert _asked_by_name() == found
    assert "accelerator_type:A100" not in _offered(list(cluster()["available_node_types"].values()))


def test_the_accelerator_of_the_gpu_nodes_can_be_asked_for() -> None:
    assert "accelerator_type:H100" in _offered(list(cluster()["available_node_types"].values()))


def test_kubernetes_offers_the_same_labels_and_sizes() -> None:
    [ray_cluster] = of_kind("RayCluster")
    groups = ray_cluster["spec"]["workerGroupSpecs"]
    workers = {k: v for k, v in cluster()["available_node_types"].items() if k != "head"}
    assert {g["groupName"].replace("-", "_"): g["labels"] for g in groups} == {
        name: kind["labels"] for name, kind in workers.items()
    }
    for group in groups:
        [container] = group["template"]["spec"]["containers"]
        gpus = int(container["resources"]["limits"].get("nvidia.com/gpu", 0))
        kind = workers[group["groupName"].replace("-", "_")]
        assert (gpus, group["maxReplicas"]) == (kind["resources"].get("GPU", 0), kind["max_workers"])


def test_the_dashboard_listens_on_loopback_and_a_token_is_asked_for() -> None:
    config = cluster()
    assert "--dashboard-host=127.0.0.1" in " ".join(config["head_start_ray_commands"])
    options = config["docker"]["run_options"]
    assert "-e RAY_AUTH_MODE=token" in options
    [path] = [o.split("=", 1)[1] for o in options if o.startswith("-e RAY_AUTH_TOKEN_PATH=")]
    assert config["file_mounts"][path] == "~/.ray/auth_token"
    assert config["provider"]["use_internal_ips"] is True


def test_every_disk_is_encrypted_and_metadata_ask_for_a_session() -> None:
    for kind in cluster()["available_node_types"].values():
        assert kind["node_config"]["MetadataOptions"]["HttpTokens"] == "required"
        assert all(disk["Ebs"]["Encrypted"] for disk in kind["node_config"]["BlockDeviceMappings"])


def test_every_node_type_names_its_image() -> None:
    """Without one Ray takes an image of 2023, whose driver is too old for the wheels of the GPU lock."""
    images = {
        name: kind["node_config"].get("ImageId") for name, kind in cluster()["available_node_types"].items()
    }
    assert all(image and image.startswith(("ami-", "resolve:ssm:")) for image in images.values()), images


def test_workers_have_the_token_for_gated_weights_by_a_file() -> None:
    file = "/home/sgpu/.hf_token"
    assert file in cluster()["file_mounts"]
    assert f"-e HF_TOKEN_PATH={file}" in cluster()["docker"]["run_options"]


def test_objects_leave_room_in_shared_memory_for_engines() -> None:
    from ray._private.resource_and_label_spec import ResourceAndLabelSpec

    checked = 0
    for kind in cluster()["available_node_types"].values():
        for option in kind.get("docker", {}).get("worker_run_options", []):
            if option.startswith("--shm-size="):
                # The launcher hands a node type's resources to `ray start`, which reads them so.
                *_, objects, _ = ResourceAndLabelSpec._merge_resources(dict(kind["resources"]), {})
                assert objects <= 0.7 * 2**30 * int(option.removeprefix("--shm-size=").removesuffix("g"))
                checked += 1
    assert checked == 2
