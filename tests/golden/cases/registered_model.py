"""What exists goes on: a model that was registered in MLflow before the modules were moved.

`given/mlflow.sql` is its SQLite store as a dump, with PLACE for the folder that it lay in. The model is
listed, made the champion again, scored with, and opened by `sgpu.load_model` and by MLflow itself, which runs
the code that was stored with it, and that imports a module of ours by name. Files of a later version are
refused in one line.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.golden.case_run import CaseRun, environment
from tests.golden.night_files import scores
from tests.golden.stored import write_json

TOLERANCE = 5e-4  # answers are encoded in bfloat16, which differs by processor
STORE = "sqlite:///mlflow.db"
MODEL = "models:/golden@champion"
DAY = "2026-11-20"
ANSWERS = [
    ["Lima", "Lima", "Lima", "Lima"],
    ["Lima", "It is Lima.", "Lima", "Cusco"],
    ["Oslo", "Bergen", "Lima", "Cusco"],
    ["Oslo", "Oslo", "Lima"],
]
# A process of its own, as a server of models is: nothing of ours is imported but by the stored code.
BY_MLFLOW = """
import json, sys, mlflow, pandas
mlflow.set_tracking_uri(sys.argv[1]); mlflow.set_registry_uri(sys.argv[1])
model = mlflow.pyfunc.load_model(sys.argv[2])
print(model.predict(pandas.DataFrame({"answers": json.loads(sys.argv[3])})).to_json(orient="records"))
"""
BY_SGPU = """
import json, sys, pandas, sgpu
prediction = sgpu.load_model(sys.argv[2], tracking_uri=sys.argv[1]).predict(json.loads(sys.argv[3]))
print(pandas.DataFrame(prediction._asdict()).to_json(orient="records"))
"""
REFUSED = """
import json, sys, sgpu
said = {}
for folder in sys.argv[1:]:
    try:
        sgpu.load_model(folder)
    except Exception as error:
        said[folder] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
"""
# What a later version might have written, file by file.
LATER = ("bundle.json", "gp.json", "profile.json", "size_free/gp.json")


def produce(run: CaseRun) -> None:
    """Every way to a registered model, and what is refused."""
    shutil.copytree(run.given / "mlflow-artifacts", run.work / "mlflow-artifacts")
    _restore(run.given / "mlflow.sql", run.work)
    listed = run.sgpu("model", "list", "golden", "--tracking", STORE)
    listed += run.sgpu("model", "promote", "golden", "1", "--tracking", STORE)
    (run.out / "listed.txt").write_text(listed, "utf-8")
    for name, code in (("mlflow", BY_MLFLOW), ("sgpu", BY_SGPU)):
        predicted = _python(run.work, code, STORE, MODEL, json.dumps(ANSWERS))
        write_json(predicted, run.out / f"predicted_by_{name}.json")
    _log(run.work / "logs" / f"dt={DAY}" / "a.jsonl")
    run.sgpu(
        "score", "--logs", "logs", "--model", MODEL, "--out", "out", "--date", DAY, "--workers", "0",
        "--device", "cpu", "--tracking", STORE,
    )  # fmt: skip
    scores(run.work / "out").write_csv(run.out / "scores.csv")
    (bundle,) = (run.given / "mlflow-artifacts").rglob("bundle.json")
    later = [_of_a_later_version(bundle.parent, file, run.work) for file in LATER]
    write_json(_python(run.work, REFUSED, *later), run.out / "refused.json")


def _restore(dump: Path, place: Path) -> None:
    with sqlite3.connect(place / "mlflow.db") as database:
        database.executescript(dump.read_text("utf-8").replace("PLACE", str(place)))
    database.close()


def _python(place: Path, code: str, *words: str) -> object:
    command = [sys.executable, "-c", code, *words]
    quiet = {**environment(), "MLFLOW_DISABLE_TELEMETRY": "true"}
    done = subprocess.run(command, cwd=place, env=quiet, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1].replace(f"{place}/", ""))


def _log(file: Path) -> None:
    rows = [
        {
            "schema_version": 1,
            "request_id": f"q{number}",
            "timestamp": f"{DAY}T10:00:00Z",
            "model": "m",
            "samples": [{"index": place, "text": text} for place, text in enumerate(texts)],
        }
        for number, texts in enumerate(ANSWERS)
    ]
    file.parent.mkdir(parents=True)
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")


def _of_a_later_version(bundle: Path, file: str, place: Path) -> str:
    """The name of a copy of the model with one of its files in format 2."""
    model = place / f"later-{file.replace('/', '-').removesuffix('.json')}"
    shutil.copytree(bundle, model)
    content = json.loads((model / file).read_bytes())
    (model / file).write_text(json.dumps({**content, "format": 2}), "utf-8")
    return model.name
