"""q(u) at fixed hyper-parameters: against exact integrals, MCMC and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.optim import NGD
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import expit, log_expit
from scipy.stats import norm
from sklearn.gaussian_process.kernels import Matern

from bench.constructed import class_names, constructed_spectra
from sgpu.gp.fitting import inducing_points
from sgpu.gp.inference import Bound, Effort, LogisticBernoulli, SparseGP, climb
from sgpu.gp.logistic import sigmoid_moments

Floats = NDArray[np.float64]


def bound_of(
    x: Floats, y: NDArray[np.int64], lengthscale: float, outputscale: float, points: Floats | None = None
) -> Bound:
    model = SparseGP("matern15", torch.as_tensor(inducing_points(x, 128, 0) if points is None else points))
    model.set_log_hyperparameters(math.log(lengthscale), math.log(outputscale))
    return Bound(model, torch.as_tensor(x), torch.as_tensor(y), Effort())


def latent(bound: Bound, x: Floats) -> tuple[Floats, Floats]:
    model = SparseGP("matern15", bound.model.variational_strategy.inducing_points)
    model.load_state_dict(bound.model.state_dict())
    with torch.no_grad():
        posterior = model.eval()(torch.as_tensor(x))
    return posterior.mean.numpy(), posterior.variance.numpy()


def test_posterior_of_three_points_equals_the_integral() -> None:
    x, y = np.array([[0.0], [0.8], [2.0]]), np.array([1, 0, 1])
    new = np.array([[0.1], [1.0], [3.0]])
    kernel = 4.0 * Matern(1.5, nu=1.5)
    root = np.linalg.cholesky(kernel(x) + 1e-10 * np.eye(3))
    nodes, weights = hermegauss(48)
    grid = np.stack(np.meshgrid(nodes, nodes, nodes), -1).reshape(-1, 3)
    weight = np.prod(np.meshgrid(weights, weights, weights), axis=0).ravel()
    f = grid @ root.T
    weight = weight * np.prod(expit(np.where(y == 1, f, -f)), axis=1)
    solve = np.linalg.solve(kernel(x), kernel(x, new))
    mean, variance = f @ solve, np.diag(kernel(new) - kernel(new, x) @ solve)
    given = [sigmoid_moments(mean[:, i], np.full(len(f), max(variance[i], 0.0))) for i in range(3)]
    p = np.array([np.average(g.mean, weights=weight) for g in given])
    square = np.array([np.average(g.sd**2 + g.mean**2, weights=weight) for g in given])

    bound = bound_of(x, y, 1.5, 4.0)
    climb(bound)
    ours = sigmoid_moments(*latent(bound, new))
    assert ours.mean == pytest.approx(p, abs=0.012)
    assert ours.sd == pytest.approx(np.sqrt(square - p**2), rel=0.07)


def test_posterior_equals_elliptical_slice_sampling() -> None:
    data = constructed_spectra(140, seed=3)
    x, y, new = data.spectra[:100].clip(min=0), data.label[:100], data.spectra[100:].clip(min=0)
    kernel = 4.0 * Matern(10.0, nu=1.5)
    samples = elliptical_slice(kernel(np.vstack([x, new])), y, chains=250, steps=200, seed=0)
    probability = expit(samples)

    bound = bound_of(x, y, 10.0, 4.0)
    climb(bound)
    ours = sigmoid_moments(*latent(bound, new))
    assert np.abs(ours.mean - probability.mean(0)).mean() < 0.008
    assert 0.95 < (ours.sd / probability.std(0)).mean() < 1.06


def elliptical_slice(covariance: Floats, y: NDArray[np.int64], chains: int, steps: int, seed: int) -> Floats:
    """Samples (chains * steps / 2, rows past y) of f (Murray, Adams and MacKay 2010), after a burn-in."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(covariance + 1e-8 * np.eye(len(covariance)))
    sign = np.where(y == 1, 1.0, -1.0)

    def log_likelihood(f: Floats) -> Floats:
        return -np.logaddexp(0.0, -sign * f[:, : len(y)]).sum(1)

    f = rng.normal(size=(chains, len(root))) @ root.T
    kept = []
    for step in range(steps):
        other = rng.normal(size=f.shape) @ root.T
        level = log_likelihood(f) + np.log(rng.random(chains))
        angle = rng.uniform(0, 2 * np.pi, chains)
        low, high = angle - 2 * np.pi, angle.copy()
        moved, waiting = f.copy(), np.ones(chains, dtype=bool)
        while waiting.any():
            trial = f * np.cos(angle)[:, None] + other * np.sin(angle)[:, None]
            good = waiting & (log_likelihood(trial) > level)
            moved[good], waiting = trial[good], waiting & ~good
            low, high = np.where(angle < 0, angle, low), np.where(angle < 0, high, angle)
            angle = np.where(waiting, rng.uniform(low, high), angle)
        f = moved
        if step >= steps // 2:
            kept.append(f[:, len(y) :])
    return np.concatenate(kept)


def test_at_the_top_q_is_the_stationary_point_of_the_bound() -> None:
    data = constructed_spectra(200, seed=4)
    bound = bound_of(data.spectra.clip(min=0), data.label, 8.0, 4.0)
    climb(bound)
    # One more full step gains less than what the climb calls its top.
    before = bound.evaluate(bound.natural)
    NGD(bound.natural, num_data=bound.rows, lr=1.0).step()
    assert bound.evaluate(bound.natural) * 200 == pytest.approx(before * 200, abs=0.01)


def test_backtracking_holds_where_full_steps_diverge() -> None:
    data = class_names(100, seed=0)
    x = data.spectra.clip(min=0)
    free = bound_of(x, data.label, 8.0, 30.0)
    optimizer = NGD(free.natural, num_data=100, lr=1.0)
    for _ in range(20):
        undamped = free.evaluate(free.natural)
        optimizer.step()
    assert undamped < -100

    held = bound_of(x, data.label, 8.0, 30.0)
    assert climb(held) > -0.5
    assert held.effort.rejects > 0


def test_more_rows_than_a_chunk_give_the_bound_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    data = constructed_spectra(150, seed=5)
    x = data.spectra.clip(min=0)
    points = inducing_points(x, 32, 0)
    whole = climb(bound_of(x, data.label, 8.0, 4.0, points))
    monkeypatch.setattr("sgpu.gp.inference.CHUNK_ROWS", 64)
    assert climb(bound_of(x, data.label, 8.0, 4.0, points)) == pytest.approx(whole, abs=1e-10)


def test_integer_weights_equal_repeated_rows() -> None:
    data = constructed_spectra(60, seed=6)
    x, times = data.spectra.clip(min=0), np.random.default_rng(0).integers(1, 4, 60)
    points = inducing_points(x, 32, 0)
    repeated = bound_of(x.repeat(times, axis=0), data.label.repeat(times), 8.0, 4.0, points)
    model = bound_of(x, data.label, 8.0, 4.0, points).model
    weights = torch.as_tensor(times.astype(float))
    weighted = Bound(model, torch.as_tensor(x), torch.as_tensor(data.label), Effort(), weights)
    assert weighted.rows == repeated.rows
    assert climb(weighted) == pytest.approx(climb(repeated), abs=1e-12)
    for ours, theirs in zip(latent(weighted, x), latent(repeated, x), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-9)
    values = [bound.evaluate(bound.model.log_hyperparameters) for bound in (weighted, repeated)]
    slopes = [[p.grad.item() for p in bound.model.log_hyperparameters] for bound in (weighted, repeated)]
    assert values[0] == pytest.approx(values[1], abs=1e-12)
    assert slopes[0] == pytest.approx(slopes[1], abs=1e-9)


def test_a_weight_of_one_for_all_changes_nothing() -> None:
    data = constructed_spectra(60, seed=6)
    x = data.spectra.clip(min=0)
    plain = bound_of(x, data.label, 8.0, 4.0)
    ones = Bound(
        bound_of(x, data.label, 8.0, 4.0).model,
        torch.as_tensor(x), torch.as_tensor(data.label), Effort(), torch.ones(60),
    )  # fmt: skip
    assert climb(ones) == pytest.approx(climb(plain), abs=1e-13)


@pytest.mark.parametrize(("mean", "variance"), [(0.0, 4.0), (-2.5, 1.0), (1.0, 0.01)])
def test_expected_log_prob_equals_adaptive_integration(mean: float, variance: float) -> None:
    latent = MultivariateNormal(
        torch.full((2,), mean, dtype=torch.float64), variance * torch.eye(2, dtype=torch.float64)
    )
    ours = LogisticBernoulli().expected_log_prob(torch.tensor([0.0, 1.0], dtype=torch.float64), latent)
    for value, sign in zip(ours.tolist(), (-1, 1), strict=True):
        weighted = lambda z, s=sign: log_expit(s * (mean + np.sqrt(variance) * z)) * norm.pdf(z)  # noqa: E731
        assert value == pytest.approx(quad(weighted, -12, 12)[0], abs=5e-6)
