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

    A number that is not known is None, because the JSON of a server cannot hold NaN.
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
        columns = {}
        for name, values in result._asdict().items():
            known = [None if pd.isna(value) else value for value in values]
            # As objects, or pandas would make NaN of None.
            columns[name] = pd.Series(known, model_input.index, object if None in known else None)
        return pd.DataFrame(columns, model_input.index)


mlflow.models.set_model(RegisteredFitModel())
