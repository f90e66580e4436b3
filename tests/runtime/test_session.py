"""What a session leaves to the next one: the token by which a local Ray knows its own processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sgpu.errors import UsageError
from sgpu.runtime import session


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # what is not there is not restored: a value set by a test would stay
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "ray", raising=False)  # as in a process that has not imported it yet
    return tmp_path


def test_the_token_is_for_its_owner_alone_and_is_kept(home: Path) -> None:
    session._environment()
    path = home / ".ray" / "auth_token"
    token = path.read_text()
    assert len(token) == 64 and path.stat().st_mode & 0o777 == 0o600
    session._environment()
    assert path.read_text() == token
    assert [entry.name for entry in path.parent.iterdir()] == ["auth_token"]


def test_a_token_named_by_the_user_is_not_replaced(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(home / "mine"))
    session._environment()
    assert not (home / ".ray").exists()


def test_a_home_folder_that_cannot_hold_the_token_is_named(home: Path) -> None:
    (home / ".ray").write_text("not a folder")
    with pytest.raises(UsageError, match=r"\.ray/auth_token: .*RAY_AUTH_TOKEN_PATH"):
        session._environment()


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "before",
    [
        "import ray",
        # Ray makes its token readable for everyone otherwise, and one that others can read is refused.
        "import os, ray; os.umask(0o077); ray.init(num_cpus=1, include_dashboard=False); ray.shutdown()",
    ],
)
def test_a_session_starts_where_ray_was_used_before(home: Path, before: str) -> None:
    code = (
        f"{before}\n"
        "from sgpu.runtime.session import ray_session\n"
        "with ray_session(): print(ray.get(ray.remote(lambda: 'answered').remote()))"
    )
    environment = {**os.environ, "HOME": str(home)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.strip().endswith("answered"), done.stderr
