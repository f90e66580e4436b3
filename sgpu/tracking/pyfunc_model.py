"""The code that MLflow stores with a registered fit and runs when it loads one ("models from code").

It only hands the bundle to `sgpu.load_model`, which checks hashes and reads safetensors and JSON: the model
in the registry holds no pickle.
"""

from __future__ import annotations

from typing import Any

import mlflow.models
import mlflow.pyfunc
import pandas as pd


class RegisteredFitModel(mlflow.pyfunc.PythonModel):
    """Columns ``answers`` (Q rows, N strings each) and ``question``, optional -> the columns of a `Result`.

    A missing ``p_answer`` is None, because the JSON of a server cannot hold NaN.
    """

    def load_context(self, context: Any) -> None:
        from sgpu import load_model

        self._fit = load_model(context.artifacts["bundle"])

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        questions = None
        if "question" in model_input:  # pandas has NaN or None where there is none
            questions = [None if pd.isna(text) else text for text in model_input["question"]]
        result = self._fit.predict([list(answers) for answers in model_input["answers"]], questions)
        columns = result._asdict() | {"p_answer": [None if pd.isna(p) else p for p in result.p_answer]}
        # As objects, or pandas would make NaN of None.
        lists = {name: pd.Series(v, dtype=object) for name, v in columns.items() if isinstance(v, list)}
        return pd.DataFrame(columns | lists).set_index(model_input.index)


mlflow.models.set_model(RegisteredFitModel())
