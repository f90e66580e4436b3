"""Repositories of the Hugging Face Hub, fetched into a folder once, each file compared with its hash.

The folder is a Hugging Face home: wherever it is copied to, `HF_HOME` names it and nothing asks the Hub.
"""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypedDict

from filelock import FileLock

from sgpu.errors import DataError
from sgpu.hashing import sha256_of_file
from sgpu.models.weights import PICKLED, READ, UNREAD
from sgpu.storage.whole import replace_file

RECORD = "fetched.json"


@dataclass(frozen=True)
class HubRepository:
    """A repository at a revision (None: its main branch), and which of its files are read."""

    name: str
    revision: str | None = None
    kind: str = "model"  # or "dataset"
    patterns: tuple[str, ...] = READ

    @property
    def page(self) -> str:
        """The address at which a person accepts its terms."""
        return f"https://huggingface.co/{'datasets/' if self.kind == 'dataset' else ''}{self.name}"


class FileFacts(TypedDict):
    """What is known of a file: its sha256 or, of a small file that only the Hub has, git's hash of it."""

    bytes: int
    sha256: str | None
    git_sha1: str | None


Files = dict[str, FileFacts]


def fetch_repositories(
    repositories: Sequence[HubRepository],
    home: Path,
    cache: Path,
    say: Callable[[str], None],
    lacking: Sequence[object] = (),
) -> Path:
    """Bring each repository into ``cache``, compare each file, and return `RECORD`, written into ``home``.

    Files that are there and match are not fetched again. With ``HF_HUB_OFFLINE`` they are only compared with
    `RECORD`. Raises one DataError, after the last repository, that lists all that is missing or differs, and
    what is ``lacking`` for other reasons.
    """
    from huggingface_hub import is_offline_mode

    record, problems = home / RECORD, [str(problem) for problem in lacking]
    for number, repository in enumerate(repositories, 1):
        say(f"[{number}/{len(repositories)}] {repository.name}")
        try:
            key, files, wrong = _fetch(repository, cache, record)
        except Exception as error:  # the client's errors have no common base, and the others are to come
            problems.append(f"{repository.name}: {_explain(repository, error)}")
            continue
        problems += wrong
        if not is_offline_mode():
            _add(record, key, files)
        total = sum(file["bytes"] for file in files.values())
        say(f"  {len(files)} files, {total / 1e9:,.2f} GB, match their hashes")
    if problems:
        listed = "\n".join(f"- {problem}" for problem in problems)
        raise DataError(f"{len(problems)} problems; everything else is in {cache}:\n{listed}")
    return record


def _read(record: Path) -> dict[str, Files]:
    return json.loads(record.read_text("utf-8")) if record.is_file() else {}


def _add(record: Path, key: str, files: Files) -> None:
    record.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{record}.lock"):  # another study may be fetched at the same time
        known = _read(record)
        known[key] = known.get(key, {}) | files
        replace_file(record, json.dumps(known, indent=1, sort_keys=True).encode())


def _fetch(repository: HubRepository, cache: Path, record: Path) -> tuple[str, Files, list[str]]:
    """Return the key of the repository in `RECORD`, its files that match, and what is wrong with others."""
    from huggingface_hub import HfApi, is_offline_mode, snapshot_download

    name, kind, offline = repository.name, repository.kind, is_offline_mode()
    commit = (
        HfApi().resolve_revision(name, repo_type=kind, revision=repository.revision, cache_dir=cache).resolved
    )
    key = f"{kind}s/{name}@{commit}"
    expected = _read(record).get(key, {}) if offline else _list_files(repository, commit)
    if not expected:
        raise DataError(f"{RECORD} lists no file of {key}. Fetch it where the Hub can be reached.")
    problems: dict[str, str] = {}
    for _ in range(2):  # what was damaged on its way, or here, is fetched once more
        folder = Path(
            snapshot_download(
                name,
                repo_type=kind,
                revision=commit,
                cache_dir=cache,
                allow_patterns=[] if offline else [glob.escape(file) for file in expected],
                local_files_only=offline,
            )
        )
        compared = {file: _compare(folder / file, facts) for file, facts in expected.items()}
        problems = {file: problem for file, problem in compared.items() if problem}
        if not problems or offline:
            break
        for file in problems:  # nothing may read it
            (folder / file).resolve().unlink(missing_ok=True)
            (folder / file).unlink(missing_ok=True)
    files = {
        file: FileFacts({**facts, "sha256": facts["sha256"] or sha256_of_file(folder / file)})
        for file, facts in expected.items()
        if file not in problems
    }
    remedy = "Copy the folder again." if offline else "Try again later, or fetch from another endpoint."
    return key, files, [f"{folder / file}: {problem}. {remedy}" for file, problem in problems.items()]


def _list_files(repository: HubRepository, commit: str) -> Files:
    """Return the files to fetch; of pickled weights only those that no safetensors replace."""
    from huggingface_hub import HfApi, RepoFile

    tree = HfApi().list_repo_tree(repository.name, recursive=True, revision=commit, repo_type=repository.kind)
    files = {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}
    chosen = {file for file in files if matches_any(file, repository.patterns)}
    if repository.kind == "model":
        chosen -= {file for file in chosen if matches_any(file, UNREAD)}
    if repository.kind == "model" and not any(file.endswith(".safetensors") for file in chosen):
        if PICKLED not in files:
            raise DataError(f"{repository.page} has no .safetensors file and no {PICKLED} at {commit}")
        chosen.add(PICKLED)
    if not chosen:
        listed = ", ".join(repository.patterns)
        raise DataError(f"{repository.page} has no file of {listed} at {commit}. Take another revision.")
    return {
        file: FileFacts(
            bytes=entry.size,
            sha256=entry.lfs.sha256 if entry.lfs else None,
            git_sha1=None if entry.lfs else entry.blob_id,
        )
        for file, entry in files.items()
        if file in chosen
    }


def matches_any(file: str, patterns: Sequence[str]) -> bool:
    """Whether a file's path is of one of the patterns, in which a * stands for slashes too."""
    return any(fnmatchcase(file, pattern) for pattern in patterns)


def _compare(path: Path, expected: FileFacts) -> str | None:
    """Return how a file differs from what is known of it; None if it does not."""
    if not path.is_file():
        return "the file is missing"
    if (size := path.stat().st_size) != expected["bytes"]:
        return f"the file has {size:,} bytes, expected {expected['bytes']:,}"
    if expected["sha256"] is not None:
        found = sha256_of_file(path)
        return None if found == expected["sha256"] else f"sha256 is {found}, expected {expected['sha256']}"
    content = path.read_bytes()
    found = hashlib.sha1(b"blob %d\0" % size + content, usedforsecurity=False).hexdigest()
    return None if found == expected["git_sha1"] else f"git sha1 is {found}, expected {expected['git_sha1']}"


def _explain(repository: HubRepository, error: Exception) -> str:
    """Return what the Hub's client raised in one line, with what to do."""
    from huggingface_hub.errors import GatedRepoError

    if isinstance(error, GatedRepoError):
        return f"gated. Accept its terms at {repository.page}, and set HF_TOKEN."
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line)[:300] or type(error).__name__
