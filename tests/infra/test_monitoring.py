"""Dashboard and alerts name metrics that exist."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from sgpu.logs.accounting import Accounting
from sgpu.runtime.ledger import METRICS
from sgpu.watch.metrics import metrics_text
from sgpu.watch.sketch import Sketch
from sgpu.watch.verdict import NUMBERS, Verdict
from tests.infra.manifests import INFRA, containers
from tests.infra.ray_and_vllm_metrics import RAY_METRICS, VLLM_METRICS

DASHBOARD = json.loads((INFRA / "monitoring" / "dashboard.json").read_text())
RULES = yaml.safe_load((INFRA / "monitoring" / "alerts.yaml").read_text())
ENDINGS = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
OURS = {f"ray_{spec.name}{ending}" for spec in METRICS for ending in ENDINGS[spec.kind]}
SCORED = {
    line.split()[0]
    for line in metrics_text(Sketch(), Accounting(), Verdict("green"), finished=1.0, day=0.0)
    .decode()
    .splitlines()
    if not line.startswith("#")
}
NAME = re.compile(r"\b(?:ray_|vllm:|sgpu_)[a-z0-9_]+")


def _expressions() -> dict[str, str]:
    found = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    }
    found |= {rule["alert"]: rule["expr"] for group in RULES["groups"] for rule in group["rules"]}
    return found | {f"variable {v['name']}": v["query"] for v in DASHBOARD["templating"]["list"]}


EXPRESSIONS = _expressions()


@pytest.mark.parametrize("where", EXPRESSIONS)
def test_an_expression_names_metrics_that_exist(where: str) -> None:
    unknown = set(NAME.findall(EXPRESSIONS[where])) - OURS - SCORED - RAY_METRICS - VLLM_METRICS
    assert unknown == set()


@pytest.mark.parametrize("where", EXPRESSIONS)
def test_an_expression_closes_what_it_opens(where: str) -> None:
    for opening, closing in ("()", "[]", "{}"):
        assert EXPRESSIONS[where].count(opening) == EXPRESSIONS[where].count(closing)


def test_each_of_our_metrics_has_a_panel() -> None:
    shown = {
        name for panel in DASHBOARD["panels"] for t in panel["targets"] for name in NAME.findall(t["expr"])
    }
    assert OURS - shown == set()


def test_the_stated_lists_hold_nothing_that_is_not_used() -> None:
    used = {name for expression in EXPRESSIONS.values() for name in NAME.findall(expression)}
    assert (RAY_METRICS | VLLM_METRICS) - used == set()


def test_vllm_declares_the_metrics_that_are_listed() -> None:
    spec = importlib.util.find_spec("vllm")
    assert spec is not None and spec.origin is not None
    source = (Path(spec.origin).parent / "v1" / "metrics" / "loggers.py").read_text()
    assert {name for name in VLLM_METRICS if f'"{name.removesuffix("_total")}"' not in source} == set()


def test_every_alert_says_what_to_do() -> None:
    for group in RULES["groups"]:
        for rule in group["rules"]:
            assert {"summary", "remedy"} <= rule["annotations"].keys()
            assert rule["labels"]["severity"] in {"page", "ticket"}


def test_alerts_fire_when_they_should_and_not_before() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool, of Debian's package `prometheus`")
    cases = Path(__file__).with_name("alerts_fire.yaml")
    done = subprocess.run([promtool, "test", "rules", str(cases)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_red_day_and_days_that_are_missing_are_called_out() -> None:
    [group] = [group for group in RULES["groups"] if group["name"] == "score"]
    told = {rule["alert"]: rule["expr"] for rule in group["rules"]}
    # 2 is red, and a day that began three days ago has been over for two.
    assert told["AnswersHaveChanged"] == f"sgpu_score_level >= {NUMBERS['red']}"
    assert told["NoDayScored"] == "time() - sgpu_score_day_timestamp_seconds > 3 * 86400"


def test_prometheus_reads_the_exporter_of_the_textfile() -> None:
    config = yaml.safe_load((INFRA / "monitoring" / "prometheus.yaml").read_text())
    assert "node-exporter" in {job["job_name"] for job in config["scrape_configs"]}


def test_panels_do_not_overlap_and_have_their_own_ids() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids) and len(set(places)) == len(places)


def test_prometheus_reads_the_ports_that_ray_nodes_open() -> None:
    config = yaml.safe_load((INFRA / "monitoring" / "prometheus.yaml").read_text())
    [pods] = [job for job in config["scrape_configs"] if job["job_name"] == "ray-pods"]
    [rule] = [r for r in pods["relabel_configs"] if "container_port_name" in r["source_labels"][0]]
    opened = {
        port["name"]
        for where, container in containers()
        if "RayCluster" in where
        for port in container["ports"]
        if "metrics" in port["name"]
    }
    assert set(rule["regex"].split("|")) == opened
    # Our metrics come from the node of the driver, which is Dagster's own for its runs.
    [worn] = [r for r in pods["relabel_configs"] if "_pod_label_sgpu_ray" in r["source_labels"][0]]
    assert (worn["regex"], worn["action"]) == ("yes", "keep")
    [sidecar] = [container for where, container in containers() if where.endswith("/ray")]
    assert "metrics" in {port["name"] for port in sidecar["ports"]}
    assert config["rule_files"] == ["alerts.yaml"]
