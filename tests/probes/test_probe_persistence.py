import numpy as np
import pytest

from sgpu.errors import IntegrityError
from sgpu.gp.persistence import read_files, write_files
from sgpu.probes.base import tuples

WEIGHTS = {"a": np.arange(6.0).reshape(2, 3).T, "b": np.float32([1.5])}


def test_what_was_written_is_read(tmp_path):
    write_files(tmp_path / "new", "probe", {"settings": {"seed": 1}}, WEIGHTS)
    description, weights = read_files(tmp_path / "new", "probe")
    assert description["settings"] == {"seed": 1}
    assert weights["b"].dtype == np.float32
    np.testing.assert_array_equal(weights["a"], WEIGHTS["a"])


def test_changed_weights_are_refused(tmp_path):
    write_files(tmp_path, "probe", {}, WEIGHTS)
    path = tmp_path / "probe.safetensors"
    payload = bytearray(path.read_bytes())
    payload[-1] ^= 1
    path.write_bytes(bytes(payload))
    with pytest.raises(IntegrityError, match="sha256"):
        read_files(tmp_path, "probe")


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_a_missing_file_is_named(tmp_path, suffix):
    write_files(tmp_path, "probe", {}, WEIGHTS)
    (tmp_path / f"probe.{suffix}").unlink()
    with pytest.raises(IntegrityError, match=rf"probe\.{suffix}"):
        read_files(tmp_path, "probe")


def test_lists_become_tuples_and_the_rest_stays():
    assert tuples({"a": [1, None], "b": "x"}) == {"a": (1, None), "b": "x"}
