"""A local Ray on a machine with other users: its folder, its ports, and the token that a start finds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sgpu.errors import UsageError
from sgpu.runtime import local_ray

# In a process of its own: Ray is started once in each, and that of the tests may run already.
SESSION = """
import os, sys
from pathlib import Path
import psutil
from sgpu.runtime.session import ray_session
with ray_session():
    import ray
    @ray.remote
    class Worker:
        def pid(self): return os.getpid()
    worker = Worker.remote()
    ray.get(worker.pid.remote())
    own = psutil.Process()
    processes = [own, *own.children(recursive=True)]
    open_ = [one.laddr.ip for of in processes for one in of.net_connections("inet") if one.status == "LISTEN"]
    folder = Path(ray._private.worker._global_node.get_temp_dir_path()).parent
    print("idle", sum("ray::IDLE" in " ".join(of.cmdline()) for of in processes))
    print("listening", len(open_), *sorted(set(open_)))
    print("mode", oct(folder.stat().st_mode & 0o777), folder.parent)
    sockets = [str(path) for path in folder.rglob("sockets/*")]
    print("longest", max(map(len, sockets)))
print("left", folder.exists(), os.environ.get("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"))
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    environment = {**os.environ, "HOME": str(tmp_path_factory.mktemp("home"))}
    for name in ("RAY_TMPDIR", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        environment.pop(name, None)
    done = subprocess.run([sys.executable, "-c", SESSION], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line}


@pytest.mark.timeout(180)
def test_a_local_session_listens_on_loopback_alone(session: dict[str, list[str]]) -> None:
    count, *addresses = session["listening"]
    assert int(count) >= 4  # the store, the scheduler, this process, a worker
    assert {address.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}


def test_no_worker_is_started_before_it_is_needed(session: dict[str, list[str]]) -> None:
    assert int(session["idle"][0]) <= 1  # the one that is asked shows itself as idle between two calls


def test_nobody_else_may_enter_the_folder_of_a_session_and_it_is_removed(
    session: dict[str, list[str]],
) -> None:
    assert session["mode"][0] == "0o700"
    assert session["left"] == ["False", "None"]


def test_the_sockets_have_short_enough_paths_in_the_longest_folder(session: dict[str, list[str]]) -> None:
    room = local_ray.LONGEST_PARENT - len(session["mode"][1])
    assert int(session["longest"][0]) + room <= 105  # two digits more in a process id


def test_a_folder_that_the_user_has_named_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_ray, "LONGEST_PARENT", len(str(tmp_path)))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    folder = local_ray.private_folder()
    assert folder.parent == tmp_path and folder.stat().st_mode & 0o777 == 0o700
    local_ray.remove(folder)
    assert not folder.exists()


def test_a_folder_that_is_too_long_for_sockets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", "/tmp/" + "x" * 40)
    with pytest.raises(UsageError, match=r"RAY_TMPDIR .* more than 26 characters"):
        local_ray.private_folder()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o602])
@pytest.mark.parametrize("named", [False, True])
def test_a_token_that_others_can_read_is_refused(
    mode: int, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    if named:
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    token.write_text("a" * 64)
    token.chmod(mode)
    with pytest.raises(UsageError, match=rf"auth_token .*others can read it \(mode {mode:04o}\)"):
        local_ray.private_token()
    token.chmod(0o600)
    local_ray.private_token()


@pytest.mark.parametrize("mode", [None, "token"])
def test_a_token_is_made_for_this_user_alone_even_where_ray_was_imported_first(
    mode: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ray without a mode takes tokens by default, and would make one that every user can read.
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    if mode is not None:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    local_ray.private_token()
    assert (tmp_path / ".ray" / "auth_token").stat().st_mode & 0o777 == 0o600


def test_no_token_is_made_where_the_user_has_switched_them_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    local_ray.private_token()
    assert not (tmp_path / ".ray").exists()
