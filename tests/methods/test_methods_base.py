import subprocess
import sys

import numpy as np
import pytest

from sgpu.methods import METHODS, CellFeatures, Method, TrainedMethod, all_methods

FREE = sorted(name for name, method in all_methods().items() if isinstance(method, Method))


def cell(q=6, n=5):
    rng = np.random.default_rng(3)
    eigenvalues = np.sort(rng.dirichlet(np.ones(n), size=q) * n, axis=1)[:, ::-1]
    return CellFeatures(
        question_ids=[f"q{i}" for i in range(q)],
        answers=[[f"answer {rng.integers(3)}" for _ in range(n)] for _ in range(q)],
        token_logprobs=[
            [list(-rng.exponential(size=rng.integers(1, 6))) for _ in range(n)] for _ in range(q)
        ],
        eigenvalues=eigenvalues,
    )


def pick(features, rows):
    return CellFeatures(
        [features.question_ids[i] for i in rows],
        [features.answers[i] for i in rows],
        [features.token_logprobs[i] for i in rows],
        features.eigenvalues[rows],
    )


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
        [[[-0.01], [-0.02]], [[-3.0], [-2.0]]],
        np.array([[2.0, 0.0], [1.1, 0.9]]),
    )
    sure, unsure = METHODS.get(name).confidence(features)
    assert sure > unsure


def test_methods_import_no_heavy_library():
    heavy = {"torch", "ray", "vllm", "transformers", "mlflow", "dagster", "sklearn"}
    code = f"import sys, sgpu.methods; print(*sorted({heavy!r} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "\n"
    )
