"""Dashboard and alerts name metrics that exist, and alerts fire when they should."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sgpu.logs.accounting import Accounting
from sgpu.runtime.metered_ledger import METRICS
from sgpu.watch.metrics import metrics_text
from sgpu.watch.sketch import Sketch
from sgpu.watch.verdict import NUMBERS, Verdict
from tests.infra.manifests import INFRA, KUBERNETES, ROOT, containers, walk

MONITORING = INFRA / "monitoring"
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
GROUPS = KUBERNETES["PrometheusRule/sgpu"]["spec"]["groups"]
RULES: dict[str, Any] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
ENDINGS = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
OURS = {f"ray_{spec.name}{ending}" for spec in METRICS for ending in ENDINGS[spec.kind]}
SCORED = metrics_text(Sketch(), Accounting(), Verdict("green"), finished=1.0, day=0.0).decode()
# Seen at the agent of a Ray 2.60 with `ray[default]`, but for the two of GPUs, which stand in its source.
RAY = """ray_actors ray_cluster_active_nodes ray_node_cpu_utilization ray_node_disk_free ray_node_disk_usage
    ray_node_gpus_utilization ray_node_gram_used ray_node_mem_total ray_node_mem_used
    ray_object_store_available_memory ray_object_store_used_memory ray_spill_manager_objects_bytes"""
PANELS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
EXPRESSIONS = [
    *PANELS, *(rule["expr"] for rule in RULES.values()),
    *(variable["query"] for variable in DASHBOARD["templating"]["list"]),
]  # fmt: skip


def names_in(expressions: list[str]) -> set[str]:
    return set(re.findall(r"\b(?:ray_|vllm:|sgpu_)[a-z0-9_]+", " ".join(expressions)))


def test_expressions_name_metrics_that_exist_and_ours_have_panels() -> None:
    assert names_in(EXPRESSIONS) - OURS - names_in([SCORED]) == {*RAY.split()}
    assert names_in(PANELS) >= OURS


@pytest.mark.parametrize("task", ["check", "test"])
def test_promtool_accepts_the_rules_and_they_fire_when_they_should(task: str, tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool, of Debian's package `prometheus`")
    [unwrap] = re.findall(
        r"^#   (sed .+)>rules.yaml$", (MONITORING / "alerts.yaml").read_text(), re.MULTILINE
    )
    rules = subprocess.run(shlex.split(unwrap), cwd=ROOT, capture_output=True, check=True).stdout
    (tmp_path / "rules.yaml").write_bytes(rules)
    path = (
        shutil.copy(Path(__file__).with_name("alerts_fire.yaml"), tmp_path)
        if task == "test"
        else "rules.yaml"
    )
    command = [promtool, task, "rules", str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_says_what_to_do_and_a_red_day_is_called_out() -> None:
    for rule in RULES.values():
        assert {"summary", "remedy"} <= rule["annotations"].keys()
    assert RULES["AnswersHaveChanged"]["expr"] == f"sgpu_score_level >= {NUMBERS['red']}"


def test_prometheus_reads_the_ports_and_labels_of_ray_nodes() -> None:
    config = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    kept = {rule["source_labels"][0]: rule["regex"] for rule in jobs["ray-pods"]["relabel_configs"]
            if rule.get("action") == "keep"}  # fmt: skip
    opened = {port["name"] for one in containers(KUBERNETES["RayCluster/sgpu"]) for port in one["ports"]}
    ports = kept["__meta_kubernetes_pod_container_port_name"].split("|")
    assert set(ports) == {name for name in opened if "metrics" in name}
    worn = {
        labels.get("sgpu/ray") for one in walk(KUBERNETES["RayCluster/sgpu"]) if (labels := one.get("labels"))
    }
    assert kept["__meta_kubernetes_pod_label_sgpu_ray"] in worn
    monitor = KUBERNETES["PodMonitor/sgpu-ray"]["spec"]
    assert {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]} == set(ports)
    assert monitor["selector"]["matchLabels"] == {"sgpu/ray": kept["__meta_kubernetes_pod_label_sgpu_ray"]}
