import numpy as np
import pytest

from sgpu.errors import DataError, UsageError
from sgpu.methods.base import METHODS, CellFeatures
from sgpu.methods.kernel_language_entropy import (
    METHOD,
    configure_kernel_language_entropy,
    kernel_language_entropy,
)


def everywhere(n, entail=0.0, contradict=0.0):
    """Every pair of N answers alike; of an answer to itself, entailment."""
    off = 1 - np.eye(n)
    return off * entail + np.eye(n), off * contradict


def halves(n, contradict):
    """Two halves that entail within; across, one class."""
    side = np.arange(n) < n // 2
    within = side[:, None] == side
    return within.astype(float), np.where(within, 0.0, contradict)


def random_relations(q, n, seed=0):
    entail, contradict, _ = (
        np.random.default_rng(seed).dirichlet([0.5, 0.5, 0.5], size=(q, n, n)).transpose(3, 0, 1, 2)
    )
    return entail, contradict


def plain(entail, contradict, t, weights, one_hot, normalised):
    """One response set, by eigenvectors of the Laplacian and loops; scaled."""
    n = len(entail)
    w = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            classes = np.array([entail[i, j], 1 - entail[i, j] - contradict[i, j], contradict[i, j]])
            if one_hot:
                classes = np.eye(3)[classes.argmax()]
            if i != j:
                w[i, j] += classes @ weights
                w[j, i] += classes @ weights
    laplacian = np.diag(w.sum(axis=1)) - w
    if normalised:
        laplacian = laplacian / np.sqrt(np.outer(w.sum(axis=1), w.sum(axis=1)))
    values, vectors = np.linalg.eigh(laplacian)
    kernel = vectors @ np.diag(np.exp(-t * values)) @ vectors.T
    density = kernel / np.sqrt(np.outer(np.diag(kernel), np.diag(kernel))) / n
    eigenvalues = [value for value in np.linalg.eigvalsh(density) if value > 1e-15]
    return -sum(value * np.log(value) for value in eigenvalues) / np.log(n)


@pytest.mark.parametrize(
    ("n", "t", "relation", "entropy"),
    [
        (5, 0.3, {"entail": 1.0}, 0.4224057584),
        (5, 0.3, {}, 0.8358917539),
        (5, 0.3, {"contradict": 1.0}, 1.0),
        (2, 0.3, {"entail": 1.0}, 0.7805740863),
        (5, 0.4, {"entail": 1.0}, 0.2135834421),
    ],
)
def test_matches_the_golden_values(n, t, relation, entropy):
    assert kernel_language_entropy(*everywhere(n, **relation), t) == pytest.approx(entropy, abs=5e-11)


@pytest.mark.parametrize(
    ("n", "t", "entropies"),
    [
        (10, 0.3, [0.0664, 0.5639, 1.0000, 0.5963, 0.2659]),
        (20, 0.1, [0.4444, 0.9056, 1.0000, 0.8639, 0.7228]),
        (20, 0.3, [0.0005, 0.1054, 1.0000, 0.2824, 0.0131]),
        (20, 0.4, [0.0000, 0.0190, 1.0000, 0.2404, 0.0015]),
    ],
)
def test_matches_the_table_of_constructed_graphs(n, t, entropies):
    graphs = [
        everywhere(n, entail=1.0),
        everywhere(n),
        everywhere(n, contradict=1.0),
        halves(n, contradict=1.0),
        halves(n, contradict=0.0),
    ]
    entail, contradict = (np.stack(side) for side in zip(*graphs, strict=True))
    np.testing.assert_allclose(kernel_language_entropy(entail, contradict, t), entropies, atol=5.1e-5)


def test_two_answers_have_the_closed_form():
    # L = w [[1, -1], [-1, 1]]: the kernel is [[1 + e, 1 - e], [1 - e, 1 + e]] / 2 with e = exp(-2 t w).
    t, w = 0.2, 1.5
    p = (1 + (1 - np.exp(-2 * t * w)) / (1 + np.exp(-2 * t * w))) / 2
    entail, contradict = np.array([[1.0, 1.0], [0.0, 1.0]]), np.zeros((2, 2))
    expected = -(p * np.log(p) + (1 - p) * np.log(1 - p))
    found = kernel_language_entropy(entail, contradict, t, scale=False)
    assert found == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("one_hot", [True, False])
@pytest.mark.parametrize("laplacian", ["unnormalised", "normalised"])
@pytest.mark.parametrize("weights", [(1.0, 0.5, 0.0), (0.7, 0.3, 0.1)])
def test_agrees_with_a_plain_implementation_on_random_relations(weights, laplacian, one_hot):
    entail, contradict = random_relations(20, 7)
    found = kernel_language_entropy(
        entail, contradict, 0.15, weights=weights, laplacian=laplacian, one_hot=one_hot
    )
    normalised = laplacian == "normalised"
    expected = [
        plain(e, c, 0.15, weights, one_hot, normalised) for e, c in zip(entail, contradict, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_unscaled_entropy_is_in_nats():
    assert kernel_language_entropy(*everywhere(6, contradict=1.0), scale=False) == pytest.approx(np.log(6))


@pytest.mark.parametrize("laplacian", ["unnormalised", "normalised"])
def test_answers_without_an_edge_are_maximally_uncertain(laplacian):
    entail, contradict = everywhere(4, contradict=1.0)
    assert kernel_language_entropy(entail, contradict, laplacian=laplacian) == pytest.approx(1.0, rel=1e-14)


@pytest.mark.parametrize("scale", [True, False])
def test_one_answer_gives_zero(scale):
    assert kernel_language_entropy(np.ones((1, 1)), np.zeros((1, 1)), scale=scale) == 0.0


@pytest.mark.parametrize("laplacian", ["unnormalised", "normalised"])
def test_the_diagonals_do_not_matter(laplacian):
    entail, contradict = random_relations(5, 6)
    changed = np.where(np.eye(6, dtype=bool), [[0.9], [0.1], [0.0], [0.5], [1.0], [0.3]], entail)
    options = {"laplacian": laplacian}
    np.testing.assert_array_equal(
        kernel_language_entropy(changed, contradict, **options),
        kernel_language_entropy(entail, contradict, **options),
    )


def with_missing(entail, *answers):
    entail = entail.copy()
    for i in answers:
        entail[..., i, :] = entail[..., :, i] = np.nan
    return entail


def test_a_missing_answer_is_left_out():
    entail, contradict = random_relations(8, 7)
    kept = np.ix_(range(8), [0, 2, 3, 5, 6], [0, 2, 3, 5, 6])
    np.testing.assert_allclose(
        kernel_language_entropy(with_missing(entail, 1, 4), contradict),
        kernel_language_entropy(entail[kept], contradict[kept]),
        rtol=1e-12,
    )


def test_one_answer_left_gives_zero_and_none_left_is_missing():
    entail, contradict = everywhere(3, entail=1.0)
    assert kernel_language_entropy(with_missing(entail, 0, 2), contradict) == 0.0
    assert np.isnan(kernel_language_entropy(with_missing(entail, 0, 1, 2), contradict))


def test_an_unknown_pair_makes_its_set_missing_and_no_other():
    entail, contradict = random_relations(2, 4)
    expected = kernel_language_entropy(entail, contradict)
    entail[0, 1, 3] = np.nan
    found = kernel_language_entropy(entail, contradict)
    np.testing.assert_array_equal(found, [np.nan, expected[1]])


@pytest.mark.parametrize("setting", [{"t": -0.1}, {"t": np.nan}, {"t": np.inf}, {"weights": (1, -0.5, 0)}])
def test_refuses_what_is_no_heat_kernel(setting):
    with pytest.raises(UsageError, match="at least 0"):
        kernel_language_entropy(*everywhere(3), **setting)


@pytest.mark.parametrize(("entail", "contradict"), [((3, 3), (2, 2)), ((3, 2), (3, 2)), ((3,), (3,))])
def test_refuses_what_is_not_one_number_a_pair(entail, contradict):
    with pytest.raises(DataError, match=r"\(\.\.\., N, N\)"):
        kernel_language_entropy(np.zeros(entail), np.zeros(contradict))


def test_refuses_an_unknown_laplacian():
    with pytest.raises(UsageError, match=r"'random_walk'.*'normalised'"):
        kernel_language_entropy(*everywhere(3), laplacian="random_walk")


def cell(entail, contradict):
    q, n = entail.shape[:2]
    return CellFeatures([str(i) for i in range(q)], [["x"] * n] * q, entail=entail, contradict=contradict)


def test_method_ties_equal_graphs_whatever_the_order_of_answers():
    rng = np.random.default_rng(0)
    meaning = rng.permuted(np.tile(np.repeat(np.arange(3), [14, 4, 2]), (200, 1)), axis=1)
    entail = (meaning[:, :, None] == meaning[:, None, :]).astype(float)
    contradict = 1 - entail
    assert len(np.unique(kernel_language_entropy(entail, contradict))) > 1  # rounding parts what ties
    assert len(np.unique(METHOD.confidence(cell(entail, contradict)))) == 1


def test_method_is_an_uncertainty_with_its_settings_on_record():
    entail, contradict = (np.stack(s) for s in zip(everywhere(5, 1.0), everywhere(5, 0.0, 1.0), strict=True))
    confidence = METHODS.get("kernel_language_entropy").confidence(cell(entail, contradict))
    np.testing.assert_allclose(confidence, [-0.4224057584, -1.0], atol=5e-11)
    hotter = configure_kernel_language_entropy(0.4)
    assert hotter.confidence(cell(entail, contradict))[0] == pytest.approx(-0.2135834421, abs=5e-11)
    assert (METHOD.settings["t"], hotter.settings["t"]) == (0.3, 0.4)
