from __future__ import annotations

from pathlib import Path

import pytest

from sgpu.cli.fetch import fetch_study
from sgpu.errors import UsageError


def test_a_bucket_is_refused_as_a_folder_is_needed(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text("models: [qwen2.5-3b-instruct]\ndatasets: [{kind: worldfacts}]\n")
    with pytest.raises(UsageError, match="give a folder of this machine"):
        fetch_study(study, "s3://bucket/prefix", [])
