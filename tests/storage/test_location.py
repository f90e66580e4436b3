"""Places: the same behaviour in a folder and in object storage, whose own client is the outside witness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sgpu.errors import StageError, UsageError
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import read_rows, row_count, write_rows
from tests.object_store import SECRET, ObjectStore


@pytest.fixture(params=["folder", "object storage"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "folder":
        return Location.of(tmp_path)
    store: ObjectStore = request.getfixturevalue("object_store")
    return Location.of(store.uri("run"))


def client(store: ObjectStore) -> Any:
    import boto3

    return boto3.client("s3", endpoint_url=store.url)


def test_a_file_uri_is_the_folder_that_it_names(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    assert Location.of(folder.as_uri()) == Location.of(folder) == Location.of(str(folder))
    assert str(Location.of(folder.as_uri())) == str(folder)


def test_a_relative_path_is_made_absolute() -> None:
    assert Location.of("runs/a").local == Path.cwd() / "runs" / "a"


@pytest.mark.parametrize("uri", ["s3://bucket/a/b", "gs://bucket/a", "s3://bucket"])
def test_a_uri_is_written_as_it_was_read(uri: str) -> None:
    assert str(Location.of(f"{uri}/")) == uri
    assert str(Location.of(uri) / "x" / "y") == f"{uri}/x/y"


@pytest.mark.parametrize(
    "text",
    [
        "ftp://host/folder",
        "https://host/folder",
        "file://host/folder",
        "s3:/bucket/secret",
        "s3://",
        "s3://key:secret@bucket/a",
        "s3://bucket/a?endpoint_override=host",
        "s3://bucket/a/../b",
        "s3://bucket//a",
    ],
)
def test_what_is_no_place_is_refused_without_repeating_what_may_be_a_secret(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Location.of(text)
    assert "secret" not in str(caught.value)


def test_what_is_written_is_read_and_replaced(place: Location) -> None:
    file = place / "a.txt"
    file.write_bytes(b"one")
    file.write_bytes(b"two")
    assert file.read_bytes() == b"two" and file.is_file() and file.info().size == 3


def test_a_missing_file_is_said_to_be_missing(place: Location) -> None:
    assert not (place / "none").is_file()
    with pytest.raises(FileNotFoundError):
        (place / "none").read_bytes()


def test_files_are_listed_by_name_and_suffix_and_a_missing_folder_has_none(place: Location) -> None:
    for name in ("b.parquet", "a.parquet", "c.json"):
        (place / name).write_bytes(b"x")
    assert [file.name for file in place.files(".parquet")] == ["a.parquet", "b.parquet"]
    assert (place / "none").files() == []


def test_a_deleted_folder_is_gone_and_its_neighbour_is_not(place: Location) -> None:
    for folder in ("a", "ab"):
        (place / folder).make_folder()
        (place / folder / "file").write_bytes(b"x")
    (place / "a").delete()
    (place / "none").delete()
    assert [file.path for file in place.files(recursive=True)] == [(place / "ab" / "file").path]


def test_parquet_rows_come_back(place: Location) -> None:
    rows = pa.table({"question_id": ["a", "b"], "n": [1, 2]})
    write_rows(place / "model=m" / "part.parquet" if not place.is_local else place / "part.parquet", rows)
    (file,) = place.files(".parquet", recursive=True)
    assert read_rows(str(file)).equals(rows)  # the folder model=m adds no column
    assert read_rows(file, ["n"]).column_names == ["n"] and row_count(str(file)) == 2


def test_objects_are_what_another_client_sees(object_store: ObjectStore) -> None:
    s3 = client(object_store)
    (Location.of(object_store.uri("run")) / "model=m/a.json").write_bytes(b"{}")
    s3.put_object(Bucket=object_store.bucket, Key="run/b.json", Body=b"[]")
    assert s3.get_object(Bucket=object_store.bucket, Key="run/model=m/a.json")["Body"].read() == b"{}"
    assert (Location.of(object_store.uri("run")) / "b.json").read_bytes() == b"[]"


def test_a_folder_is_copied_there_and_back(object_store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "from" / "sub").mkdir(parents=True)
    (tmp_path / "from" / "sub" / "a").write_bytes(b"a")
    (tmp_path / "from" / "done.json").write_bytes(b"last")
    place = Location.of(object_store.uri("fit"))
    place.upload(tmp_path / "from", last="done.json")
    place.download(tmp_path / "to")
    assert (tmp_path / "to" / "sub" / "a").read_bytes() == b"a"
    assert (tmp_path / "to" / "done.json").read_bytes() == b"last"


def test_a_key_that_leaves_its_folder_is_not_written(object_store: ObjectStore, tmp_path: Path) -> None:
    client(object_store).put_object(Bucket=object_store.bucket, Key="fit/../../../outside", Body=b"x")
    place = Location.of(object_store.uri("fit"))
    with pytest.raises(StageError, match=r"outside of its folder; remove that object"):
        place.download(tmp_path / "a" / "b" / "to")
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_the_file_named_last_is_missing_where_the_upload_was_cut_off(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_bytes(b"last")
    (tmp_path / "b").write_bytes(b"b")
    object_store.fail(403, 1, ["PUT"])
    place = Location.of(object_store.uri("fit"))
    with pytest.raises(StageError):
        place.upload(tmp_path, last="a.json")
    assert place.files() == []


def test_errors_that_pass_are_tried_again(object_store: ObjectStore) -> None:
    file = Location.of(object_store.uri("a.txt"))
    object_store.fail(500, 2)
    file.write_bytes(b"x")
    object_store.fail(500, 2)
    assert file.read_bytes() == b"x"


@pytest.mark.parametrize(
    ("status", "said"), [(403, "access is denied"), (500, "the storage fails again and again")]
)
def test_errors_that_stay_are_one_sentence_with_the_place_and_the_remedy(
    object_store: ObjectStore, status: int, said: str
) -> None:
    file = Location.of(object_store.uri("a.txt"))
    object_store.fail(status, 1000)
    with pytest.raises(StageError) as caught:
        file.read_bytes()
    message = str(caught.value)
    assert said in message and str(file) in message and "run it again" in message and "\n" not in message


def test_a_missing_bucket_is_named(object_store: ObjectStore) -> None:
    with pytest.raises(StageError, match=r"there is no bucket not-there\. Create it"):
        Location.of("s3://not-there/a").write_bytes(b"x")


def test_no_credential_stands_in_what_travels_to_workers(object_store: ObjectStore) -> None:
    import pickle

    place = Location.of(object_store.uri("run"))
    for travelling in (place, place.filesystem):
        assert SECRET.encode() not in pickle.dumps(travelling)
    assert SECRET not in repr(place.storage_options)


@pytest.mark.parametrize("name", ["rows.jsonl.gz", "rows.jsonl.zst"])
def test_bytes_are_those_of_the_file_whatever_its_name_says_of_compression(
    place: Location, name: str
) -> None:
    (place / name).write_bytes(b"not packed")
    assert (place / name).read_bytes() == b"not packed"
    assert (place / name).info().size == len(b"not packed")


def test_json_is_read_back_and_none_where_there_is_no_file(place: Location) -> None:
    file = place / "work" / "done.json"
    assert file.read_json() is None
    file.write_json({"rows": 300})
    assert file.read_json() == {"rows": 300}
