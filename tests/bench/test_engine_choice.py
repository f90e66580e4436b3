"""Which number formats, engines and threads are compared."""

from __future__ import annotations

from bench.engine_choice import Choice, choices


def test_engines_of_one_thread_and_one_engine_over_all_cores_are_compared_in_both_formats() -> None:
    assert [str(choice) for choice in choices(2)] == [
        "bfloat16 2 x 1", "bfloat16 1 x 2 sleeping", "bfloat16 1 x 2 spinning",
        "float32 2 x 1", "float32 1 x 2 sleeping", "float32 1 x 2 spinning",
    ]  # fmt: skip
    assert Choice("float32", 1, 1) in choices(1)
