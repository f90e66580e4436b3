"""Where results are kept: a folder of this machine, or a prefix in a bucket of object storage.

Credentials, region and endpoint come from the environment, the provider's own files or the machine's role, as
its tools read them; nothing of them is written anywhere by us. What the errors of object storage mean is read
from the messages of the libraries that reach it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

import pyarrow.fs as pa_fs

from sgpu.errors import StageError, UsageError
from sgpu.hashing import canonical_json
from sgpu.storage.whole import draft_of_folder, replace_file, replace_folder

LOCAL = "file"
BUCKETS = ("s3", "gs")
# No room for credentials, options or escapes, which the tools beneath read in different ways.
_BUCKET_PATH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[^/?#@%\\\s]+)*")
ATTEMPTS = 6
PRIVATE = 0o700


def only_ours(location: Location) -> None:
    """Let what this process and those that it starts write from now on be for this user alone.

    Raises UsageError for object storage, where this is not ours to say.
    """
    if not location.is_local:
        raise UsageError(f"private is for folders of this machine; {location} has rules of its own")
    os.umask(0o777 - PRIVATE)


@dataclass(frozen=True)
class Location:
    """A folder or a file. ``path`` is what the filesystem takes: absolute, or bucket/key."""

    scheme: str
    path: str

    @classmethod
    def of(cls, address: Location | Path | str) -> Location:
        """A path, file:///..., s3://bucket/prefix or gs://bucket/prefix; UsageError for anything else."""
        if isinstance(address, Location):
            return address
        scheme, mark, tail = str(address).partition("://")
        if isinstance(address, Path) or not mark:
            # A URI that somebody made a path of has lost a slash, and would become a folder called "s3:".
            if {f"{name}:" for name in (LOCAL, *BUCKETS)} & set(Path(address).parts):
                raise UsageError("object storage cannot be used here; give a folder of this machine")
            return cls(LOCAL, str(Path(address).absolute()))
        if scheme == LOCAL:
            parsed = urlparse(str(address))
            if parsed.netloc not in ("", "localhost"):
                raise UsageError(f"{address} names the host {parsed.netloc!r}; write file:///absolute/path")
            return cls(LOCAL, str(Path(url2pathname(parsed.path)).absolute()))
        forms = ", ".join(f"{name}://bucket/prefix" for name in BUCKETS)
        if scheme not in BUCKETS:
            raise UsageError(
                f"there is no storage of the scheme {scheme!r}; give a folder, file:///folder, {forms}"
            )
        path = tail.rstrip("/")
        if not _BUCKET_PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
            raise UsageError(
                f"a place of the form {scheme}://... is a bucket and a prefix without spaces and ?#@%\\; "
                "credentials, region and endpoint come from the environment"
            )
        return cls(scheme, path)

    def __truediv__(self, part: str | PurePosixPath) -> Location:
        return Location(self.scheme, f"{self.path.rstrip('/')}/{part}")

    def __str__(self) -> str:
        return self.path if self.is_local else f"{self.scheme}://{self.path}"

    @property
    def is_local(self) -> bool:
        return self.scheme == LOCAL

    @property
    def local(self) -> Path:
        assert self.is_local, f"{self} is not on this machine"
        return Path(self.path)

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def parent(self) -> Location:
        return Location(self.scheme, str(PurePosixPath(self.path).parent))

    @property
    def bucket(self) -> str:
        return self.path.partition("/")[0]

    @property
    def filesystem(self) -> Any:
        """The pyarrow filesystem that takes `path`."""
        if self.is_local:
            return pa_fs.LocalFileSystem()
        return _gs() if self.scheme == "gs" else _s3(self.bucket, _endpoint(), _region())

    @property
    def storage_options(self) -> dict[str, str] | None:
        """What delta-rs needs beside the URI; None for a local folder."""
        if self.is_local:
            return None
        options = {"max_retries": str(ATTEMPTS), "retry_timeout": "60s", "timeout": "60s"}
        if self.scheme == "s3":
            # Commits are objects that only one writer can create; no lock table beside the bucket is needed.
            options |= {"aws_conditional_put": "etag", "aws_region": self.filesystem.region}
            if endpoint := _endpoint():
                options |= {"aws_endpoint_url": endpoint}
                options |= {"aws_allow_http": "true"} if endpoint.startswith("http://") else {}
        return options

    def is_file(self) -> bool:
        return bool(self.info().type == pa_fs.FileType.File)

    def info(self) -> Any:
        """pyarrow's FileInfo: size and time of the last change."""
        with self.errors():
            return self.filesystem.get_file_info(self.path)

    def files(self, suffix: str = "", *, recursive: bool = False) -> list[Location]:
        """The files in a folder in order of their names; none where there is no folder."""
        return [file for file in self.infos(recursive=recursive) if file.path.endswith(suffix)]

    def infos(self, *, recursive: bool = False) -> dict[Location, Any]:
        """`files`, each with its `info`, from one listing."""
        selector = pa_fs.FileSelector(self.path, recursive=recursive, allow_not_found=True)
        with self.errors():
            infos = self.filesystem.get_file_info(selector)
        files = (info for info in infos if info.type == pa_fs.FileType.File)
        return {Location(self.scheme, info.path): info for info in sorted(files, key=lambda info: info.path)}

    def read_bytes(self) -> bytes:
        """Raises FileNotFoundError where there is no file."""
        with self.errors(), self.filesystem.open_input_stream(self.path, compression=None) as stream:
            return bytes(stream.read())

    def write_bytes(self, payload: bytes) -> None:
        """Write a file so that readers see the old content or the new, never a part."""
        if self.is_local:
            replace_file(self.local, payload)
            return
        with self.errors(), self.filesystem.open_output_stream(self.path, compression=None) as stream:
            stream.write(payload)

    def read_json(self) -> Any:
        """What the JSON file holds; None where there is no file."""
        try:
            return json.loads(self.read_bytes())
        except FileNotFoundError:
            return None

    def write_json(self, content: Any) -> None:
        """Canonical JSON, whole or not at all, in a folder that is made for it."""
        self.parent.make_folder()
        self.write_bytes(canonical_json(content).encode())

    def make_folder(self) -> None:
        """Object storage has no folders, so there it does nothing."""
        if self.is_local:
            self.local.mkdir(parents=True, exist_ok=True)

    def make_private(self) -> None:
        """As `make_folder`, for what holds answers: nobody else may enter, unless it is somebody else's."""
        self.make_folder()
        if self.is_local:
            with suppress(PermissionError):
                self.local.chmod(PRIVATE)

    def delete(self) -> None:
        """Remove a folder with all that it holds, or a file, if it is there."""
        if self.is_local:
            self.local.unlink(missing_ok=True) if self.local.is_file() else shutil.rmtree(
                self.local, ignore_errors=True
            )
            return
        with self.errors():
            kind = self.info().type
            if kind == pa_fs.FileType.File:
                self.filesystem.delete_file(self.path)
            elif kind == pa_fs.FileType.Directory:
                self.filesystem.delete_dir(self.path)

    def upload(self, folder: Path, last: str = "") -> None:
        """Copy all files of a local folder here; the one named ``last`` after the others."""
        files = [path for path in folder.rglob("*") if path.is_file()]
        for path in sorted(files, key=lambda path: (path.name == last, path)):
            (self / path.relative_to(folder).as_posix()).write_bytes(path.read_bytes())

    def download(self, folder: Path) -> None:
        """Make ``folder`` a copy of this one, whole or not at all; StageError for a key that leaves it."""
        with draft_of_folder(folder) as draft:
            for file in self.files(recursive=True):
                name = PurePosixPath(file.path.removeprefix(f"{self.path}/"))
                if name.is_absolute() or ".." in name.parts:
                    raise StageError(f"{file} would be written outside of its folder; remove that object")
                target = draft / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())
            replace_folder(draft, folder)

    @contextmanager
    def on_this_machine(self) -> Iterator[Path]:
        """A file or folder as a path; a copy, for as long as it is used, where it lies in object storage."""
        if self.is_local:
            yield self.local
            return
        with TemporaryDirectory(prefix="sgpu-") as folder:
            copy = Path(folder, self.name)
            if self.is_file():
                copy.write_bytes(self.read_bytes())
            else:
                self.download(copy)
            yield copy

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What object storage raises becomes a StageError with cause and remedy; local errors pass."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            if self.is_local:
                raise
            raise StageError(explain_storage_error(self.scheme, self.path, str(error))) from error


def _endpoint() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


def _region() -> str | None:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None


@lru_cache(maxsize=8)
def _s3(bucket: str, endpoint: str | None, region: str | None) -> Any:
    if region is None:  # only Amazon's own service says where a bucket is
        region = "us-east-1" if endpoint else _region_of(bucket)
    return pa_fs.S3FileSystem(
        region=region,
        endpoint_override=endpoint,
        allow_delayed_open=True,  # a small file is one request
        background_writes=False,  # in the caller's thread: nothing of a write is left when it has failed
        retry_strategy=pa_fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
    )


def _region_of(bucket: str) -> str:
    with Location("s3", bucket).errors():
        return str(pa_fs.resolve_s3_region(bucket))


@lru_cache(maxsize=1)
def _gs() -> Any:
    return pa_fs.GcsFileSystem()


# A pattern of the message in lower case -> what it means, and what to do.
_CAUSES = (
    (r"no_such_bucket|nosuchbucket|bucket does not exist", "there is no bucket {bucket}", "Create it"),
    (
        r"no credentials|169\.254\.169\.254|could not (find|load) .*credentials|metadata\.google",
        "no credentials were found",
        "Set them in the environment or give the machine a role that may use the bucket",
    ),
    (
        r"invalid_access_key|invalidaccesskeyid|signature_does_not_match|signaturedoesnotmatch"
        r"|expired_?token|invalid_?token",
        "the credentials are wrong or have expired",
        "Renew them",
    ),
    (
        r"access_denied|accessdenied|403|forbidden|privileges",
        "access is denied",
        "Allow listing, reading, writing and deleting objects under this prefix",
    ),
    (
        r"network_connection|error sending request|connection refused|could not resolve|timed? ?out"
        r"|response body error",
        "the storage does not answer",
        "Check the network and the endpoint",
    ),
    (
        r"internal_failure|internalerror|slow_?down|service_unavailable|status 5\d\d|\b50[0234]\b",
        "the storage fails again and again",
        "Try later",
    ),
)


def cause(scheme: str, path: str, message: str) -> str | None:
    """What the message means for this place, with the remedy; None if it is of another kind."""
    for pattern, meaning, remedy in _CAUSES:
        if re.search(pattern, message.lower()):
            reason = meaning.format(bucket=path.partition("/")[0])
            return f"cannot use {scheme}://{path}: {reason}. {remedy}, and run it again."
    return None


def explain_storage_error(scheme: str, path: str, message: str) -> str:
    """Return what `cause` makes of the message, or its first line."""
    first = next((line.strip() for line in message.splitlines() if line.strip()), "unknown error")
    return cause(scheme, path, message) or f"cannot use {scheme}://{path}: {first}"
