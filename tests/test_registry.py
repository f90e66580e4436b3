"""Names of our own and of installed plug-ins, told from package metadata that a test writes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sgpu import registry
from sgpu.errors import MissingDependencyError, PluginError, UsageError
from sgpu.logs.formats import LOG_FORMATS
from sgpu.registry import Registry

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Writes a distribution as pip leaves it: its metadata, and a module ``house``."""
    monkeypatch.syspath_prepend(tmp_path)

    def installed(name: str = "sgpu-house", version: str = "1.2", group: str = "g", **entries: str) -> None:
        metadata = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
        (metadata / "entry_points.txt").write_text("\n".join(lines))
        (tmp_path / "house.py").write_text(
            "import gone\n" if "gone" in entries else "class Judge:\n    name = 'judge'\n"
        )
        registry._plugins.cache_clear()
        registry._entry_points.cache_clear()

    monkeypatch.delitem(sys.modules, "house", raising=False)
    return installed


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    def forget() -> None:
        registry._plugins.cache_clear()
        registry._entry_points.cache_clear()

    forget()
    yield
    forget()


def ours(**entries: str) -> Registry:
    return Registry("judge", entries or {"alias": "sgpu.judges.alias:AliasJudge"}, group="g")


def test_a_plugin_is_known_with_its_package_before_it_is_imported(install: Install) -> None:
    install(judge="house:Judge")
    judges = ours()
    assert judges.names() == ["alias", "judge"] and "judge" in judges
    assert str(judges.entry("judge")) == "sgpu-house 1.2" and judges.entry("judge").is_plugin
    assert "house" not in sys.modules
    assert judges.get("judge").__name__ == "Judge"


def test_only_plugins_are_named_for_a_fingerprint(install: Install) -> None:
    install(judge="house:Judge")
    judges = ours()
    assert judges.plugins("alias") == judges.plugins("no such") == {}
    assert judges.plugins("alias", "judge") == {"plug-in judge judge": "sgpu-house 1.2"}


def test_plugins_come_after_our_own_in_their_order(install: Install) -> None:
    install(b="house:Judge", a="house:Judge")
    assert list(ours(z="x:Z", y="x:Y")) == ["z", "y", "a", "b"]


def test_a_plugin_of_another_group_is_not_seen(install: Install) -> None:
    install(group="other", judge="house:Judge")
    assert ours().names() == ["alias"]
    assert Registry("judge", {"x": "x:X"}).names() == ["x"]


def test_a_name_of_ours_is_refused_and_both_are_named(install: Install) -> None:
    install(alias="house:Judge")
    judges = ours()
    for use in (judges.names, lambda: judges.get("alias"), lambda: judges.check("no such")):
        with pytest.raises(
            PluginError, match=r"'alias'.*AliasJudge of sgpu .*house:Judge of sgpu-house 1\.2"
        ):
            use()


def test_a_name_of_another_plugin_is_refused_and_both_are_named(install: Install) -> None:
    install(judge="house:Judge")
    install(name="sgpu-home", version="3", judge="house:Judge")
    with pytest.raises(PluginError, match=r"(?=.*sgpu-house 1\.2)(?=.*sgpu-home 3)"):
        ours().names()


def test_a_name_that_could_not_name_a_folder_is_refused(install: Install) -> None:
    install(**{"../judge": "house:Judge"})
    with pytest.raises(PluginError, match=r"sgpu-house 1\.2 registers '\.\./judge'"):
        ours().names()


@pytest.mark.parametrize("target", ["house:Nothing", "house", "house:Judge.name.x"])
def test_a_plugin_that_cannot_be_loaded_says_whose_it_is(install: Install, target: str) -> None:
    install(judge=target)
    with pytest.raises(PluginError, match=r"judge 'judge' of sgpu-house 1\.2 cannot be loaded"):
        ours().get("judge")


def test_what_a_plugin_lacks_is_named(install: Install) -> None:
    install(gone="house:Judge")
    with pytest.raises(MissingDependencyError, match="needs the package 'gone'"):
        ours().get("gone")


def test_a_plugin_that_calls_itself_otherwise_is_refused(install: Install) -> None:
    install(other="house:Judge")
    with pytest.raises(PluginError, match=r"'other' of sgpu-house 1\.2 calls itself 'judge'"):
        ours().get("other")


@pytest.mark.parametrize("name", ["house:Judge", "house.Judge", "house", "./house.py:Judge"])
def test_a_path_is_no_name(install: Install, name: str) -> None:
    install(judge="house:Judge")
    for ask in (ours().get, ours().check, ours().entry):
        with pytest.raises(UsageError, match="unknown judge"):
            ask(name)
    assert "house" not in sys.modules


@pytest.mark.parametrize("name", ["auto", "map"])
def test_a_plugin_that_is_called_like_a_word_of_the_settings_is_refused(install: Install, name: str) -> None:
    install(group="sgpu.log_formats", **{name: "house:Judge"})
    with pytest.raises(PluginError, match=f"log format '{name}' is registered twice.*Uninstall sgpu-house"):
        LOG_FORMATS.names()
