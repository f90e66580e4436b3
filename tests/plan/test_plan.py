"""From a study file to a plan, and to text and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgpu.errors import UsageError
from sgpu.plan.plan import CostPlan, follow_plan, make_plan, plan_of
from sgpu.plan.rates import load_rates
from sgpu.plan.tables import as_json, as_text
from sgpu.runtime.progress import Progress
from sgpu.runtime.runner import PoolRecord
from sgpu.stages.run import Run
from sgpu.study.benchmark import load_study
from tests.plan.paper_grid import paper_study

STUDIES = Path(__file__).resolve().parents[2] / "pipelines" / "studies"


def study(folder: Path, text: str) -> Path:
    file = folder / "s.yaml"
    file.write_text(text)
    return file


def plan_paper(rates: Path | None = None) -> CostPlan:
    return make_plan(STUDIES / "paper.yaml", ["datasets.3.path=vizwiz"], rates)


@pytest.fixture(scope="module")
def paper() -> CostPlan:
    return plan_paper()


def test_the_paper_study_says_its_disk_and_what_is_missing(paper: CostPlan) -> None:
    # By hand: float16, the middle and last layer of 20 answers, every layer of the first at three positions.
    shapes = [(36, 2048), (28, 3584), (32, 4096), (32, 4096)]
    size = sum(2 * dim * (2 * 20 + (layers + 1) * 3) for layers, dim in shapes) * 64_638
    assert paper.study.hidden_gb == pytest.approx(size / 1e9) == pytest.approx(246, abs=0.1)
    assert paper.study.weights_gb == pytest.approx(420, abs=1)
    assert any("'advqa' has no copy on the Hub" in what for what in paper.study.missing)
    assert not any("vizwiz" in what for what in paper.study.missing)


def test_without_its_raw_files_vizwiz_is_planned_as_the_hub_has_it() -> None:
    plan = make_plan(STUDIES / "paper.yaml")
    sizes = {cell.dataset: cell.granted for cell in plan.study.cells}["vizwiz"]
    assert sizes is not None and (sizes.train, sizes.test) == (2_319, 2_000)
    assert "vizwiz: 2,319 + 2,000 questions of 10,000 + 2,000." in as_text(plan)


def test_the_paper_study_has_24_cells_at_granted_sizes(paper: CostPlan) -> None:
    cells = paper.study.cells
    assert len(cells) == 24
    assert sum(cell.requested.total for cell in cells if cell.requested) == 266_000
    # 46,262 and 18,376 of each of four models
    assert sum(cell.questions for cell in cells) == 4 * (46_262 + 18_376)


def test_the_paper_study_labels_train_and_test_by_two_judges(paper: CostPlan) -> None:
    rows = dict.fromkeys(("llama-3.1-8b-instruct", "llama-3.1-70b-instruct", "qwen2.5-32b-instruct"), 0)
    for work in paper.work:
        if work.stage == "judge" and work.engine in rows:
            rows[work.engine] += work.rows
    assert list(rows.values()) == [4 * 46_262, 4 * 18_376, 4 * (5 * 500 + 451)]


def test_the_text_study_has_gsm8k_with_validation_questions_only() -> None:
    plan = make_plan(STUDIES / "paper_text.yaml")
    sizes = {cell.dataset: cell.granted for cell in plan.study.cells}
    assert len(plan.study.cells) == 6
    assert [
        (sizes[name].train, sizes[name].test) for name in ("triviaqa", "popqa", "gsm8k") if sizes[name]
    ] == [
        (10_000, 1_000),
        (10_000, 1_000),
        (500, 1_319),
    ]


def test_the_embedded_study_is_planned_in_minutes_of_a_cpu() -> None:
    plan = make_plan(STUDIES / "quickstart.yaml", ["rates.cpu.start_minutes=0.5"])
    assert plan.study.on_cpu and plan.best_buy is None and plan.usd(plan.chosen) == 0
    assert 1 < plan.chosen.wall * plan.study.cores / 2 < 30
    assert [len(shelf.pools) for shelf in plan.chosen.shelves] == [1] * len(plan.pools)
    assert "GPU-hours of work" not in as_text(plan) and "minutes on" in as_text(plan)


def test_a_local_folder_of_weights_is_planned_from_its_size(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with (folder / "model.safetensors").open("wb") as weights:
        weights.truncate(2**30)  # sparse
    file = study(tmp_path, f"models: [{{name: own, card: {folder}}}]\ndatasets: [{{kind: worldfacts}}]\n")
    plan = make_plan(file)
    # 2 ** 30 bytes, two a parameter
    assert plan.study.cells[0].model.parameters == pytest.approx(0.537, abs=1e-3)
    assert "taken from the size of its weights" in as_text(plan)


def test_given_answers_are_counted_and_the_rest_is_said_to_be_unknown(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"question_id": "q"}\n' * 10)
    file = study(tmp_path, "datasets: [{kind: responses, path: a.jsonl, n: 10}]\n")
    plan = make_plan(file)
    (cell,) = plan.study.cells
    assert cell.granted and (cell.granted.train, cell.granted.test) == (6, 4)
    assert not [work for work in plan.work if work.stage in {"sample", "hidden"}]
    text = as_text(plan)
    assert "not known" in text and "GPU-hours of work" not in text


def test_given_answers_that_cannot_be_counted_are_not_planned(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(b"")
    plan = make_plan(study(tmp_path, "datasets: [{kind: responses, path: a.jsonl.gz}]\n"))
    assert plan.work == () and plan.pools == () and "counted when it is read" in as_text(plan)


def test_own_questions_are_planned_as_requested(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text("")
    text = (
        "models: [qwen2.5-3b-instruct]\ndatasets: [{kind: jsonl, path: q.jsonl, n_train: 30, n_test: 20}]\n"
    )
    plan = make_plan(study(tmp_path, text))
    assert plan.study.cells[0].questions == 50
    assert "planned as requested" in as_text(plan)


def test_an_image_data_set_for_a_text_model_is_said(tmp_path: Path) -> None:
    plan = make_plan(study(tmp_path, "models: [qwen2.5-3b-instruct]\ndatasets: [{kind: ok-vqa}]\n"))
    assert "no rule of image tokens" in as_text(plan)


def test_rates_and_study_are_overridden_by_one_option() -> None:
    file = STUDIES / "quickstart.yaml"
    plan = make_plan(file, ["sampling.n=5", "rates.cpu.decode_tokens_per_s=100"])
    assert plan.study.cells[0].n == 5
    assert plan.rates.cpu.decode_tokens_per_s == 100


def test_less_than_one_gpu_is_refused() -> None:
    with pytest.raises(UsageError, match="--gpus 0"):
        make_plan(STUDIES / "quickstart.yaml", gpus=0)


def test_gpus_that_do_not_hold_one_actor_are_refused() -> None:
    with pytest.raises(UsageError, match=r"--gpus 2: one actor of judge llama-3.* needs 4 GPUs, there are 2"):
        make_plan(STUDIES / "paper.yaml", gpus=2)


def test_weights_that_do_not_fit_are_named(paper: CostPlan) -> None:
    small = plan_of(paper.study, load_rates(None, ["rates.gpu.memory_gib=24"]), 8)
    assert "judge llama-3.1-70b-instruct: 33 GiB of weights a GPU do not fit into 24 GiB" in as_text(small)
    assert "do not fit" not in as_text(paper)


def test_the_cost_is_that_of_all_gpus_until_the_last_row() -> None:
    plan = plan_of(paper_study(), load_rates(None, ["rates.gpu.usd_per_gpu_hour=2"]), 8)
    assert plan.usd(plan.chosen) == pytest.approx(2 * 8 * plan.chosen.wall / 60)
    assert plan.work_hours == pytest.approx(plan.chosen.use * plan.chosen.held_hours)


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


def test_json_holds_the_totals_unrounded(paper: CostPlan) -> None:
    content = json.loads(as_json(paper))
    assert content["total"]["held_hours"] == paper.chosen.held_hours
    assert content["total"]["best_buy_gpus"] == 16
    assert len(content["study"]["cells"]) == 24 and len(content["work"]) == len(paper.work)
    assert len(content["pools"]) == len(paper.pools) and content["pools"][-1]["shelf"] == 7
    assert [offer["gpus"] for offer in content["offers"]] == [offer.gpus for offer in paper.offers]


def test_a_model_of_a_server_is_planned_in_tokens_and_at_its_price_without_a_gpu(tmp_path: Path) -> None:
    model = "{name: mini, engine: openai, model: gpt-4o-mini, price: {input: 1.0, output: 10.0}}"
    plan = make_plan(study(tmp_path, f"models: [{model}]\ndatasets: [{{kind: popqa}}]\n"))
    work = next(work for work in plan.work if work.stage == "sample")
    assert work.hours == 0 and plan.best_buy is None and work.tokens_out > 0
    usd = (work.tokens_in + 10 * work.tokens_out) / 1e6
    assert f"${usd:,.2f}" in as_text(plan)
    assert json.loads(as_json(plan))["served"][0]["usd"] == pytest.approx(usd)


def test_what_a_run_has_measured_counts_before_the_rates(tmp_path: Path, paper: CostPlan) -> None:
    pool = paper.pools[0]
    asked = sum(step.rows for step in paper.work if step.pool == pool.name)
    busy = 2 * pool.work * 60 * 100 / asked  # of 100 rows: twice as long for a row
    record = vars(PoolRecord(pool.stage, pool.engine, 6, 100, 3, pool.gpus, 4, 480.0, busy, 1, 60.0))
    (tmp_path / "run.json").write_text(json.dumps({"study": {}, "pools": [record]}))
    first, *others = make_plan(
        STUDIES / "paper.yaml", ["datasets.3.path=vizwiz"], tmp_path / "run.json"
    ).pools
    assert first.work == pytest.approx(2 * pool.work) and first.start == 2.0
    assert others == list(paper.pools[1:])
    # On a CPU it would not say how fast a GPU is.
    (tmp_path / "run.json").write_text(json.dumps({"pools": [record | {"gpus": 0}]}))
    assert plan_paper(tmp_path / "run.json").pools == paper.pools


def test_a_run_is_given_pace_and_expectation_by_its_plan(tmp_path: Path) -> None:
    study = load_study(STUDIES / "paper_text.yaml", ["resources.device=cuda", "resources.gpus=8"])
    run = Run(study, tmp_path, Progress())
    follow_plan(run)
    planned = make_plan(STUDIES / "paper_text.yaml", ["resources.device=cuda"], gpus=8)
    assert sum(run.progress.expected.values()) == pytest.approx(planned.chosen.wall * 60)
    assert run.progress.expected.keys() == {step.pool for step in planned.work if step.hours}
