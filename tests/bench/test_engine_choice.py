"""Which choices of dtype and threads are compared."""

from __future__ import annotations

from bench.engine_choice import Choice, choices


def test_all_cores_spinning_and_sleeping_and_one_thread_are_compared_in_both_dtypes() -> None:
    assert [str(choice) for choice in choices(2)] == [
        "bfloat16 2 sleeping", "bfloat16 2 spinning", "bfloat16 1",
        "float32 2 sleeping", "float32 2 spinning", "float32 1",
    ]  # fmt: skip
    assert choices(1) == [Choice("bfloat16", 1, False), Choice("float32", 1, False)]
