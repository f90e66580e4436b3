"""Where a source is: found without a download, pinned, and not needed again once it is prepared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import ResolvedRevision

from sgpu.datasets import fetch
from sgpu.datasets.base import DATASETS, DatasetCard, HubFiles, Source
from sgpu.datasets.fetch import download, local_state, located
from sgpu.errors import DataError, UsageError
from sgpu.models.weights import is_pinned

PIN = "0123456789abcdef0123456789abcdef01234567"


def card(*hub: HubFiles, packages: tuple[str, ...] = ()) -> DatasetCard:
    return DatasetCard(
        name="toy", title="Toy", load=lambda request: Source("toy", "1", "", "", {}), licence="MIT",
        citation="", prompt="plain", hub=hub, packages=packages, raw="Put toy.json into it.",
    )  # fmt: skip


def test_only_a_whole_commit_is_a_pin() -> None:
    assert is_pinned(PIN)
    assert not any(is_pinned(name) for name in ("main", PIN[:39], PIN + "0", PIN.upper(), ""))


def test_an_edited_file_is_another_state(tmp_path: Path) -> None:
    file = tmp_path / "a" / "toy.json"
    file.parent.mkdir()
    file.write_text("one")
    before = local_state(tmp_path)
    assert local_state(tmp_path) == before
    file.write_text("two")  # the same size
    assert local_state(tmp_path) != before


def test_a_renamed_file_is_another_state(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("one")
    before = local_state(tmp_path)
    (tmp_path / "a.json").rename(tmp_path / "b.json")
    assert local_state(tmp_path) != before


def test_a_folder_without_files_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no file"):
        local_state(tmp_path)


def test_a_path_that_is_not_there_says_what_to_put_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing at .*absent\. Put toy\.json into it"):
        located(card(), tmp_path / "absent", None)


def test_where_the_source_is_out_of_sight_what_was_prepared_stands(tmp_path: Path) -> None:
    found = located(card(), tmp_path / "absent", None, stored="local:feed")
    assert (found.root, found.state) == (None, "local:feed")


def test_our_own_data_sets_are_pinned() -> None:
    files = [each for name in DATASETS.names() for each in DATASETS.get(name).hub]
    assert [each.repo for each in files if not is_pinned(each.revision)] == []


def test_pinned_hub_files_need_no_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "commits", lambda *_: pytest.fail("asked the Hub"))
    assert located(card(HubFiles("a/b", ("*",), PIN)), None, None).state == f"hub:{PIN}"


def test_the_revision_of_the_study_goes_before_the_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    other = PIN[::-1]
    assert located(card(HubFiles("a/b", ("*",), PIN)), None, other).state == f"hub:{other}"


def test_a_branch_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def resolve(self: Any, repo: str, repo_type: str, revision: str) -> Any:
        asked.append((repo, revision))
        return ResolvedRevision(resolved=PIN, initial=revision)

    monkeypatch.setattr(huggingface_hub.HfApi, "resolve_revision", resolve)
    branch = card(HubFiles("a/b", ("*",), "main"))
    state = located(branch, None, None).state
    assert (state, asked) == (f"hub:{PIN}", [("a/b", "main")])
    assert located(branch, None, None, stored=state).state == state
    assert len(asked) == 1


def test_without_the_hub_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub.HfApi, "resolve_revision", refuse)
    with pytest.raises(UsageError, match=r"cannot look up a/b .* no route.*give `path`"):
        located(card(HubFiles("a/b", ("*",), "main")), None, None)


def test_a_data_set_without_hub_or_package_asks_for_a_path() -> None:
    with pytest.raises(UsageError, match="no copy on the Hub: give `path`"):
        located(card(), None, None)


def test_a_failed_download_names_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGPU_CACHE", str(tmp_path))

    def refuse(*_: Any, **__: Any) -> Any:
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(DataError, match="cannot download a/b at " + PIN):
        download(card(HubFiles("a/b", ("*",), PIN)), [PIN])


def test_each_repository_goes_to_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGPU_CACHE", str(tmp_path / "ours"))
    asked: list[tuple[str, str, str]] = []

    def snapshot(repo: str, *, repo_type: str, revision: str, allow_patterns: list[str]) -> str:
        asked.append((repo, repo_type, revision))
        for name in ("x/1.parquet", "y/2.parquet"):  # the second was fetched for something else
            (tmp_path / repo / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / repo / name).write_text(repo)
        return str(tmp_path / repo)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    both = card(HubFiles("a/b", ("x/*.parquet",), folder="train"), HubFiles("c/d", ("*",), folder="test"))
    for _ in range(2):
        root = download(both, [PIN, PIN[::-1]])
    assert asked[:2] == [("a/b", "dataset", PIN), ("c/d", "dataset", PIN[::-1])]
    assert {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*.parquet")} == {
        "train/x/1.parquet": "a/b", "test/x/1.parquet": "c/d", "test/y/2.parquet": "c/d"
    }  # fmt: skip


def test_a_data_set_of_two_repositories_has_two_revisions() -> None:
    both = card(HubFiles("a/b", ("*",)), HubFiles("c/d", ("*",)))
    assert located(both, None, f"{PIN}, {PIN[::-1]}").state == f"hub:{PIN},{PIN[::-1]}"
    with pytest.raises(UsageError, match=r"comes from a/b, c/d: `revision` needs 2 commits.*has 1"):
        located(both, None, PIN)


def test_another_version_of_a_package_is_another_state(monkeypatch: pytest.MonkeyPatch) -> None:
    states = []
    for version in ("1.0", "1.1"):
        monkeypatch.setattr(fetch, "package_version", lambda name, version=version: version)
        states.append(located(card(packages=("toy",)), None, None).state)
    assert states == ["package:toy 1.0", "package:toy 1.1"]
