import pkgutil
import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import pytest

import sgpu.methods
from sgpu.methods.base import METHODS, CellFeatures, Method, TrainedMethod, all_methods
from sgpu.methods.clustering import entailment_clusters
from sgpu.spectrum import expand

FREE = sorted(name for name, method in all_methods().items() if isinstance(method, Method))
OF_LOGPROBS = [name for name in FREE if "token_logprobs" in METHODS.get(name).needs]


def cell(q=6, n=5):
    rng = np.random.default_rng(3)
    eigenvalues = np.sort(rng.dirichlet(np.ones(n), size=q) * n, axis=1)[:, ::-1]
    entail, contradict, _ = rng.dirichlet([1, 1, 1], size=(q, n, n)).transpose(3, 0, 1, 2)
    return CellFeatures(
        question_ids=[f"q{i}" for i in range(q)],
        answers=[[f"answer {rng.integers(3)}" for _ in range(n)] for _ in range(q)],
        token_logprobs=[
            [list(-rng.exponential(size=rng.integers(1, 6))) for _ in range(n)] for _ in range(q)
        ],
        questions=["Which answer?"] * q,
        choices=[[]] * q,
        eigenvalues=eigenvalues,
        similarities=expand(rng.uniform(size=(q, n * (n - 1) // 2)), n),
        entail=entail,
        contradict=contradict,
        clusters=entailment_clusters(entail, contradict),
        last_hidden=rng.normal(size=(q, n, 16)),
        middle_hidden=rng.normal(size=(q, n, 16)),
        layer_hidden=rng.normal(size=(q, 3, 16)),
    )


def pick(features, rows):
    def chosen(column):
        return column[rows] if isinstance(column, np.ndarray) else [column[i] for i in rows]

    return CellFeatures(**{field.name: chosen(getattr(features, field.name)) for field in fields(features)})


def test_every_method_carries_the_name_that_it_is_registered_by():
    assert {name: method.name for name, method in all_methods().items()} == {n: n for n in METHODS.names()}


def test_sgpu_is_trained_and_the_rest_is_not():
    assert isinstance(METHODS.get("sgpu"), TrainedMethod)
    assert "sgpu" not in FREE


@pytest.mark.parametrize("name", FREE)
def test_gives_one_finite_confidence_a_question(name):
    confidence = METHODS.get(name).confidence(cell())
    assert confidence.shape == (6,)
    assert confidence.dtype == np.float64
    assert np.isfinite(confidence).all()


@pytest.mark.parametrize("name", FREE)
def test_rows_do_not_influence_one_another(name):
    rows = [4, 0, 2]
    features, method = cell(), METHODS.get(name)
    np.testing.assert_array_equal(method.confidence(pick(features, rows)), method.confidence(features)[rows])


@pytest.mark.parametrize("name", FREE)
def test_a_cell_of_no_questions_gives_no_confidences(name):
    assert METHODS.get(name).confidence(pick(cell(), [])).shape == (0,)


@pytest.mark.parametrize("name", FREE)
def test_confidence_is_higher_for_sure_than_for_unsure_answers(name):
    features = CellFeatures(
        ["sure", "unsure"],
        [["x", "x"], ["x", "y"]],
        token_logprobs=[[[-0.01], [-0.02]], [[-3.0], [-2.0]]],
        eigenvalues=np.array([[2.0, 0.0], [1.1, 0.9]]),
        questions=["Which?"] * 2,
        similarities=np.array([np.ones((2, 2)), np.eye(2)]),
        entail=np.array([np.ones((2, 2)), np.eye(2)]),
        contradict=np.array([np.zeros((2, 2)), 1 - np.eye(2)]),
        clusters=np.array([[0, 0], [0, 1]]),
        last_hidden=np.array([[[1.0, 0, 0, 0]] * 2, [[1.0, 0, 0, 0], [0, 1.0, 0, 0]]]),
        middle_hidden=np.array([[[1.0, 0, 0, 0]] * 2, [[1.0, 0, 0, 0], [0, 1.0, 0, 0]]]),
    )
    sure, unsure = METHODS.get(name).confidence(features)
    assert sure > unsure


@pytest.mark.parametrize("name", FREE)
@pytest.mark.parametrize("n", [1, 2, 11, 40])
def test_any_number_of_answers_is_scored(name, n):
    finite = np.isfinite(METHODS.get(name).confidence(cell(q=11, n=n)))
    assert finite.all() if n > 1 or "content" not in METHODS.get(name).needs else not finite.any()


@pytest.mark.parametrize("name", FREE)
def test_equal_response_sets_tie_to_the_last_bit(name):
    confidence = METHODS.get(name).confidence(pick(cell(), [3] * 11))
    assert len(np.unique(confidence)) == 1


@pytest.mark.parametrize("name", FREE)
def test_a_question_without_answers_is_missing_and_changes_no_other(name):
    whole, method = cell(), METHODS.get(name)
    gone = {
        field.name: np.where(np.arange(6).reshape(-1, *[1] * (column.ndim - 1)) == 2, missing, column)
        for field in fields(whole)
        if isinstance(column := getattr(whole, field.name), np.ndarray)
        for missing in [-1 if column.dtype == np.int64 else np.nan]
    }
    lists = {
        column: [[] if i == 2 else row for i, row in enumerate(getattr(whole, column))]
        for column in ("answers", "token_logprobs")
    }
    confidence = method.confidence(replace(whole, **gone, **lists))
    expected = method.confidence(whole)
    np.testing.assert_array_equal(confidence, np.where(np.arange(6) == 2, np.nan, expected))


@pytest.mark.parametrize("name", OF_LOGPROBS)
def test_an_impossible_answer_does_not_make_its_set_missing(name):
    whole, method = cell(), METHODS.get(name)
    impossible = [[[-np.inf], *answers[1:]] for answers in whole.token_logprobs]
    assert not np.isnan(method.confidence(replace(whole, token_logprobs=impossible))).any()


@pytest.mark.parametrize("name", OF_LOGPROBS)
def test_answers_without_tokens_are_missing_not_certain(name):
    silent = replace(cell(), token_logprobs=[[[]] * 5] * 6)
    assert np.isnan(METHODS.get(name).confidence(silent)).all()


def test_methods_import_no_heavy_library():
    heavy = {"torch", "ray", "vllm", "transformers", "mlflow", "dagster", "sklearn"}
    modules = [f"sgpu.methods.{found.name}" for found in pkgutil.iter_modules(sgpu.methods.__path__)]
    assert "sgpu.methods.umpire" in modules
    code = f"import sys, {', '.join(modules)}; print(*sorted({heavy!r} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "\n"
    )
