from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field

from sgpu.errors import UsageError
from sgpu.study.file import read_tree, validated
from sgpu.study.specs import Strict


class Part(Strict):
    size: int = Field(default=1, ge=1)


class Whole(Strict):
    name: str = "x"
    part: Part | None = None
    parts: list[Part] = Field(default_factory=list)


class Several(Strict):
    either: int | Literal["auto"] = "auto"
    named: dict[str, Part] = Field(default_factory=dict)
    day: date | None = None


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    return path


def test_overrides_change_settings_in_sections_and_lists(tmp_path: Path) -> None:
    path = written(tmp_path, "name: a\nparts: [{size: 2}, {size: 3}]\n")
    tree = read_tree(path, ["part.size=5", "parts.1.size=7", "name=b"])
    assert validated(Whole, tree, path) == Whole(
        name="b", part=Part(size=5), parts=[Part(size=2), Part(size=7)]
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nam: a", "nam: unknown key. Did you mean 'name'? Known: name, part, parts."),
        ("part: {siz: 2}", "part.siz: unknown key. Did you mean 'size'? Known: size."),
        ("parts: [{size: 1}, {siz: 2}]", "parts.1.siz: unknown key. Did you mean 'size'? Known: size."),
        ("part: {size: 0}", "part.size: Input should be greater than or equal to 1 (got 0)"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_what_is_known(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        validated(Whole, read_tree(path), path)
    assert message in str(caught.value) and str(path) in str(caught.value)


def test_a_value_of_several_types_is_one_line_with_a_key_that_can_be_typed(tmp_path: Path) -> None:
    path = written(tmp_path, "either: x\nnamed: {a: {siz: 1}}\n")
    with pytest.raises(UsageError) as caught:
        validated(Several, read_tree(path), path)
    either, named = str(caught.value).splitlines()[1:]
    assert either.startswith("  either: ") and "valid integer" in either and "'auto'" in either
    assert named.startswith("  named.a.siz: unknown key. Did you mean 'size'?")


def test_a_wrong_date_is_answered_with_its_form() -> None:
    with pytest.raises(UsageError, match=r"day: expected a date written as YYYY-MM-DD \(got '20-11-2026'\)"):
        validated(Several, {"day": "20-11-2026"}, "command line")


@pytest.mark.parametrize("override", ["name", "=1", "parts.9.size=1", "name.a=1"])
def test_an_override_that_leads_nowhere_is_a_usage_error(tmp_path: Path, override: str) -> None:
    path = written(tmp_path, "name: a\nparts: [{size: 2}]\n")
    with pytest.raises(UsageError, match="--set"):
        read_tree(path, [override])


@pytest.mark.parametrize("value", ["['", "[", "2026-13-40", "[http://u:hunter2@h", "[" * 9999])
def test_an_override_whose_value_is_not_yaml_is_a_usage_error_that_says_so(
    tmp_path: Path, value: str
) -> None:
    with pytest.raises(UsageError, match=r"(?s)--set.*part\.size.*the value is not YAML") as caught:
        read_tree(written(tmp_path, "name: a"), [f"part.size={value}"])
    assert "hunter" not in str(caught.value)


def test_an_impossible_date_in_a_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"s\.yaml is not YAML.*month"):
        read_tree(written(tmp_path, "day: 2026-13-40"))


def test_what_is_not_a_mapping_in_yaml_is_a_usage_error(tmp_path: Path) -> None:
    for text, message in (("- a\n", "must be a mapping"), ("a: [", "is not YAML")):
        with pytest.raises(UsageError, match=message):
            read_tree(written(tmp_path, text))
    with pytest.raises(UsageError, match="does not exist"):
        read_tree(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match="is a folder"):
        read_tree(tmp_path)


@pytest.mark.parametrize(
    "text",
    ["name: [http://user:hunter2@host/v1]", "part: 'http://u:hunter2@h?k=hunter3'", "a: [http://u:hunter2@h"],
)
def test_errors_do_not_show_the_password_of_an_address(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(UsageError) as caught:
        validated(Whole, read_tree(tmp_path / "x.yaml"), tmp_path / "x.yaml")
    assert "hunter" not in str(caught.value)


def test_an_override_does_not_show_the_password_of_an_address(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("name: []")
    for override in ("name.x=http://user:hunter2@host", "http://user:hunter2@host"):
        with pytest.raises(UsageError, match="--set") as caught:
            read_tree(tmp_path / "x.yaml", [override])
        assert "hunter" not in str(caught.value)
