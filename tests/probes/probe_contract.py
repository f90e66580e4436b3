"""What every probe must hold. Inherit it and give `key`, a key of its description."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sgpu.errors import IntegrityError, TrainingError


class ProbeContract:
    """A module gives the fixtures ``fitted``, a probe, and ``states``, hidden states that it has not seen."""

    key: str

    def test_scored_rows_change_neither_the_choice_nor_one_another(self, fitted: Any, states: Any) -> None:
        report = fitted.report
        alone = np.concatenate([fitted.predict_proba(states[i : i + 1]) for i in range(5)])
        together = fitted.predict_proba(np.concatenate([states, states * 10]))[:5]
        np.testing.assert_allclose(together, alone, rtol=1e-12)
        assert fitted.report == report

    def test_no_rows_give_no_probabilities(self, fitted: Any, states: Any) -> None:
        assert fitted.predict_proba(states[:0]).shape == (0,)

    def test_an_unfitted_probe_says_so(self, fitted: Any, states: Any) -> None:
        with pytest.raises(TrainingError, match="not fitted"):
            type(fitted)().predict_proba(states)

    def test_a_saved_probe_is_the_same_probe(self, fitted: Any, states: Any, tmp_path: Path) -> None:
        fitted.save(tmp_path)
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names == [f"{fitted.name}.json", f"{fitted.name}.safetensors"]
        loaded = type(fitted).load(tmp_path)
        assert (loaded.report, loaded.settings) == (fitted.report, fitted.settings)
        np.testing.assert_array_equal(loaded.predict_proba(states), fitted.predict_proba(states))

    def test_a_description_of_something_else_is_refused(self, fitted: Any, tmp_path: Path) -> None:
        fitted.save(tmp_path)
        file = tmp_path / f"{fitted.name}.json"
        file.write_text(file.read_text().replace(f'"{self.key}"', '"another"'))
        with pytest.raises(IntegrityError, match="another"):
            type(fitted).load(tmp_path)
