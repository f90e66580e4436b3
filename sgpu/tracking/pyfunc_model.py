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
    """Column ``answers`` (Q rows, N strings each) -> the columns of `sgpu.fitted.model.Result`."""

    def load_context(self, context: Any) -> None:
        from sgpu import load_model

        self._fit = load_model(context.artifacts["bundle"])

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        prediction = self._fit.predict([list(answers) for answers in model_input["answers"]])
        return pd.DataFrame(prediction._asdict(), index=model_input.index)


mlflow.models.set_model(RegisteredFitModel())
