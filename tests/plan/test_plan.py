"""From a study file to a plan, and to text and JSON."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from sgpu.errors import UsageError
from sgpu.plan.estimate import count_parameters
from sgpu.plan.plan import CostPlan, follow_plan, make_plan
from sgpu.plan.tables import as_json, as_text
from sgpu.provenance import available_cores
from sgpu.runtime.progress import Progress
from sgpu.runtime.runner import PoolRecord
from sgpu.stages.run import Run
from sgpu.study.benchmark import load_study
from sgpu.study.models import model_card

STUDIES = Path(__file__).resolve().parents[2] / "pipelines" / "studies"


def study(folder: Path, text: str) -> Path:
    file = folder / "s.yaml"
    file.write_text(text)
    return file


def plan_paper(*overrides: str, rates: Path | None = None) -> CostPlan:
    return make_plan(STUDIES / "paper.yaml", ["datasets.3.path=vizwiz", *overrides], rates)


def count_questions(plan: CostPlan) -> dict[str, int]:
    """Return the questions that are asked of each data set, of all models together."""
    rows: dict[str, int] = {}
    for work in plan.work:
        if work.stage == "sample":
            rows[work.cell.dataset] = rows.get(work.cell.dataset, 0) + work.rows
    return rows


@pytest.fixture(scope="module")
def paper() -> CostPlan:
    return plan_paper()


def test_the_paper_study_says_its_disk_and_what_is_missing(paper: CostPlan) -> None:
    # By hand: float16, the middle and last layer of 20 answers, every layer of the first at three positions.
    shapes = [(36, 2048), (28, 3584), (32, 4096), (32, 4096)]
    size = sum(2 * dim * (2 * 20 + (layers + 1) * 3) for layers, dim in shapes) * 64_638
    content = json.loads(as_json(paper))
    needs = content["needs"]["rows"][0]
    assert needs["GB of hidden states, in the output folder"] == pytest.approx(size / 1e9)
    assert needs["GB of weights"] == pytest.approx(420, abs=1)
    assert any("'advqa' has no copy on the Hub" in what for what in content["missing"])
    assert not any("vizwiz" in what for what in content["missing"])


def test_without_its_raw_files_vizwiz_is_planned_as_the_hub_has_it() -> None:
    plan = make_plan(STUDIES / "paper.yaml")
    assert count_questions(plan)["vizwiz"] == 4 * (2_319 + 2_000)
    assert "vizwiz: 2,319 + 2,000 questions of 10,000 + 2,000." in as_text(plan)


def test_the_paper_study_has_24_cells_at_granted_sizes(paper: CostPlan) -> None:
    assert len({work.cell for work in paper.work}) == 24
    # 46,262 and 18,376 of each of four models
    assert sum(count_questions(paper).values()) == 4 * (46_262 + 18_376)


def test_the_paper_study_labels_train_and_test_by_two_judges(paper: CostPlan) -> None:
    rows = dict.fromkeys(("llama-3.1-8b-instruct", "llama-3.1-70b-instruct", "qwen2.5-32b-instruct"), 0)
    for work in paper.work:
        if work.stage == "judge" and work.engine in rows:
            rows[work.engine] += work.rows
    assert list(rows.values()) == [4 * 46_262, 4 * 18_376, 4 * (5 * 500 + 451)]


def test_the_text_study_has_gsm8k_with_validation_questions_only() -> None:
    questions = {"triviaqa": 2 * 11_000, "popqa": 2 * 11_000, "gsm8k": 2 * (500 + 1_319)}
    assert count_questions(make_plan(STUDIES / "paper_text.yaml")) == questions


def test_the_embedded_study_is_planned_in_minutes_of_a_cpu() -> None:
    plan = make_plan(STUDIES / "quickstart.yaml", ["rates.cpu.start_minutes=0.5"])
    assert plan.on_cpu and plan.best_buy is None
    assert 1 < plan.chosen.wall * available_cores() / 2 < 30
    assert [len(shelf.pools) for shelf in plan.chosen.shelves] == [1] * len(plan.pools)
    assert "GPU-hours of work" not in as_text(plan) and "minutes on" in as_text(plan)


def test_a_local_folder_of_weights_is_planned_from_its_size(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with (folder / "model.safetensors").open("wb") as weights:
        weights.truncate(2**30)  # sparse
    file = study(tmp_path, f"models: [{{name: own, card: {folder}}}]\ndatasets: [{{kind: worldfacts}}]\n")
    # 2 ** 30 bytes, two a parameter
    assert count_parameters(model_card(str(folder))) == pytest.approx(0.537, abs=1e-3)
    assert "taken from the size of its weights" in as_text(make_plan(file))


def test_given_answers_are_counted_and_the_rest_is_said_to_be_unknown(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"question_id": "q"}\n' * 10))
    file = study(tmp_path, "datasets: [{kind: responses, path: a.jsonl.gz, n: 10}]\n")
    plan = make_plan(file)
    assert {work.rows for work in plan.work} == {10}
    assert not [work for work in plan.work if work.stage in {"sample", "hidden"}]
    text = as_text(plan)
    assert "not known before" in text and "GPU-hours of work" not in text


def test_own_questions_are_planned_as_requested(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text("")
    text = (
        "models: [qwen2.5-3b-instruct]\ndatasets: [{kind: jsonl, path: q.jsonl, n_train: 30, n_test: 20}]\n"
    )
    plan = make_plan(study(tmp_path, text))
    assert count_questions(plan) == {"q": 50}
    assert "planned as requested" in as_text(plan)


def test_an_image_data_set_for_a_text_model_is_said(tmp_path: Path) -> None:
    plan = make_plan(study(tmp_path, "models: [qwen2.5-3b-instruct]\ndatasets: [{kind: ok-vqa}]\n"))
    assert "no rule of image tokens" in as_text(plan)


def test_rates_and_study_are_overridden_by_one_option() -> None:
    file = STUDIES / "quickstart.yaml"
    plan = make_plan(file, ["sampling.n=5", "rates.cpu.decode_tokens_per_s=100"])
    assert plan.study.sampling.n == 5
    assert plan.rates.cpu.decode_tokens_per_s == 100


def test_less_than_one_gpu_is_refused() -> None:
    with pytest.raises(UsageError, match="--gpus 0"):
        make_plan(STUDIES / "quickstart.yaml", gpus=0)


def test_gpus_that_do_not_hold_one_actor_are_refused() -> None:
    with pytest.raises(UsageError, match=r"--gpus 2: one actor of judge llama-3.* needs 4 GPUs, there are 2"):
        make_plan(STUDIES / "paper.yaml", gpus=2)


def test_weights_that_do_not_fit_are_named(paper: CostPlan) -> None:
    small = plan_paper("rates.gpu.memory_gib=24")
    assert "judge llama-3.1-70b-instruct: 33 GiB of weights a GPU do not fit into 24 GiB" in as_text(small)
    assert "do not fit" not in as_text(paper)


def test_the_cost_is_that_of_all_gpus_until_the_last_row() -> None:
    total = json.loads(as_json(plan_paper("rates.gpu.usd_per_gpu_hour=2")))["total"]["rows"][0]
    held = total["GPU-hours held"]
    assert held == pytest.approx(8 * total["wall time"] / 60)
    assert total["cost"] == pytest.approx(2 * held)
    assert total["GPU-hours of work"] == pytest.approx(held * total["use"])


def test_the_best_buy_is_the_most_gpus_at_work_for_four_fifths_of_the_time(paper: CostPlan) -> None:
    best = paper.best_buy
    assert best and best.gpus == 16 and best.use >= 0.8
    assert all(offer.use < 0.8 for offer in paper.offers if offer.gpus > best.gpus)
    assert min(offer.gpus for offer in paper.offers) == 4  # of the 70B judge


def test_the_text_fits_a_page_and_has_shelves_bound_and_best_buy(paper: CostPlan) -> None:
    lines = as_text(paper).splitlines()
    assert max(map(len, lines)) <= 100 and len(lines) < 60 and as_text(paper).isascii()
    assert [line for line in lines if line.isupper()] == ["TOTAL", "SHELVES", "GPUS", "NEEDS"]
    assert len([line for line in lines if line.split()[2:4] == ["judge", "llama-3.1-70b-instruct"]]) == 1
    assert any(line.startswith("at least") for line in lines)
    assert [line.split()[0] for line in lines if line.endswith("best buy")] == ["16"]


def test_json_holds_the_tables_unrounded(paper: CostPlan) -> None:
    content = json.loads(as_json(paper))
    assert content["total"]["rows"][0]["wall time"] == paper.chosen.wall
    assert [row["GPUs"] for row in content["gpus"]["rows"] if row[""]] == [16]
    assert len(content["work"]) == len(paper.work)
    assert (
        len(content["shelves"]["rows"]) == len(paper.pools) and content["shelves"]["rows"][-1]["shelf"] == 7
    )


def test_a_model_of_a_server_is_planned_in_tokens_and_at_its_price_without_a_gpu(tmp_path: Path) -> None:
    model = "{name: mini, engine: openai, model: gpt-4o-mini, price: {input: 1.0, output: 10.0}}"
    plan = make_plan(study(tmp_path, f"models: [{model}]\ndatasets: [{{kind: popqa}}]\n"))
    work = next(work for work in plan.work if work.stage == "sample")
    assert work.hours == 0 and plan.best_buy is None and work.tokens_out > 0
    usd = (work.tokens_in + 10 * work.tokens_out) / 1e6
    assert f"${usd:,.2f}" in as_text(plan)
    assert json.loads(as_json(plan))["servers"]["rows"][0]["price"] == pytest.approx(usd)


def test_what_a_run_has_measured_counts_before_the_rates(tmp_path: Path, paper: CostPlan) -> None:
    pool = paper.pools[0]
    asked = sum(step.rows for step in paper.work if step.pool == pool.name)
    busy = 2 * pool.work * 60 * 100 / asked  # of 100 rows: twice as long for a row
    record = vars(PoolRecord(pool.stage, pool.engine, 6, 100, 3, pool.gpus, 4, 480.0, busy, 1, 60.0))
    (tmp_path / "run.json").write_text(json.dumps({"study": {}, "pools": [record]}))
    first, *others = plan_paper(rates=tmp_path / "run.json").pools
    assert first.work == pytest.approx(2 * pool.work) and first.start == 2.0
    assert others == paper.pools[1:]
    # On a CPU it would not say how fast a GPU is.
    (tmp_path / "run.json").write_text(json.dumps({"pools": [record | {"gpus": 0}]}))
    assert plan_paper(rates=tmp_path / "run.json").pools == paper.pools


def test_a_run_is_given_pace_and_expectation_by_its_plan(tmp_path: Path) -> None:
    study = load_study(STUDIES / "paper_text.yaml", ["resources.device=cuda", "resources.gpus=8"])
    run = Run(study, tmp_path, Progress())
    follow_plan(run)
    planned = make_plan(STUDIES / "paper_text.yaml", ["resources.device=cuda"], gpus=8)
    assert sum(run.progress.expected.values()) == pytest.approx(planned.chosen.wall * 60)
    assert run.progress.expected.keys() == {step.pool for step in planned.work if step.hours}
