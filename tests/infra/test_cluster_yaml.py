"""cluster.yaml against Ray's own schema, and against what the stages ask for."""

from __future__ import annotations

import ast
import copy
import importlib.util
import json
from pathlib import Path

import jsonschema
import pytest

from sgpu.model_cards import CARDS
from sgpu.stages.progress import Progress
from sgpu.stages.run import Run
from sgpu.study import load_study
from tests.infra.manifests import ROOT, cluster, of_kind

# How a Ray call names resources and node labels of one's own.
CUSTOM = ("resources", "label_selector", "accelerator_type")


def _ray_folder() -> Path:
    spec = importlib.util.find_spec("ray")
    assert spec and spec.origin
    return Path(spec.origin).parent


def _node_types() -> dict[str, dict[str, float]]:
    return {name: kind["resources"] for name, kind in cluster()["available_node_types"].items()}


def _labels(kinds: list[dict[str, object]]) -> set[str]:
    return {label for kind in kinds for label in kind.get("labels", {})}  # type: ignore[attr-defined]


def _asked_by_name() -> set[str]:
    """Custom resources and labels that any call in the library names as a literal."""
    found: set[str] = set()
    for path in (ROOT / "sgpu").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for keyword in node.keywords if isinstance(node, ast.Call) else ():
                if keyword.arg in CUSTOM and isinstance(keyword.value, ast.Dict):
                    found |= {str(ast.literal_eval(key)) for key in keyword.value.keys if key}
    return found - {"CPU", "GPU"}


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
    run = Run(study, tmp_path, Progress())
    widest = float(max(card.tensor_parallel_size for card in CARDS))
    asked = [run.engine_resources("vllm", 1, None, widest), run.light_resources(1)]
    workers = [kind for name, kind in _node_types().items() if name != cluster()["head_node_type"]]
    for ask in asked:
        assert any(kind["CPU"] >= ask.num_cpus and kind.get("GPU", 0) >= ask.num_gpus for kind in workers), (
            f"no worker has {ask.num_cpus} CPUs and {ask.num_gpus} GPUs"
        )


def test_every_label_and_custom_resource_that_the_stages_name_exists() -> None:
    kinds = list(cluster()["available_node_types"].values())
    offered = _labels(kinds) | {name for kind in kinds for name in kind["resources"]}
    assert _asked_by_name() - offered == set()


def test_the_search_for_asked_labels_finds_a_planted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sgpu").mkdir()
    (tmp_path / "sgpu" / "stage.py").write_text(
        "f(resources={'sampler': 1, 'GPU': 1}, label_selector={'zone': 'a'})"
    )
    monkeypatch.setattr("tests.infra.test_cluster_yaml.ROOT", tmp_path)
    assert _asked_by_name() == {"sampler", "zone"}


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
