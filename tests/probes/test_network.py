import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier

from sgpu.errors import TrainingError
from sgpu.probes.saplma import Saplma, logits, train

SETTINGS = Saplma(epochs=5, batch=32, learning_rate=1e-3, standardise=False, seed=0)


def exclusive_or(rows, seed, features=8):
    """Rows that no line can tell apart: right where the first two features have one sign."""
    x = np.random.default_rng(seed).normal(size=(rows, features)).astype(np.float32)
    return x, (x[:, 0] * x[:, 1] > 0).astype(np.float64)


def test_weights_are_those_of_a_torch_network_256_128_64():
    x, y = exclusive_or(64, seed=0)
    network = train(x, y, SETTINGS)
    widths = [8, 256, 128, 64, 1]
    layers = []
    for i in range(4):
        layer = torch.nn.Linear(widths[i], widths[i + 1])
        layer.load_state_dict(
            {
                "weight": torch.from_numpy(network[f"weight{i}"]),
                "bias": torch.from_numpy(network[f"bias{i}"]),
            }
        )
        layers += [layer.double(), torch.nn.ReLU()]
    with torch.no_grad():
        expected = torch.nn.Sequential(*layers[:-1])(torch.from_numpy(x).double())[:, 0]
    np.testing.assert_allclose(logits(network, x), expected.numpy(), atol=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_learns_what_no_line_can_as_well_as_scikit_learn_does():
    x, y = exclusive_or(1500, seed=1)
    held_out, truth = exclusive_or(1000, seed=2)
    reference = MLPClassifier((256, 128, 64), batch_size=32, max_iter=5, alpha=0, random_state=0).fit(x, y)
    expected = roc_auc_score(truth, reference.predict_proba(held_out)[:, 1])
    found = roc_auc_score(truth, logits(train(x, y, SETTINGS), held_out))
    assert found > 0.95
    assert found == pytest.approx(expected, abs=0.03)


def test_standardising_is_folded_into_the_first_layer():
    x, y = exclusive_or(200, seed=3)
    stretched = (x * np.logspace(-2, 2, 8) + 30).astype(np.float32)
    mean, deviation = stretched.mean(axis=0, dtype=float), stretched.std(axis=0, dtype=float)
    by_hand = ((stretched - mean) / deviation).astype(np.float32)
    standardising = Saplma(5, 32, 1e-3, True, 0)
    np.testing.assert_allclose(
        logits(train(stretched, y, standardising), stretched),
        logits(train(by_hand, y, SETTINGS), by_hand),
        atol=1e-4,
    )


def test_a_constant_feature_is_not_divided_by_zero():
    x, y = exclusive_or(64, seed=4)
    x[:, 5] = 7.0
    assert np.isfinite(logits(train(x, y, Saplma(1, 32, 1e-3, True, 0)), x)).all()


def test_the_seed_decides_the_fit_and_the_global_generator_is_left_alone():
    x, y = exclusive_or(64, seed=5)
    before = torch.random.get_rng_state()
    one, same, other = (logits(train(x, y, Saplma(1, 32, 1e-3, False, seed)), x) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_divergence_is_an_error_with_a_remedy():
    x, y = exclusive_or(64, seed=6)
    with pytest.raises(TrainingError, match="standardise"):
        train(x * np.float32(1e30), y, Saplma(5, 8, 1e10, False, 0))
