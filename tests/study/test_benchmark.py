from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from sgpu.engines.base import ENGINES
from sgpu.entailment.base import BACKENDS
from sgpu.errors import UsageError
from sgpu.gp.kernels import KERNELS
from sgpu.judges.base import JUDGES
from sgpu.registry import Registry
from sgpu.report.study.published import read_published_table
from sgpu.study.benchmark import Cell, Study, load_study
from sgpu.study.data_specs import JudgeSpec

GOOD = "models: [smollm2-135m-instruct]\ndatasets: [{kind: worldfacts}]\n"


def _write(folder: Path, text: str | bytes) -> Path:
    path = folder / "my study.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def _named(folder: Path, text: str) -> Path:
    return _write(folder, "name: s\n" + text)


def test_a_short_study_gets_the_papers_defaults(tmp_path: Path) -> None:
    study = load_study(_named(tmp_path, GOOD))
    assert (study.sampling.n, study.sampling.temperature) == (20, 1.0)
    assert (study.sampling.top_p, study.sampling.top_k) == (0.9, 50)
    assert study.classifier.kernel == "matern15"
    assert study.cells() == [Cell("smollm2-135m-instruct", "worldfacts")]


def test_given_responses_need_nothing_but_a_path(tmp_path: Path) -> None:
    study = load_study(_named(tmp_path, "datasets: [{kind: responses, path: a.b.jsonl, model: m}]"))
    dataset = study.datasets[0]
    assert dataset.name == "a"
    assert dataset.path == tmp_path / "a.b.jsonl"  # type: ignore[union-attr]
    assert study.cells() == [Cell("m", "a")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "sampling: {temprature: 1}", r"sampling\.temprature: unknown key.*'temperature'"),
        (GOOD + "sampler: {n: 3}", r"sampler: unknown key.*'sampling'"),
        ("datasets: [{kind: worldfacts, n_trian: 3}]\nmodels: [m]", r"n_trian: unknown key.*'n_train'"),
        ("datasets: [{kind: worldfact}]\nmodels: [m]", "worldfact"),
        (GOOD + "sampling: {n: 1}", r"sampling\.n:.*greater than or equal to 2.*got 1"),
        (GOOD + "sampling: {prompt: hello}", r"placeholder \{question\}"),
        (GOOD + "judge: {name: llm}", "needs `model`"),
        ("datasets: [{kind: worldfacts}]", "`models` is empty"),
        ("datasets: []\nmodels: [m]", "datasets"),
        ("datasets: [{kind: worldfacts}, {kind: worldfacts}]\nmodels: [m]", "stand twice"),
        ("models: [a/b]\ndatasets: [{kind: worldfacts}]", "letters, digits"),
        (GOOD + "sensitivity: {cells: [smollm2-135m-instruct/worldfact]}", "Did you mean '.*/worldfacts'"),
        (GOOD + "sensitivity: {cells: {encoder: []}}", "'encoders'"),
        ("[1, 2]", "must be a mapping"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_bad_study_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    prefix = "" if text[0] in "[a" else "name: s\n"
    with pytest.raises(UsageError, match=message):
        load_study(_write(tmp_path, prefix + text))


@pytest.mark.parametrize(
    ("registry", "text"),
    [
        (JUDGES, "judge: {name: house}"),
        (JUDGES, "judge: {agreement: {judge: house}}"),
        (ENGINES, "models: [{name: m, engine: house}]"),
        (BACKENDS, "entailment: {backend: house}"),
        (KERNELS, "classifier: {kernel: house}"),
        (KERNELS, "sensitivity: {kernels: [rbf, house]}"),
    ],
)
def test_what_is_registered_may_be_named_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: Registry, text: str
) -> None:
    models = "" if "models" in text else "models: [m]\n"
    path = _named(tmp_path, f"{models}datasets: [{{kind: worldfacts}}]\n{text}\n")
    with pytest.raises(UsageError, match=f"unknown {registry.kind} 'house'.*Known: {registry.names()[0]}"):
        load_study(path)
    monkeypatch.setitem(registry._entries, "house", "house.of:Cards")
    load_study(path)


def test_a_misspelt_name_of_what_is_registered_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"judge\.name: unknown judge 'alais'\. Did you mean 'alias'\?"):
        load_study(_write(tmp_path, GOOD + "judge: {name: alais}"))


def test_the_schema_of_a_study_lists_what_is_registered() -> None:
    assert Study.model_json_schema()["$defs"]["JudgeSpec"]["properties"]["name"]["enum"] == JUDGES.names()


def test_a_study_that_is_not_utf8_is_refused_with_its_position(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not UTF-8 \(byte 6"):
        load_study(_write(tmp_path, b"name: \xff\n"))


def test_a_missing_study_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing\.yaml does not exist"):
        load_study(tmp_path / "nothing.yaml")


def test_no_python_object_is_made_from_yaml(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not YAML"):
        load_study(_write(tmp_path, "name: !!python/object/apply:os.system ['true']\n"))


def test_overrides_reach_nested_keys_and_list_items(tmp_path: Path) -> None:
    path = _named(tmp_path, GOOD)
    study = load_study(path, ["sampling.n=5", "datasets.0.n_train=7", "methods=[sgpu]"])
    assert study.sampling.n == 5
    assert study.datasets[0].n_train == 7  # type: ignore[union-attr]
    assert study.methods == ["sgpu"]


@pytest.mark.parametrize("override", ["sampling.n", "=3", "datasets.9.n_train=1", "datasets.x.n_train=1"])
def test_an_override_that_leads_nowhere_is_refused(tmp_path: Path, override: str) -> None:
    with pytest.raises(UsageError, match="--set"):
        load_study(_named(tmp_path, GOOD), [override])


def test_the_shipped_studies_are_valid() -> None:
    folder = Path(__file__).resolve().parents[2] / "pipelines" / "studies"
    benchmarks = [path for path in sorted(folder.glob("*.yaml")) if "transfer" not in path.stem]
    names = [load_study(path).name for path in benchmarks]
    assert {"quickstart", "quickstart-full"} <= set(names)


def test_the_first_look_is_smaller_than_the_full_study_but_tests_as_much() -> None:
    folder = Path(__file__).resolve().parents[2] / "pipelines" / "studies"
    look, full = (load_study(folder / f"{name}.yaml") for name in ("quickstart", "quickstart_full"))
    assert look.methods == full.methods and len(full.methods) == 15
    assert look.datasets[0].n_test >= full.datasets[0].n_test == 240
    assert (look.sampling.n, full.sampling.n) == (10, 20)
    for study in (look, full):
        assert study.sensitivity.n_answers and max(study.sensitivity.n_answers) < study.sampling.n
    # A second language model would be one more engine to start.
    assert not look.judge.agreement and not look.sensitivity.embedding_sets


def test_the_ablations_are_the_papers_and_change_nothing_else() -> None:
    folder = Path(__file__).resolve().parents[2] / "pipelines" / "studies"
    paper, ablations = (load_study(folder / f"{name}.yaml") for name in ("paper", "paper_ablations"))
    added = {"sensitivity": True, "judge": {"agreement"}}
    assert ablations.model_dump(exclude=added) == paper.model_dump(exclude=added)
    assert {other.sample for other in ablations.judge.agreement} == {max(d.n_test for d in paper.datasets)}  # type: ignore[union-attr]
    spec, encoders = ablations.sensitivity, read_published_table("encoders")["encoder"].to_list()
    assert [ablations.encoder.name, *spec.encoders] == encoders
    printed = [
        read_published_table(name)[size].cast(int, strict=False).drop_nulls().sort().to_list()
        for name, size in (("n_samples", "n_samples"), ("train_size", "n_train"))
    ]
    assert [[*spec.n_answers, ablations.sampling.n], spec.train_sizes] == printed
    assert len(spec.kernels) == len(read_published_table("kernels"))


@pytest.mark.parametrize(
    ("agreement", "said"),
    [
        ([{"judge": "numeric"}, {"judge": "numeric"}], "one of them twice"),
        ({"judge": "alias"}, "that is the study's"),
        (
            [{"judge": "numeric", "sample": 5}, {"judge": "llm", "model": "m", "sample": 6}],
            "several `sample`",
        ),
        ([{"judge": "llm"}], "needs `model`"),
    ],
)
def test_further_judges_that_cannot_be_compared_are_refused(agreement: object, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        JudgeSpec.model_validate({"name": "alias", "agreement": agreement})


def test_one_further_judge_needs_no_list() -> None:
    (other,) = JudgeSpec.model_validate({"agreement": {"judge": "numeric", "sample": 7}}).agreement
    assert (other.judge, other.sample) == ("numeric", 7)


@pytest.mark.parametrize(
    ("changes", "sizes"),
    [
        ({}, [2, 3, 5, 8, 10, 15]),
        ({"sampling": {"n": 8}}, [2, 3, 5]),
        ({"classifier": {"other_n": "none"}}, []),
        ({"methods": ["largest_eigenvalue"]}, []),
        ({"classifier": {"sizes": [4]}, "sensitivity": {"n_answers": [6, 40]}}, [4, 6]),
    ],
)
def test_spectra_of_fewer_answers_are_made_where_something_asks_for_them(
    changes: dict[str, object], sizes: list[int]
) -> None:
    study = Study.model_validate(
        {"models": ["m"], "datasets": [{"kind": "worldfacts", "name": "d"}], **changes}
    )
    assert study.smaller_sizes(study.sampling.n) == sizes


def test_a_wrong_key_is_named_as_set_takes_it_and_each_error_stands_once(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "models: [m]\nsampling: {n: 1}\n"
        "datasets: [{kind: worldfacts, n_trian: 3}, {kind: gsm8k}, {kind: responses, pth: x}]\n"
    )
    with pytest.raises(UsageError) as caught:
        load_study(path)
    lines = [line.strip().partition(": ")[0] for line in str(caught.value).splitlines()[1:]]
    assert lines == ["datasets.0.n_trian", "datasets.2.path", "datasets.2.pth", "sampling.n"]
    with pytest.raises(UsageError, match=r"datasets\.0\.n_train: .*valid integer"):
        load_study(path, ["datasets.0.n_train=many"])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("{name: m, model: x}", "`model` belongs to engine 'openai'"),
        ("{name: m, engine: vllm, options: {top_k: true}}", "`options` belongs to engine 'openai'"),
        ("{name: m, engine: openai, options: {topk: true}}", "Did you mean 'top_k'"),
        ("{name: m, engine: openai}", "`budget.usd` needs the `price` of model m"),
    ],
)
def test_what_only_a_server_takes_is_checked(tmp_path: Path, model: str, words: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(f"models: [{model}]\ndatasets: [{{kind: popqa}}]\nbudget: {{usd: 1}}\n")
    with pytest.raises(UsageError, match=words):
        load_study(path)
