"""Saving and loading a fit: bitwise equal, and nothing changed or executable gets in."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.constructed import constructed_spectra
from sgpu.errors import IntegrityError
from sgpu.gp import GPClassifier

DATA = constructed_spectra(160, seed=3)


@pytest.fixture(scope="module")
def fitted() -> GPClassifier:
    return GPClassifier(kernel="matern25", inducing=40, seed=5).fit(DATA.spectra[:80], DATA.label[:80])


@pytest.fixture
def saved(fitted: GPClassifier, tmp_path: Path) -> Path:
    fitted.save(tmp_path / "fit")
    return tmp_path / "fit"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_reloaded_classifier_predicts_bitwise_the_same(dtype: str, tmp_path: Path) -> None:
    classifier = GPClassifier(dtype=dtype).fit(DATA.spectra[:80], DATA.label[:80])
    classifier.save(tmp_path)
    loaded = GPClassifier.load(tmp_path)
    for ours, theirs in zip(classifier.predict(DATA.spectra), loaded.predict(DATA.spectra), strict=True):
        assert np.array_equal(ours, theirs)


def test_settings_and_report_come_back_but_for_the_time(fitted: GPClassifier, saved: Path) -> None:
    loaded = GPClassifier.load(saved)
    assert loaded.settings == fitted.settings
    assert loaded.fit_report.elbo == fitted.fit_report.elbo
    assert loaded.fit_report.lengthscale == fitted.fit_report.lengthscale
    assert loaded.fit_report.seconds is None


def test_a_degenerate_fit_comes_back(tmp_path: Path) -> None:
    classifier = GPClassifier().fit(DATA.spectra[:10], np.ones(10))
    classifier.save(tmp_path)
    loaded = GPClassifier.load(tmp_path)
    assert loaded.fit_report.degenerate
    assert np.array_equal(loaded.predict(DATA.spectra).sd, classifier.predict(DATA.spectra).sd)


def test_equal_fits_write_equal_files(saved: Path, tmp_path: Path) -> None:
    GPClassifier(kernel="matern25", inducing=40, seed=5).fit(DATA.spectra[:80], DATA.label[:80]).save(
        tmp_path / "again"
    )
    for name in ("gp.json", "gp.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (saved / name).read_bytes()
    assert sorted(path.name for path in saved.iterdir()) == ["gp.json", "gp.safetensors"]


def test_one_changed_byte_is_refused(saved: Path) -> None:
    payload = bytearray((saved / "gp.safetensors").read_bytes())
    payload[-1] ^= 1
    (saved / "gp.safetensors").write_bytes(payload)
    with pytest.raises(IntegrityError, match="sha256"):
        GPClassifier.load(saved)


@pytest.mark.parametrize("name", ["gp.json", "gp.safetensors"])
def test_a_missing_file_is_named(saved: Path, name: str) -> None:
    (saved / name).unlink()
    with pytest.raises(IntegrityError, match=f"{name} is missing"):
        GPClassifier.load(saved)


@pytest.mark.parametrize("name", ["model.pt", "weights.bin", "gp.pkl", "gp.PTH"])
def test_a_file_that_can_run_code_is_refused(saved: Path, name: str) -> None:
    (saved / name).write_bytes(b"")
    with pytest.raises(IntegrityError, match="can run code"):
        GPClassifier.load(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "format 99"),
        ({"shapes": {}}, "shapes"),
        ({"settings": {"kernel": "matern25", "unknown": 1}}, "does not describe a fit"),
        ({"report": {}}, "does not describe a fit"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(
    saved: Path, change: dict[str, object], message: str
) -> None:
    path = saved / "gp.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(IntegrityError, match=message):
        GPClassifier.load(saved)


@pytest.mark.parametrize("text", ["{", "[]", "\x80"])
def test_a_description_that_is_not_json_is_refused(saved: Path, text: str) -> None:
    (saved / "gp.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(IntegrityError):
        GPClassifier.load(saved)
