"""Dashboard and alerts name metrics that exist, and alerts fire when they should."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sgpu.logs.accounting import Accounting
from sgpu.runtime.ledger import METRICS
from sgpu.watch.metrics import metrics_text
from sgpu.watch.sketch import Sketch
from sgpu.watch.verdict import NUMBERS, Verdict
from tests.infra.manifests import INFRA, KUBERNETES, containers
from tests.infra.ray_and_vllm_metrics import RAY_METRICS, VLLM_METRICS

MONITORING = INFRA / "monitoring"
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
GROUPS = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
RULES: dict[str, Any] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
ENDINGS = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
OURS = {f"ray_{spec.name}{ending}" for spec in METRICS for ending in ENDINGS[spec.kind]}
SCORED = {
    line.split()[0]
    for line in metrics_text(Sketch(), Accounting(), Verdict("green"), finished=1.0, day=0.0)
    .decode()
    .splitlines()
    if not line.startswith("#")
}
PANELS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
EXPRESSIONS = [
    *PANELS, *(rule["expr"] for rule in RULES.values()),
    *(variable["query"] for variable in DASHBOARD["templating"]["list"]),
]  # fmt: skip


def names_in(expressions: list[str]) -> set[str]:
    return set(re.findall(r"\b(?:ray_|vllm:|sgpu_)[a-z0-9_]+", " ".join(expressions)))


def test_expressions_name_metrics_that_exist_and_ours_have_panels() -> None:
    used = names_in(EXPRESSIONS)
    assert used - OURS - SCORED == RAY_METRICS | VLLM_METRICS
    assert names_in(PANELS) >= OURS


def test_vllm_declares_the_metrics_that_are_listed() -> None:
    spec = importlib.util.find_spec("vllm")
    assert spec is not None and spec.origin is not None
    source = (Path(spec.origin).parent / "v1" / "metrics" / "loggers.py").read_text()
    assert {name for name in VLLM_METRICS if f'"{name.removesuffix("_total")}"' not in source} == set()


@pytest.mark.parametrize(
    ("task", "path"),
    [("check", MONITORING / "alerts.yaml"), ("test", Path(__file__).with_name("alerts_fire.yaml"))],
    ids=["check", "test"],
)
def test_promtool_accepts_the_rules_and_they_fire_when_they_should(task: str, path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool, of Debian's package `prometheus`")
    done = subprocess.run([promtool, task, "rules", str(path)], capture_output=True, text=True, timeout=60)
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
    assert kept["__meta_kubernetes_pod_label_sgpu_ray"] == "yes"
    assert "node-exporter" in jobs and config["rule_files"] == ["alerts.yaml"]
