"""From a study file to a plan, and to text and JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from sgpu.errors import UsageError
from sgpu.plan.plan import CostPlan, make_plan, plan_of
from sgpu.plan.rates import load_rates
from sgpu.plan.tables import as_json, origin, plain_text, sections, show_plan
from tests.plan.paper_grid import paper_study

STUDIES = Path(__file__).resolve().parents[2] / "pipelines" / "studies"


def study(folder: Path, text: str) -> Path:
    file = folder / "s.yaml"
    file.write_text(text)
    return file


@pytest.fixture(scope="module")
def paper() -> CostPlan:
    return make_plan(STUDIES / "paper.yaml", ["datasets.3.path=vizwiz"])


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
    said = next(section for section in sections(plan, verbose=False) if section.title == "Needs").notes
    assert [note for note in said if "vizwiz" in note] and all(len(note) <= 140 for note in said)


def test_the_paper_study_has_24_cells_at_granted_sizes(paper: CostPlan) -> None:
    cells = paper.study.cells
    assert len(cells) == 24
    assert sum(cell.requested.total for cell in cells if cell.requested) == 266_000
    # 46,262 and 18,376 of each of four models
    assert sum(cell.questions for cell in cells) == 4 * (46_262 + 18_376)


def test_the_paper_study_labels_train_and_test_by_two_judges(paper: CostPlan) -> None:
    votes = {(work.model, work.part): 0.0 for work in paper.work if work.stage == "judge"}
    for work in paper.work:
        if work.stage == "judge":
            votes[work.model, work.part] += work.before_distinct
    assert votes["llama-3.1-8b-instruct", "train"] == 4 * 46_262 * 20
    assert votes["llama-3.1-70b-instruct", "test"] == 4 * 18_376 * 20


def test_the_paper_study_costs_what_was_published_without_the_guard() -> None:
    plan = make_plan(STUDIES / "paper.yaml", ["judge.guard=false"])
    assert [hours for _, hours in plan.scenarios] == pytest.approx([36, 16, 11], rel=0.2)


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
    assert plan.gpu_hours == 0
    assert 1 < plan.cpu_hours * 60 * plan.study.cores / 2 < 30
    assert "GPU-hours of work" not in plain_text(plan)


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
    assert "taken from the size of its weights" in plain_text(plan)


def test_given_answers_are_counted_and_the_rest_is_said_to_be_unknown(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"question_id": "q"}\n' * 10)
    file = study(tmp_path, "datasets: [{kind: responses, path: a.jsonl, n: 10}]\n")
    plan = make_plan(file)
    (cell,) = plan.study.cells
    assert cell.granted and (cell.granted.train, cell.granted.test) == (6, 4)
    assert not [work for work in plan.work if work.stage in {"sample", "hidden"}]
    text = plain_text(plan)
    assert "not known" in text and "GPU-hours of work" not in text


def test_given_answers_that_cannot_be_counted_are_not_planned(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(b"")
    plan = make_plan(study(tmp_path, "datasets: [{kind: responses, path: a.jsonl.gz}]\n"))
    assert plan.work == () and "counted when it is read" in plain_text(plan)


def test_own_questions_are_planned_as_requested(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text("")
    text = (
        "models: [qwen2.5-3b-instruct]\ndatasets: [{kind: jsonl, path: q.jsonl, n_train: 30, n_test: 20}]\n"
    )
    plan = make_plan(study(tmp_path, text))
    assert plan.study.cells[0].questions == 50
    assert "planned as requested" in plain_text(plan)


def test_an_image_data_set_for_a_text_model_is_said(tmp_path: Path) -> None:
    plan = make_plan(study(tmp_path, "models: [qwen2.5-3b-instruct]\ndatasets: [{kind: ok-vqa}]\n"))
    assert "no rule of image tokens" in plain_text(plan)


def test_rates_and_study_are_overridden_by_one_option() -> None:
    file = STUDIES / "quickstart.yaml"
    plan = make_plan(file, ["sampling.n=5", "rates.cpu.decode_tokens_per_s=100"])
    assert plan.study.cells[0].n == 5
    assert plan.rates.cpu.decode_tokens_per_s.origin == "given"


def test_less_than_one_gpu_is_refused() -> None:
    with pytest.raises(UsageError, match="--gpus 0"):
        make_plan(STUDIES / "quickstart.yaml", gpus=0)


def test_the_cost_is_work_and_starts_at_the_price() -> None:
    plan = plan_of(paper_study(), load_rates(None, ["rates.gpu.usd_per_gpu_hour=2"]), 8)
    assert plan.usd == pytest.approx(2 * (plan.gpu_hours + plan.start_gpu_hours))


def test_what_rests_on_a_guess_is_a_guess() -> None:
    rates = load_rates()
    assert origin(rates, ["gpu.peak_flops", "vllm.flops_share"]) == "guess"
    assert origin(rates, ["gpu.peak_flops", "cpu.decode_tokens_per_s"]) == "derived"


def test_text_names_requested_and_granted_sizes(paper: CostPlan) -> None:
    line = next(line for line in plain_text(paper).splitlines() if line.startswith("imagenette"))
    assert line.split()[1:5] == ["10,000", "9,469", "5,000", "3,925"]


def test_every_rate_in_the_text_has_its_origin(paper: CostPlan) -> None:
    text = plain_text(paper).split("RATES\n")[1]
    lines = [line for line in text.splitlines()[1:] if "." in line.split(" ")[0]]
    assert len(lines) > 10
    assert all({"measured", "published", "derived", "guess"} & set(line.split()) for line in lines)


def test_a_stream_that_is_no_terminal_gets_plain_text(paper: CostPlan) -> None:
    stream = io.StringIO()
    show_plan(paper, Console(file=stream))
    assert stream.getvalue() == plain_text(paper)
    assert stream.getvalue().isascii()


def test_the_totals_come_first_and_alone_fit_a_terminal(paper: CostPlan) -> None:
    assert plain_text(paper).splitlines()[3] == "TOTAL"
    stream = io.StringIO()
    show_plan(paper, Console(file=stream, width=80), verbose=False)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) < 30
    assert any(line.startswith("cost at") for line in lines) and "--verbose" in lines[-1]


def test_a_terminal_gets_the_same_numbers(paper: CostPlan) -> None:
    stream = io.StringIO()
    show_plan(paper, Console(file=stream, force_terminal=True, width=250))
    assert "9,469" in stream.getvalue() and "\x1b[" in stream.getvalue()


def test_json_holds_the_totals_unrounded(paper: CostPlan) -> None:
    content = json.loads(as_json(paper))
    assert content["total"]["gpu_hours"] == paper.gpu_hours
    assert len(content["cells"]) == 24 and len(content["work"]) == len(paper.work)
    assert {work["is"] for work in content["work"] if work["hours"]} == {"guess"}


def test_a_model_of_a_server_is_planned_in_tokens_and_at_its_price_without_a_gpu(tmp_path: Path) -> None:
    model = "{name: mini, engine: openai, model: gpt-4o-mini, price: {input: 1.0, output: 10.0}}"
    made = make_plan(study(tmp_path, f"models: [{model}]\ndatasets: [{{kind: popqa}}]\n"))
    work = next(work for work in made.work if work.stage == "sample")
    assert made.gpu_hours == 0 and work.tokens_out > 0
    price = f"${(work.tokens_in + 10 * work.tokens_out) / 1e6:,.2f}"
    assert price in plain_text(made)
