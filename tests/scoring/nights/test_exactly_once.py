"""Whatever is killed, repeated or run at the same time: each request stands once in the table."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sgpu.errors import IntegrityError, StageError
from sgpu.fitted.pinned_model import PinnedModel
from sgpu.scoring.day import score_day
from sgpu.scoring.models.pinning import ScorerSource
from sgpu.scoring.parts import StepRun
from sgpu.scoring.sets import decide
from sgpu.scoring.slices import SliceScorer
from sgpu.storage.bundle_files import bundle_sha256
from tests.scoring.nights import nights
from tests.scoring.nights.counting_scorer import CountingScorer
from tests.scoring.nights.deaths import Instants, Killed
from tests.scoring.nights.nights import (
    DAY,
    SCORER,
    night,
    quarantine,
    reasons,
    row,
    rows,
    scores,
    settings,
    write,
)
from tests.scoring.nights.test_formats import single

BAD = ["{broken", row("one", ["x"]), row("c", ["x", "y"]), row("c", ["x", "z"])]
IDS = [f"q{i:05d}" for i in range(24)]


def small_night(place: Path, **other: Any) -> Any:
    return night(place, bucket_rows=16, **other)


def kill_one(place: Path, monkeypatch: pytest.MonkeyPatch, instant: int, **other: Any) -> None:
    """A night that dies at an instant; the nights after it do not."""
    instants = Instants(monkeypatch)
    instants.kill_at(instant)
    with pytest.raises(Killed):
        small_night(place, **other)
    instants.kill_at(None)


@pytest.fixture
def undisturbed(place: Path) -> Path:
    """A place beside the test's own, where the same logs were scored without trouble."""
    write(place / "logs", "a.jsonl", [*rows(range(24)), *BAD])
    other = place / "undisturbed"
    other.mkdir()
    for name in ("logs", "model"):
        shutil.copytree(place / name, other / name, copy_function=shutil.copy2)
    small_night(other)
    return other


def same(place: Path, undisturbed: Path) -> None:
    """Every published byte is what it would have been."""
    for table in ("scores", "quarantine"):
        assert nights.files(place, table) == nights.files(undisturbed, table)
    assert scores(place)["request_id"].to_list() == IDS


def test_a_run_that_is_killed_at_any_instant_goes_on_to_the_same_bytes(
    place: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instants = Instants(monkeypatch)
    killed = 0
    while True:
        instants.kill_at(killed)
        try:
            small_night(place)
        except Killed:
            instants.kill_at(None)
            small_night(place)
            same(place, undisturbed)
            assert small_night(place).status == "unchanged"
            shutil.rmtree(place / "out")
            killed += 1
        else:
            break
    assert killed > 30


def test_a_run_that_is_killed_again_and_again_gets_there(
    place: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instants = Instants(monkeypatch)
    for _ in range(200):
        instants.kill_at(12)
        try:
            result = small_night(place)
        except Killed:
            continue
        break
    instants.kill_at(None)
    assert result.status in ("committed", "unchanged")
    same(place, undisturbed)


def test_scores_are_not_visible_before_the_commit_and_all_at_once_after_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(place / "logs", "a.jsonl", [*rows(range(24)), *BAD])
    instants, seen = Instants(monkeypatch), set()
    for instant in range(0, 200, 3):
        instants.kill_at(instant)
        try:
            small_night(place)
        except Killed:
            there = (place / "out/scores/_delta_log/00000000000000000000.json").exists()
            seen.add(scores(place).height if there else 0)
            shutil.rmtree(place / "out")
        else:
            break
    assert seen == {0, 24}


def test_late_rows_are_added_and_nothing_else_is_touched(place: Path) -> None:
    write(place / "logs", "a.jsonl", rows(range(20)))
    night(place)
    before = nights.files(place)
    write(place / "logs", "b.jsonl", [*rows(range(15, 30))])
    result = night(place)
    assert result.accounting is not None
    assert (result.accounting.already, result.accounting.scored_rows) == (25, 10)
    assert before.items() <= nights.files(place).items()
    assert scores(place)["request_id"].to_list() == [f"q{i:05d}" for i in range(30)]


def test_the_summary_of_a_day_with_late_rows_is_of_the_whole_day(place: Path) -> None:
    write(place / "logs", "a.jsonl", rows(range(20)))
    night(place)
    write(place / "logs", "b.jsonl", rows(range(20, 30)))
    night(place)
    both = nights.summary(place)
    shutil.rmtree(place / "out")
    night(place)
    once = nights.summary(place)
    assert both["sketch"]["groups"] == once["sketch"]["groups"]
    assert both["accounting"]["requests_before"] == 20


def test_a_delivery_that_is_repeated_on_another_day_is_not_scored_again(place: Path) -> None:
    before, after = DAY - timedelta(days=1), DAY + timedelta(days=1)
    write(place / "logs", "a.jsonl", rows(range(10)))
    write(place / "logs", "a.jsonl", rows(range(5, 15)), before)
    write(place / "logs", "a.jsonl", rows([0, 14, 15]), after)
    for day in (before, after, DAY):
        night(place, day)
    nights.everywhere_once(place)
    assert scores(place).height == 16
    assert not reasons(place)


def delivered(place: Path, back: int, *lines: Any) -> Any:
    """The night of a day after these rows of `DAY` were delivered so many days later."""
    day = DAY + timedelta(days=back)
    write(place / "logs", "a.jsonl", list(lines), day)
    return night(place, day)


def test_a_row_that_is_delivered_again_days_later_stands_once_by_its_own_time(place: Path) -> None:
    results = [delivered(place, back, row("x", ["a", "b"]), row(f"y{back}", ["a", "b"])) for back in range(5)]
    assert scores(place).filter(pl.col("request_id") == "x").height == 1
    assert [one.accounting.already for one in results] == [0, 1, 1, 1, 1]
    nights.everywhere_once(place)


def test_a_row_that_was_first_delivered_late_is_found_by_its_own_time_too(place: Path) -> None:
    delivered(place, 2, row("x", ["a", "b"]))
    assert delivered(place, 9, row("x", ["a", "b"])).accounting.already == 1
    assert reasons(place) == {}
    delivered(place, 8, row("x", ["a", "c"]))
    assert reasons(place) == {"conflicting_duplicate": 1}


def test_single_answers_that_are_delivered_again_days_later_make_no_second_set(place: Path) -> None:
    answers = [single(f"s{i}", "x", i) for i in range(3)]
    delivered(place, 0, *answers)
    assert delivered(place, 6, *answers).accounting.already == 3
    assert scores(place).height == 1


def test_a_run_that_others_have_overtaken_on_a_day_far_away_looks_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = DAY + timedelta(days=9)
    write(place / "logs", "a.jsonl", rows(range(10)))
    write(place / "logs", "a.jsonl", rows(range(5, 15)), far)
    other = Interruption(monkeypatch, lambda: night_of(place, place / "logs"))
    result = score_day(settings(place), far, source=ScorerSource(place / "out" / "work", SCORER), lock=False)
    nights.everywhere_once(place)
    assert result.accounting is not None and other.scored == 2
    assert (result.accounting.scored_rows, result.accounting.already) == (5, 5)


def test_days_far_away_are_opened_where_a_row_names_them_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for back in range(10):
        day = DAY + timedelta(days=back)
        write(place / "logs", "a.jsonl", rows(range(back * 64, back * 64 + 64), day), day)
        night(place, day)
    last = DAY + timedelta(days=9)
    opened: list[tuple[str, str]] = []
    read = decide.read_columns

    def counted(file: Any, *given: Any) -> Any:
        opened.append((file.parent.parent.name, file.name))
        return read(file, *given)

    def opened_on_the_last_day(name: str, *lines: Any) -> list[tuple[str, str]]:
        write(place / "logs", name, list(lines), last)
        opened.clear()
        night(place, last)
        return [(day, file) for day, file in opened if day < f"date={last - timedelta(days=2)}"]

    with monkeypatch.context() as patch:
        patch.setattr(decide, "read_columns", counted)
        assert opened_on_the_last_day("b.jsonl", *rows([700], last)) == []
        far = opened_on_the_last_day("c.jsonl", *rows([1]))
    # One row names 20 November: of this day and the two after it the ids.
    assert len(far) == 3 and {day for day, _ in far} == {f"date=2026-11-{n}" for n in (20, 21, 22)}


def test_a_row_that_was_refused_beside_another_stands_once_when_it_comes_alone(place: Path) -> None:
    delivered(place, 0, row("x", ["a", "b"]), row("x", ["a", "c"]))
    assert delivered(place, 1, row("x", ["a", "b"])).accounting.scored_rows == 1
    assert delivered(place, 2, row("x", ["a", "b"])).accounting.already == 1
    write(place / "logs", "b.jsonl", rows([1]))
    night(place)
    assert scores(place).filter(pl.col("request_id") == "x").height == 1


def test_other_content_under_a_committed_id_is_refused_on_any_day(place: Path) -> None:
    write(place / "logs", "a.jsonl", [row("x", ["a", "a"])])
    night(place)
    write(place / "logs", "b.jsonl", [row("x", ["a", "b"])])
    write(place / "logs", "a.jsonl", [row("x", ["c", "c"])], DAY + timedelta(days=1))
    night(place)
    night(place, DAY + timedelta(days=1))
    assert scores(place)["probability"].to_list() == [1.0]
    assert quarantine(place).select("file", "reason").rows() == [
        ("dt=2026-11-20/b.jsonl", "conflicting_duplicate"),
        ("dt=2026-11-21/a.jsonl", "conflicting_duplicate"),
    ]


def test_an_id_that_two_models_share_is_a_request_of_each(place: Path) -> None:
    both = [{**row("x", ["a", "b"]), "model": name} for name in ("m", "other")]
    write(place / "logs", "a.jsonl", both)
    night(place)
    write(place / "logs", "a.jsonl", [*both, {**both[0], "model": "third"}], DAY + timedelta(days=1))
    result = night(place, DAY + timedelta(days=1))
    assert scores(place).select("request_id", "model").rows() == [("x", "m"), ("x", "other"), ("x", "third")]
    assert result.accounting is not None and result.accounting.already == 2
    assert night(place, rescore=True).accounting.scored_rows == 2  # type: ignore[union-attr]


def test_single_answers_of_one_id_to_two_models_are_in_the_set_of_each(place: Path) -> None:
    one = [single(f"s{i}", f"{i}", i) for i in range(3)]
    write(place / "logs", "a.jsonl", one)
    night(place)
    write(place / "logs", "b.jsonl", [{**line, "model": "other"} for line in one])
    night(place)
    sets = scores(place).sort("model").select("model", "members").rows()
    assert sets == [("m", ["s0", "s1", "s2"]), ("other", ["s0", "s1", "s2"])]


class Interruption:
    """Lets something else happen when the first run has scored all slices, before it can commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
        self.scored, self._inside = 0, False
        done = StepRun.done

        def interrupted(run: StepRun, *given: Any, **named: Any) -> Any:
            contents = done(run, *given, **named)
            if isinstance(run.step, SliceScorer) and not self._inside:
                self.scored += 1
                if self.scored == 1:
                    self._inside = True
                    then()
                    self._inside = False
            return contents

        monkeypatch.setattr(StepRun, "done", interrupted)


def test_a_run_that_others_have_overtaken_looks_again_before_it_commits(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, more = place / "logs", place / "more"
    write(logs, "a.jsonl", rows(range(20)))
    write(more, "a.jsonl", rows(range(10, 30)))
    other = Interruption(monkeypatch, lambda: night_of(place, more))
    result = score_day(settings(place), DAY, source=ScorerSource(place / "out" / "work", SCORER), lock=False)
    nights.everywhere_once(place)
    assert scores(place).height == 30 and other.scored == 2
    assert result.accounting is not None
    assert (result.accounting.scored_rows, result.accounting.already) == (10, 10)


def night_of(place: Path, logs: Path, day: Any = DAY) -> Any:
    """The day of other logs into the same table, without the lock."""
    return score_day(
        settings(place, logs=str(logs)), day, source=ScorerSource(place / "out" / "work", SCORER), lock=False
    )


def test_a_run_of_the_next_day_that_overtakes_does_not_double_what_both_have(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(place / "logs", "a.jsonl", rows(range(20)))
    write(place / "logs", "a.jsonl", rows(range(10, 30)), DAY + timedelta(days=1))
    Interruption(monkeypatch, lambda: night_of(place, place / "logs", DAY + timedelta(days=1)))
    score_day(settings(place), DAY, source=ScorerSource(place / "out" / "work", SCORER), lock=False)
    nights.everywhere_once(place)
    assert scores(place).height == 30


def test_what_an_overtaken_run_has_scored_is_not_scored_again_where_it_is_still_right(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    score = CountingScorer.score

    def counted(scorer: CountingScorer, sets: Any, questions: Any) -> Any:
        calls.append(len(sets))
        return score(scorer, sets, questions)

    monkeypatch.setattr(CountingScorer, "score", counted)
    write(place / "logs", "a.jsonl", rows(range(40)))
    write(place / "logs", "a.jsonl", rows([40]), DAY + timedelta(days=1))
    other = Interruption(monkeypatch, lambda: night_of(place, place / "logs", DAY + timedelta(days=1)))
    score_day(settings(place), DAY, source=ScorerSource(place / "out" / "work", SCORER), lock=False)
    assert other.scored == 2 and sorted(calls) == [1, *[8] * 5]  # slices of the two days
    assert scores(place).height == 41


def test_the_same_run_twice_at_once_commits_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(place / "logs", "a.jsonl", [*rows(range(20)), *BAD])
    Interruption(monkeypatch, lambda: night_of(place, place / "logs"))
    score_day(settings(place), DAY, source=ScorerSource(place / "out" / "work", SCORER), lock=False)
    assert nights.versions(place) == 1 and scores(place).height == 20
    assert not [
        entry for entry in (place / "out" / "work").iterdir() if entry.name not in ("models", "locks", "pins")
    ]


def test_many_runs_at_once_leave_each_request_once(place: Path) -> None:
    days = [DAY, DAY + timedelta(days=1), DAY]
    for number, day in enumerate(days):
        write(place / f"logs{number}", "a.jsonl", rows(range(number * 10, number * 10 + 30), day), day)
    failures: list[Exception] = []

    def run(number: int) -> None:
        try:
            night_of(place, place / f"logs{number % 3}", days[number % 3])
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    nights.everywhere_once(place)
    assert set(scores(place)["request_id"]) == {f"q{i:05d}" for i in range(50)}


def test_a_run_that_goes_on_keeps_the_model_that_its_name_meant_when_it_began(
    place: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_one(place, monkeypatch, 14)
    moved = {"count": 0}

    def resolve(uri: str, work: Path, tracking: str | None) -> PinnedModel:
        moved["count"] += 1
        return PinnedModel(uri, "another", "2", "0" * 64, work)

    monkeypatch.setattr("sgpu.scoring.models.pinning.resolve_model", resolve)
    small_night(place)
    assert moved["count"] == 0
    same(place, undisturbed)


@pytest.mark.parametrize("sizes", [(0.001, 0.004), (0.004, 0.001)])
def test_a_run_that_goes_on_with_parts_of_another_size_loses_nothing(
    place: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch, sizes: tuple[float, float]
) -> None:
    kill_one(place, monkeypatch, 8, split_mb=sizes[0])
    assert any((place / "out" / "work").glob("*/parts/reading/done/*.parquet"))
    small_night(place, split_mb=sizes[1])
    # Rows without an id are dealt out by their place, which the parts give: other files, the same rows.
    assert scores(place).equals(scores(undisturbed))
    assert quarantine(place).equals(quarantine(undisturbed))


def test_a_run_whose_model_is_gone_asks_again_which_one_is_meant(
    place: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_one(place, monkeypatch, 14)
    [kept] = [one for one in (place / "out/work/models").iterdir() if len(one.name) == 64]
    shutil.rmtree(kept)
    small_night(place)
    same(place, undisturbed)


def test_a_run_that_fails_for_its_model_does_not_hold_the_next_one_to_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(place / "logs", "a.jsonl", rows(range(10)))

    def refused(*_: Any) -> Any:
        raise IntegrityError("these are not the weights of the training")

    with monkeypatch.context() as patch:
        patch.setattr("tests.scoring.nights.counting_scorer.open_scorer", refused)
        with pytest.raises(IntegrityError):
            small_night(place)
    shutil.rmtree(place / "model")
    nights.model_folder(place / "model", seed=1)
    small_night(place)
    [used] = scores(place)["scorer_sha256"].unique()
    assert used == bundle_sha256(place / "model")


@pytest.mark.parametrize("name", ["my scores", "Jürgen", "a#b?c"])
def test_a_table_in_a_folder_of_any_name_is_gone_on_with(place: Path, name: str) -> None:
    out = str(place / name)
    write(place / "logs", "a.jsonl", rows(range(10)))
    night(place, out=out)
    write(place / "logs", "b.jsonl", rows(range(5, 15)))
    result = night(place, out=out)
    assert result.accounting is not None
    assert (result.accounting.scored_rows, result.accounting.already) == (5, 15)


def test_a_new_model_scores_nothing_again_and_takes_up_what_the_old_one_could_not(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(place / "logs", "a.jsonl", [*rows(range(10)), row("seven", list("aaabbbc"))])
    night(place)
    assert reasons(place) == {"no_classifier_for_n": 1}
    shutil.rmtree(place / "model")
    nights.model_folder(place / "model", seed=1)
    result = night(place)
    assert result.status == "committed" and result.accounting is not None
    assert (result.accounting.already, result.accounting.scored_rows) == (10, 0)
    assert scores(place)["scorer_sha256"].n_unique() == 1


def test_rescoring_replaces_the_day_and_only_the_day(place: Path) -> None:
    write(place / "logs", "a.jsonl", rows(range(10), DAY - timedelta(days=1)), DAY - timedelta(days=1))
    write(place / "logs", "a.jsonl", rows(range(5, 20)))
    night(place, DAY - timedelta(days=1))
    first = night(place)
    shutil.rmtree(place / "model")
    nights.model_folder(place / "model", seed=1)
    second = night(place, rescore=True)
    assert second.status == "committed" and second.accounting is not None
    assert (second.accounting.scored_rows, second.accounting.already) == (10, 5)
    keys = dict(scores(place).group_by("date").agg(pl.col("run_key").unique()).rows())
    assert keys["2026-11-20"] == [second.run_key] != [first.run_key]
    nights.everywhere_once(place)
    assert scores(place).height == 20
    assert night(place, rescore=True).status == "unchanged"


def test_rescoring_refuses_to_lose_what_is_no_longer_in_the_logs(place: Path) -> None:
    file = write(place / "logs", "a.jsonl", rows(range(10)))
    write(place / "logs", "b.jsonl", rows(range(10, 12)))
    night(place)
    file.unlink()
    with pytest.raises(StageError, match="10 requests are in the table and cannot be scored again"):
        night(place, rescore=True)
    assert scores(place).height == 12


def test_files_that_were_compacted_by_others_are_still_looked_at(place: Path) -> None:
    from deltalake import DeltaTable

    write(place / "logs", "a.jsonl", rows(range(20)))
    night(place)
    DeltaTable(str(place / "out" / "scores")).optimize.compact()
    write(place / "logs", "b.jsonl", rows(range(15, 25)))
    result = night(place)
    assert result.accounting is not None and result.accounting.scored_rows == 5
    nights.everywhere_once(place)
