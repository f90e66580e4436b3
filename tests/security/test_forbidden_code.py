"""No input, model or table can run code: nothing that could is in the packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.security.forbidden_code import IMPORTERS, ROOT, files, violations


def test_the_packages_hold_nothing_that_runs_what_an_input_says() -> None:
    assert len(files(ROOT)) > 200
    assert violations(ROOT) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import joblib.memory",
        "from dill import loads",
        "def f():\n    import cloudpickle as c",
        "eval(text)",
        "exec(text)",
        "compile(text, '', 'exec')",
        "__import__(text)",
        "import os\nos.system(text)",
        "from os import popen\npopen(text)",
        "import subprocess as s\ns.getoutput(text)",
        "import subprocess\nsubprocess.run(text, shell=True)",
        "import subprocess\nsubprocess.run(text, shell=flag)",
        "import yaml\nyaml.load(text, yaml.SafeLoader)",
        "from yaml import unsafe_load as read\nread(text)",
        "import torch\ntorch.load(path)",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
        "AutoModel.from_pretrained(name, trust_remote_code=settings.trust)",
        "AutoModel.from_pretrained(name)",
        "AutoModel.from_pretrained(name, **options)",
        "options = {'trust_remote_code': True}",
        "import tarfile\ntarfile.open(path).extractall(folder)",
        "import zipfile\nzipfile.ZipFile(path).extract(name, folder)",
        "import shutil\nshutil.unpack_archive(path, folder)",
        "import importlib\nimportlib.import_module(text)",
        "from importlib import import_module\nimport_module(text)",
        "from pkgutil import resolve_name\nresolve_name(text)",
        "from importlib.metadata import entry_points\nentry_points(group=text)",
        "import tempfile\ntempfile.mktemp()",
        "import httpx\nhttpx.get(url, verify=False)",
        "from jinja2 import Environment\nEnvironment(autoescape=False)",
        "import mlflow.pyfunc\nmlflow.pyfunc.load_model(uri)",
        "from pandas import read_pickle\nread_pickle(path)",
        "import pyarrow.parquet as x",
        "from pyarrow import parquet",
        "from pyarrow.parquet import read_table as r",
        "import pyarrow.dataset",
        "def f():\n    import pyarrow.feather",
        "import pyarrow as arrow\narrow.ipc",
        "import pyarrow\nimport pyarrow as a\nb = a\nb.RecordBatchFileReader(path)",
        "from pyarrow import ipc as i",
        "import polars as pl\npl.scan_parquet(path)",
        "from polars import read_delta as r",
        "import polars\npolars.read_ipc(path)",
        "import pandas as pd\npd.read_feather(path)",
        "from deltalake import DeltaTable\nDeltaTable(path).to_pyarrow_table()",
        "table.to_pyarrow_dataset",
        "import deltalake as d\nd.DeltaTable(path).to_pandas(columns=names)",
        "import ray.data\nray.data.read_parquet(path)",
    ],
)
def test_a_planted_violation_is_found(source: str, tmp_path: Path) -> None:
    planted = tmp_path / "sgpu" / "stages" / "planted.py"
    planted.parent.mkdir(parents=True)
    planted.write_text(source)
    (found,) = violations(tmp_path)
    assert found.startswith("sgpu/stages/planted.py:")


@pytest.mark.parametrize(
    "source",
    [
        "model.eval()",
        "import re\nre.compile(text)",
        "import yaml\nyaml.safe_load(text)",
        "import subprocess\nsubprocess.run(['git', 'status'], shell=False)",
        "AutoModel.from_pretrained(name, trust_remote_code=False)",
        "import numpy as np\nnp.load(path, allow_pickle=False)",
        "import json\njson.load(stream)",
        "from sgpu.models.weights import pickle_of_nothing",
        "import pyarrow as pa\npa.compute.equal(rows, 1)",
        "from sgpu.storage.parquet_files import opened\nopened(path).read()",
        "from deltalake import DeltaTable\nDeltaTable(path).schema()",
    ],
)
def test_what_is_harmless_passes(source: str, tmp_path: Path) -> None:
    (tmp_path / "sgpu").mkdir()
    (tmp_path / "sgpu" / "planted.py").write_text(source)
    assert violations(tmp_path) == []


def test_every_module_that_may_import_by_name_still_does() -> None:
    unused = [name for name in IMPORTERS if "import_module(" not in (ROOT / name).read_text()]
    assert unused == []
