"""What Kustomize makes of the overlays: values that are set once arrive everywhere, and policies are kept."""

from __future__ import annotations

import shutil
import subprocess

import pytest
import yaml

from tests.infra.manifests import INFRA, KUBERNETES, Document, by_name, containers, walk
from tests.infra.test_policies import POLICIES, check_schema, keeps

pytestmark = pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl")
SITE = yaml.safe_load((INFRA / "overlay/site/kustomization.yaml").read_text(encoding="utf-8"))
VALUES = dict(literal.split("=") for literal in SITE["configMapGenerator"][0]["literals"])
PRODUCT = "nvidia.com/gpu.product"


def render(folder: str) -> dict[str, Document]:
    """Return the objects that Kustomize makes of a folder."""
    command = ["kubectl", "kustomize", "--load-restrictor", "LoadRestrictionsNone", str(INFRA / folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return by_name(yaml.safe_load_all(done.stdout))


@pytest.mark.parametrize("folder", ["overlay", "overlay/own-cluster"])
def test_an_overlay_sets_registry_and_gpu_everywhere_and_keeps_schemas_and_policies(folder: str) -> None:
    made = render(folder)
    images = {one["image"] for one in containers([*made.values()]) if "/sgpu-" in one["image"]}
    assert images == {f"{image['newName']}:{image['newTag']}" for image in SITE["images"]}
    assert {one[PRODUCT] for one in walk([*made.values()]) if PRODUCT in one} == {VALUES["gpuProduct"]}
    for document in made.values():
        check_schema(document)
    assert [(name, where) for where in made for name in POLICIES if not keeps(name, made[where])] == []


def test_the_overlay_applies_all_that_stays_with_its_bucket_and_storage_class() -> None:
    made = render("overlay")
    jobs = {where for where in KUBERNETES if where.startswith("RayJob/")}
    stays = {where for where, one in KUBERNETES.items() if one["apiVersion"] != "monitoring.coreos.com/v1"}
    assert {where for where in made if not where.startswith("ConfigMap/dagster-")} == stays - jobs
    claims = [one for one in made.values() if one["kind"] == "PersistentVolumeClaim"]
    assert {claim["spec"]["storageClassName"] for claim in claims} == {VALUES["storageClass"]}
    assert made["ConfigMap/mlflow"]["data"]["artifacts"] == VALUES["artifacts"]


def test_a_job_can_bring_the_cluster_of_the_base_with_nodes_of_a_fixed_number() -> None:
    [job] = render("overlay/own-cluster").values()
    own, shared = job["spec"]["rayClusterSpec"], KUBERNETES["RayCluster/sgpu"]["spec"]
    assert not own["enableInTreeAutoscaling"] and job["spec"]["shutdownAfterJobFinishes"]
    nodes = {
        group["groupName"]: (group["replicas"], group["minReplicas"]) for group in own["workerGroupSpecs"]
    }
    assert nodes == {"cpu": (0, 0), "h100-spot": (8, 8), "h100": (0, 0)}
    assert own["headGroupSpec"]["rayStartParams"] == shared["headGroupSpec"]["rayStartParams"]
