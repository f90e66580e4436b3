"""A model of one's own sets: what its classifiers learn from, at each number of answers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sgpu.encoders.spectra import spectra_by_set_size
from sgpu.errors import DataError
from sgpu.fitted.profile import shares_of
from sgpu.stages import own_model
from sgpu.stages.labelled_sets import LabelledSets
from sgpu.stages.own_model import OwnModel
from sgpu.study.fit_settings import FitSettings
from sgpu.study.specs import ClassifierSpec
from sgpu.watch.comparisons import training_reference
from tests.scoring.made_models import RULE, OneHotEncoder, load_one_hot


@pytest.fixture(autouse=True)
def encoders(monkeypatch: pytest.MonkeyPatch) -> list[OneHotEncoder]:
    return load_one_hot(monkeypatch, "sgpu.stages.own_model")


def made(counts: Sequence[int] = (6,), rows: int = 120) -> LabelledSets:
    """Sets of which some agree, right where most do; a third of them to test, a sixth to calibrate."""
    rng = np.random.default_rng(0)
    answers, label = [], []
    for i in range(rows):
        n, sure = counts[i % len(counts)], rng.random()
        answers.append(["yes" if rng.random() < sure else f"no {rng.integers(30)}" for _ in range(n)])
        label.append(int(rng.random() < 0.05 + 0.9 * sure))
    split = np.array([("train", "validation", "test", "train", "train", "test")[i % 6] for i in range(rows)])
    ids = [f"q{i}" for i in range(rows)]
    source = ("own", "0" * 64)
    return LabelledSets(ids, answers, np.array(label), split, counts[0], "given", {}, (), *source, ids)


def spec(method: str = "sgpu", **values: Any) -> FitSettings:
    return FitSettings(encoder="one-hot", classifier=ClassifierSpec(inducing=16, **values), method=method)


def made_with_questions() -> LabelledSets:
    """`made`, where an answer is right if it is "yes"; every fourth question is unusable."""
    sets = made((6, 3))
    questions = ["Long prompts say yes. " * 20 if i % 4 == 3 else "Is it?" for i in range(120)]
    votes = [[int(text == "yes") for text in own] for own in sets.answers]
    return replace(sets, questions=questions, votes=votes)


def test_every_classifier_learns_from_the_training_rows_that_have_its_answers() -> None:
    sets = made((6, 3, 10))
    model = OwnModel(sets, spec(sizes=[2, 5, 8])).model
    train = [len(sets.answers[i]) for i in np.flatnonzero(sets.split == "train")]
    expected = {n: sum(count >= n for count in train) for n in (2, 5, 6, 8)}
    assert model.require_spectrum().gp.fit_report.rows == expected[6]
    assert model.require_spectrum().others.size_free is not None
    assert model.require_spectrum().others.size_free.fit_report.rows == sum(expected.values())


def test_training_spectra_are_those_of_parts_of_the_answers() -> None:
    sets = made((6, 4))
    fitted = OwnModel(sets, spec(sizes=[2, 4]))
    training = fitted._training()
    rows = np.flatnonzero(sets.split == "train")
    full = [row for row, place in enumerate(rows) if len(sets.answers[place]) == 6]
    own = spectra_by_set_size([sets.answers[rows[row]] for row in full], OneHotEncoder())[6].spectra
    assert training.by_size[6][full] == pytest.approx(own, abs=1e-5)
    short = [row for row in range(len(rows)) if row not in full]
    assert np.isnan(training.by_size[6][short]).all()
    assert training.by_size[2].sum(axis=1) == pytest.approx(np.full(len(rows), 2.0))
    assert training.label.tolist() == sets.label[rows].tolist()


def test_no_row_of_another_side_is_trained_on() -> None:
    sets = made((6, 3))
    first = OwnModel(sets, spec()).model.require_spectrum()
    for i in np.flatnonzero(sets.split != "train"):
        sets.answers[i][:] = ["changed"] * len(sets.answers[i])
        sets.label[i] = 1 - sets.label[i]
    second = OwnModel(sets, spec()).model.require_spectrum()
    rows = np.array([[6.0, 0, 0, 0, 0, 0], [2.0, 1, 1, 1, 1, 0]])
    for ours, theirs in zip(first.gp.predict(rows), second.gp.predict(rows), strict=True):
        assert np.array_equal(ours, theirs)


def test_small_pieces_give_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = made((6, 3, 4))
    whole = OwnModel(sets, spec())
    monkeypatch.setattr(own_model, "SETS_AT_A_TIME", 7)
    monkeypatch.setattr(own_model, "TEXTS_KEPT", 5)
    pieces = OwnModel(sets, spec())
    for n, spectra in whole._training().by_size.items():
        assert np.array_equal(spectra, pieces._training().by_size[n], equal_nan=True)
    assert np.array_equal(whole.predict("test")[0].probability, pieces.predict("test")[0].probability)


def test_it_predicts_as_the_saved_model_does(tmp_path: Any) -> None:
    from sgpu.fitted.model import FittedModel

    fitted = OwnModel(made((6, 3, 10)), spec())
    fitted.model.save(tmp_path)
    answers, label = fitted.sets.part("test")
    prediction, same = fitted.predict("test")
    assert np.array_equal(same, label)
    assert np.array_equal(prediction.probability, FittedModel.load(tmp_path).predict(answers).probability)


def test_heads_are_fitted_instead_where_asked_for() -> None:
    model = OwnModel(made((6, 3)), spec(other_n="heads", sizes=[2, 3, 5, 8])).model
    assert sorted(model.require_spectrum().others.by_n) == [2, 3, 5]
    assert model.require_spectrum().others.size_free is None


def test_without_other_sizes_fewer_answers_are_an_error_that_counts_them() -> None:
    with pytest.raises(DataError, match=r"6 answers \(60 rows\).*the 60 sets with fewer\. Give n = 3"):
        OwnModel(made((6, 3)), spec(other_n="none"))
    assert OwnModel(made((6, 9)), spec(other_n="none")).model.require_spectrum().n_answers == 6


def test_one_class_is_an_error() -> None:
    sets = made()
    sets.label[:] = 1
    with pytest.raises(DataError, match="needs both classes"):
        OwnModel(sets, spec())


def test_the_profile_holds_training_sets_as_the_model_reads_them() -> None:
    fitted = OwnModel(made((6, 3)), spec())
    profile = fitted.with_profile(RULE).profile
    assert profile is not None and profile.rule == RULE
    answers, label = fitted.sets.part("train")
    assert profile.sizes.tolist() == [len(own) for own in answers]
    spectra = [spectra_by_set_size([own], OneHotEncoder())[len(own)].spectra for own in answers]
    expected = [shares_of(own)[0] for own in spectra]
    assert profile.shares == pytest.approx(np.array(expected), abs=1e-6)
    assert (profile.training_rows, profile.base_rate) == (len(label), label.mean())
    tested = fitted.predict("test")[0].probability
    assert profile.histogram.tolist() == np.histogram(tested, bins=50, range=(0, 1))[0].tolist()


def test_the_profile_holds_one_row_of_each_group() -> None:
    sets = replace(made(), groups=[f"g{i // 12}" for i in range(120)])
    fitted = OwnModel(replace(sets, split=np.repeat(["train", "test"], [84, 36])), spec())
    profile = fitted.with_profile(None).profile
    assert profile is not None and (len(profile.shares), profile.held_out_rows) == (7, 3)
    # Each probability is that of a row of another group.
    bins = np.minimum((fitted.predict("test")[0].probability * 50).astype(int), 49).reshape(3, 12)
    counted = np.repeat(np.arange(50), profile.histogram).tolist()
    assert any(sorted(drawn) == counted for drawn in itertools.product(*bins))


def test_provenance_says_what_it_was_made_of() -> None:
    made_of = OwnModel(made((6, 3)), spec()).model.provenance
    assert (made_of["source"], made_of["judge"], made_of["answers"]) == ("own", "given", {"3": 60, "6": 60})
    assert made_of["classifier"]["inducing"] == 16


def test_a_fit_of_sgpu_plus_predicts_as_the_saved_model_does_with_questions(tmp_path: Any) -> None:
    from sgpu.fitted.model import FittedModel

    fitted = OwnModel(made_with_questions(), spec("sgpu_plus"))
    fitted.model.save(tmp_path)
    answers, questions = fitted.sets.part("test")[0], fitted.sets.questions_of("test")
    ours, theirs = fitted.predict("test")[0], FittedModel.load(tmp_path).predict(answers, questions)
    assert (ours.by.count("agreement"), ours.by.count("spectrum")) == (30, 10)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.isnan(ours.p_answer[ours.chosen >= 0]).any()


def test_a_fit_of_sgpu_plus_has_the_spectra_of_one_of_sgpu() -> None:
    sets = made_with_questions()
    plus, plain = OwnModel(sets, spec("sgpu_plus")), OwnModel(sets, spec())
    spectra = [one.model.predict(sets.part("test")[0]).probability for one in (plus, plain)]
    assert np.array_equal(*spectra)
    ours, theirs = (one.with_profile(RULE).profile for one in (plus, plain))
    assert ours is not None and theirs is not None
    tested = plus.predict("test")[0].probability
    assert ours.histogram.tolist() == np.histogram(tested, bins=50, range=(0, 1))[0].tolist()
    # Sets that are read by agreement have no spectrum in later traffic, so the profile has none of them.
    train = zip(sets.part("train")[0], sets.questions_of("train"), strict=True)
    by_agreement = np.array([plus.model.why_no_agreement(*row) is None for row in train])
    assert 0 < by_agreement.sum() < 60 and np.array_equal(np.isnan(ours.shares[:, 0]), by_agreement)
    assert np.array_equal(ours.shares[~by_agreement], theirs.shares[~by_agreement])
    assert ours.sizes.tolist() == theirs.sizes.tolist()
    assert len(np.asarray(training_reference(ours).shares)) == (~by_agreement).sum()
    assert (plus.model.provenance["method"], plain.model.content) == ("sgpu_plus", None)


def test_agreement_learns_from_training_rows_that_it_applies_to() -> None:
    sets = made_with_questions()
    content = OwnModel(sets, spec("sgpu_plus")).model.content
    usable = [i for i in np.flatnonzero(sets.split == "train") if i % 4 != 3]
    assert content is not None and content.sets.fit_report.rows == len(usable)


def test_sets_that_agreement_does_not_apply_to_cannot_be_fitted_with_sgpu_plus() -> None:
    with pytest.raises(
        DataError, match=r"sgpu_plus: there are no questions.*column `question`, or fit by sgpu"
    ):
        OwnModel(made(), spec("sgpu_plus"))
    long = replace(made_with_questions(), questions=["word " * 61] * 120)
    with pytest.raises(DataError, match=r"applies to 0 of 60 training rows.*put the question alone there"):
        OwnModel(long, spec("sgpu_plus"))


def test_by_default_questions_are_read_where_there_are_enough_and_else_it_is_said_why_not() -> None:
    fitted, without = OwnModel(made_with_questions(), spec("auto")), OwnModel(made(), spec("auto"))
    assert fitted.method == fitted.model.provenance["method"] == "sgpu_plus"
    assert without.method == "sgpu" and without.model.content is None
    assert without.notes == [
        "fitted by sgpu, not sgpu_plus: there are no questions to read: give them in column `question`"
    ]
