"""From what a study says of a data set to files on this machine: a local folder, or pinned files of the Hub.

Only a commit of 40 hex digits is a pin. A branch is looked up once, when the data set is prepared, and its
commit goes to the manifest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sgpu.datasets.base import DatasetCard
from sgpu.errors import DataError, SgpuError, UsageError
from sgpu.models.fetched import matches_any
from sgpu.models.weights import cache_dir, is_pinned
from sgpu.provenance import package_version

# Of larger files the name and size must do: hashing tens of gigabytes at each start would take minutes.
HASHED_BYTES = 64 * 2**20
# Folders of images: names and sizes again, since every one of them would have to be read.
MANY_FILES = 1000


@dataclass(frozen=True)
class Located:
    """Where a source's files are. ``state`` changes when they do; ``revision`` is for a person."""

    root: Path | None
    revision: str
    state: str


def local_state(path: Path) -> str:
    """What changes when the files below ``path`` do: names, sizes, and the content of files up to 64 MiB.

    Raises DataError if there is nothing at ``path``.
    """
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    if not files:
        raise DataError(f"{path} holds no file")
    digest = hashlib.sha256()
    small = sum(1 for file in files if file.stat().st_size <= HASHED_BYTES) <= MANY_FILES
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.relative_to(path) if path.is_dir() else file.name}\x1f{size}\x1f".encode())
        if small and size <= HASHED_BYTES:
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return f"local:{digest.hexdigest()[:16]}"


def located(card: DatasetCard, path: Path | None, revision: str | None, stored: str | None = None) -> Located:
    """Where the source is, without downloading anything.

    ``stored`` is the state that was prepared before: it stands where the source itself cannot be seen, so
    that machines without it use what is prepared. Raises UsageError, with what to do, where neither is there.
    """
    if path is not None:
        if path.exists():
            state = local_state(path)
            return Located(path, revision or state, state)
        if stored:
            return Located(None, stored, stored)
        raise UsageError(f"data set {card.name!r}: there is nothing at {path}. {card.raw}")
    if card.packaged:
        state = ", ".join(f"{name} {package_version(name)}" for name in card.packages)
        return Located(None, state, f"package:{state}")
    check_copy(card)
    wanted = revisions(card, revision)
    if all(is_pinned(each) for each in wanted):
        state = "hub:" + ",".join(wanted)
        return Located(None, state, state)
    if stored:
        return Located(None, stored, stored)
    state = "hub:" + ",".join(commits(card, wanted))
    return Located(None, state, state)


def check_copy(card: DatasetCard, rows: int = 0) -> None:
    """Raise UsageError, with what to do, unless packages or the Hub have the data set with so many rows."""
    if card.packaged:
        return
    if not card.hub:
        raise UsageError(
            f"data set {card.name!r} has no copy on the Hub: give `path`, a folder with its files. {card.raw}"
        )
    if card.hub_rows and rows > card.hub_rows:
        raise UsageError(
            f"data set {card.name!r}: the Hub has {card.hub_rows:,} labelled questions, and the study asks "
            f"for {rows:,}: give `path`, or n_train and n_test of at most {card.hub_rows:,}. {card.raw}"
        )


def commits(card: DatasetCard, revisions: Sequence[str]) -> list[str]:
    """The commit of each of the card's Hub repositories; UsageError without access to the Hub."""
    from huggingface_hub import HfApi

    looked_up: list[str] = []
    for files, revision in zip(card.hub, revisions, strict=True):
        with _hub_errors(card, f"cannot look up {files.repo} on the Hub", UsageError):
            found = HfApi().resolve_revision(files.repo, repo_type="dataset", revision=revision)
        looked_up.append(found.resolved)
    return looked_up


def revisions(card: DatasetCard, revision: str | None) -> list[str]:
    """Return one for each repository of the card: the study's, separated by commas, or the card's own."""
    if revision is None:
        return [files.revision for files in card.hub]
    listed = [part.strip() for part in revision.split(",")]
    if len(listed) != len(card.hub):
        repositories = ", ".join(files.repo for files in card.hub)
        raise UsageError(
            f"data set {card.name!r} comes from {repositories}: `revision` needs {len(card.hub)} commits, "
            f"separated by commas, but has {len(listed)}"
        )
    return listed


def download(card: DatasetCard, wanted: Sequence[str]) -> Path:
    """Fetch the card's files at these commits into the Hub's cache; return a folder with links to them alone.

    Raises DataError, with what to do, if they cannot be had.
    """
    from huggingface_hub import snapshot_download

    root = cache_dir() / "datasets" / card.name / hashlib.sha256(",".join(wanted).encode()).hexdigest()[:16]
    for files, commit in zip(card.hub, wanted, strict=True):
        patterns = list(files.patterns)
        with _hub_errors(card, f"cannot download {files.repo} at {commit}", DataError):
            snapshot = Path(
                snapshot_download(files.repo, repo_type="dataset", revision=commit, allow_patterns=patterns)
            )
        for path in snapshot.rglob("*"):
            name = path.relative_to(snapshot).as_posix()
            link = root / files.folder / name
            if path.is_file() and matches_any(name, patterns) and not link.exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.unlink(missing_ok=True)  # to a file that is gone
                with suppress(FileExistsError):  # another process was first
                    link.symlink_to(path)
    return root


@contextmanager
def _hub_errors(card: DatasetCard, action: str, raised: type[SgpuError]) -> Iterator[None]:
    """Raises ``raised``, with what to do, for what the Hub's client raises."""
    from huggingface_hub.errors import HfHubHTTPError, RevisionResolutionError

    try:
        yield
    except (HfHubHTTPError, RevisionResolutionError, OSError) as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
        gate = " Accept its terms on the Hub and set HF_TOKEN." if card.gated else ""
        remedy = f"With access to the Hub run `sgpu data prepare`, or give `path`.{gate} {card.raw}".rstrip()
        raise raised(f"data set {card.name!r}: {action}: {reason}. {remedy}") from error
