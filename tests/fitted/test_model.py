"""A fitted model as one folder: saved, loaded by path or URI, and scoring answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import sgpu
from sgpu.agreement import content_agreement
from sgpu.encoders.cards import ENCODERS
from sgpu.errors import DataError, IntegrityError, UsageError
from sgpu.fitted.model import FittedModel, load_model
from sgpu.fitted.spectrum_classifier import SpectrumClassifier
from sgpu.gp import GPClassifier
from sgpu.gp.content import ContentClassifier
from sgpu.gp.heads import OtherSizes
from sgpu.gp.representation import size_free

AGREE, DIFFER = ["yes", "yes", "yes", "yes"], ["yes", "no", "maybe", "42"]


class OneHotEncoder:
    """Every distinct text gets its own axis, so the eigenvalues are the counts of the texts."""

    name, dtype, dim, fingerprint = "one-hot", "float32", 64, "f00d"

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        known = list(dict.fromkeys(texts))
        return np.eye(self.dim, dtype=np.float32)[[known.index(text) for text in texts]]


@pytest.fixture(autouse=True)
def one_hot(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The encoder that the library would load; returns the (name, dtype) that it was asked for."""
    asked = []

    def load(name: str, dtype: str = "auto", *_: object) -> OneHotEncoder:
        asked.append((name, dtype))
        return OneHotEncoder()

    monkeypatch.setattr("sgpu.fitted.spectrum_classifier.load_encoder", load)
    return asked


@pytest.fixture(scope="module")
def gp() -> GPClassifier:
    counts = np.array([[4, 0, 0, 0], [3, 1, 0, 0], [2, 1, 1, 0], [1, 1, 1, 1]] * 15, dtype=float)
    return GPClassifier().fit(counts, counts[:, 0] > 2)


@pytest.fixture
def model(gp: GPClassifier) -> FittedModel:
    spectrum = SpectrumClassifier(gp, "one-hot", "float32", 4, "f00d")
    return FittedModel(spectrum, {"study": "demo", "rows": 60})


@pytest.fixture
def folder(model: FittedModel, tmp_path: Path) -> Path:
    model.save(tmp_path / "model")
    return tmp_path / "model"


def test_answers_that_agree_are_trusted_more(model: FittedModel, one_hot: list[tuple[str, str]]) -> None:
    prediction = model.predict([AGREE, DIFFER])
    assert prediction.probability[0] > 0.8 > 0.2 > prediction.probability[1]
    assert one_hot == [("one-hot", "float32")]


def test_prediction_is_that_of_the_classifier_on_the_spectra(model: FittedModel, gp: GPClassifier) -> None:
    expected = gp.predict([[3, 1, 0, 0], [1, 1, 1, 1]])
    ours = model.predict([["a", "a", "b", "a"], DIFFER])
    assert ours.probability == pytest.approx(expected.probability, abs=1e-6)
    assert ours.sd == pytest.approx(expected.sd, abs=1e-6)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([""] * 4, "empty"),
        (["I don’t know"] * 4, "refusal"),
        (["I'm sorry, I can't help with that!", " "] * 2, "refusal"),
    ],
)
def test_a_set_without_an_answer_gets_a_reason_and_no_probability(
    model: FittedModel, answers: list[str], reason: str
) -> None:
    result = model.predict([AGREE, answers, DIFFER])
    assert result.no_answer == [None, reason, None]
    assert np.isnan(result.probability).tolist() == [False, True, False] and result.unsafe[1]
    assert result.probability[[0, 2]] == pytest.approx(model.predict([AGREE, DIFFER]).probability)


def test_a_model_comes_back_from_its_folder(model: FittedModel, folder: Path) -> None:
    loaded = sgpu.load_model(str(folder))
    spectrum = loaded.require_spectrum()
    assert (spectrum.encoder, spectrum.encoder_dtype, spectrum.n_answers) == ("one-hot", "float32", 4)
    assert loaded.provenance == {"study": "demo", "rows": 60}
    for ours, theirs in zip(model.predict([AGREE, DIFFER]), loaded.predict([AGREE, DIFFER]), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_file_uri_may_hold_spaces(model: FittedModel, tmp_path: Path) -> None:
    model.save(tmp_path / "a model")
    assert load_model((tmp_path / "a model").as_uri()).provenance["rows"] == 60


def test_the_one_model_beneath_a_folder_is_found(folder: Path) -> None:
    assert load_model(folder.parent).provenance["rows"] == 60


def test_a_folder_with_two_models_is_refused(model: FittedModel, folder: Path) -> None:
    model.save(folder.parent / "second")
    with pytest.raises(DataError, match="2 fitted models"):
        load_model(folder.parent)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no folder .*/nope; give .* models:/NAME@ALIAS"):
        load_model(tmp_path / "nope")


def test_a_store_that_does_not_exist_is_named_without_a_flag(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no MLflow store at .*/no\.db.*tracking_uri") as told:
        load_model("models:/mine@champion", f"sqlite:///{tmp_path}/no.db")
    assert "--" not in str(told.value)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([AGREE, AGREE[:3]], "row 1 has 3 answers; the model was fitted to N = 4"),
        ([[]], "row 0 has 0 answers"),
        (["four"], "row 0 is one string"),
        ([["yes", None, "no", "no"]], "answer 1 of row 0 is None"),
        ([AGREE, ["yes", "no", "\ud800", "no"]], "answer 2 of row 1 is no valid Unicode at character 0"),
    ],
)
def test_answers_that_cannot_be_scored_are_named(
    model: FittedModel, answers: list[list[str]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        model.predict(answers)


@pytest.fixture(scope="module")
def any_size() -> GPClassifier:
    """Right where all answers agree, whatever their number, and wrong where all differ."""
    rows = [np.concatenate([size_free(np.eye(1, n) * n), size_free(np.ones((1, n)))]) for n in (2, 3, 4)]
    return GPClassifier().fit(np.concatenate(rows * 20), [1, 0] * 60)


@pytest.fixture
def any_model(gp: GPClassifier, any_size: GPClassifier) -> FittedModel:
    return FittedModel(SpectrumClassifier(gp, "one-hot", "float32", 4, "f00d", OtherSizes({}, any_size)))


def test_sets_of_several_sizes_are_answered_row_by_row(any_model: FittedModel, gp: GPClassifier) -> None:
    sets = [["a", "a"], AGREE, ["a", "b", "c", "d", "e", "f"], DIFFER, ["a", "b"]]
    probability = any_model.predict(sets).probability
    for row, one in enumerate(sets):
        assert probability[row] == pytest.approx(any_model.predict([one]).probability[0], abs=1e-12)
    assert probability[0] > 0.8 > 0.2 > probability[4]
    own = gp.predict([[4, 0, 0, 0], [1, 1, 1, 1]])
    assert probability[[1, 3]] == pytest.approx(own.probability, abs=1e-6)
    assert [any_model.require_spectrum().head_of(len(one)).name for one in sets] == [
        "size_free", "own", "size_free", "own", "size_free",
    ]  # fmt: skip


def test_a_model_of_one_size_reads_as_many_of_more_answers_in_any_order(model: FittedModel) -> None:
    many = ["a", "a", "b", "c", "a", "d", "b"]
    first, second = model.predict([many, many[::-1]]).probability
    assert model.require_spectrum().head_of(7).name == "own"
    assert first == second


def test_a_model_of_any_size_comes_back_from_its_folder(any_model: FittedModel, tmp_path: Path) -> None:
    any_model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.require_spectrum().head_of(3).name == "size_free"
    sets = [["a", "b", "a"], AGREE]
    assert np.array_equal(loaded.predict(sets).sd, any_model.predict(sets).sd)


def test_no_answers_need_no_encoder(model: FittedModel, one_hot: list[tuple[str, str]]) -> None:
    assert [len(values) for values in model.predict([])] == [0] * 13
    assert one_hot == []


def test_other_weights_of_the_encoder_are_refused(gp: GPClassifier) -> None:
    with pytest.raises(IntegrityError, match=r"f00d.*fitted with beef"):
        FittedModel(SpectrumClassifier(gp, "one-hot", "float32", 4, "beef")).predict([AGREE])


def test_a_classifier_of_another_n_is_refused(gp: GPClassifier) -> None:
    with pytest.raises(DataError, match=r"n_answers is 20.*4 eigenvalues"):
        SpectrumClassifier(gp, "one-hot", "float32", 20, "f00d")


def test_a_classifier_that_was_exchanged_is_refused(folder: Path) -> None:
    GPClassifier().fit(np.eye(4) * 4, [1, 0, 0, 1]).save(folder)
    with pytest.raises(IntegrityError, match=r"gp\.json is not the file that the model was saved with"):
        load_model(folder)


def test_a_bundle_that_lacks_a_field_is_refused(folder: Path) -> None:
    content = json.loads((folder / "bundle.json").read_text())
    del content["spectrum"]["encoder"]["dtype"]
    (folder / "bundle.json").write_text(json.dumps(content))
    with pytest.raises(IntegrityError, match="dtype"):
        load_model(folder)


def test_a_model_of_another_version_of_its_encoders_plugin_is_refused(
    model: FittedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def installed(version: str) -> None:
        plugins = {"plug-in encoder one-hot": f"house {version}"}
        monkeypatch.setattr(ENCODERS, "plugins", lambda name: plugins)

    installed("1.0")
    model.save(tmp_path / "model")
    assert load_model(tmp_path / "model").require_spectrum().encoder == "one-hot"
    installed("2.0")
    with pytest.raises(IntegrityError, match=r"house 1\.0.*here is .*house 2\.0.*fit again"):
        load_model(tmp_path / "model")


def test_a_pickle_beside_the_model_is_refused(folder: Path) -> None:
    (folder / "model.pkl").write_bytes(b"")
    with pytest.raises(IntegrityError, match="can run code"):
        load_model(folder)


def test_other_schemes_are_refused() -> None:
    with pytest.raises(UsageError, match="models:/NAME@ALIAS"):
        load_model("https://example.org/model")


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds 0 fitted models"):
        load_model(tmp_path)


def test_a_run_of_mlflow_gives_its_model_and_runs_none_of_its_code(folder: Path, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    client = MlflowClient(tracking_uri=store)
    run = client.create_run(client.create_experiment("demo", artifact_location=str(tmp_path / "artifacts")))
    client.log_artifacts(run.info.run_id, str(folder), "fit/artifacts/bundle")
    code = tmp_path / "code.py"
    code.write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()")
    client.log_artifact(run.info.run_id, str(code), "fit")

    loaded = load_model(f"runs:/{run.info.run_id}/fit", tracking_uri=store)
    assert loaded.predict([AGREE]).probability[0] > 0.8
    assert not (tmp_path / "ran").exists()
    with pytest.raises(DataError, match="cannot get runs:/"):
        load_model(f"runs:/{'0' * 32}/fit", tracking_uri=store)


ASKED = "What is the capital of Peru?"
LIMA, CITIES = ["It is Lima.", "The capital of Peru is Lima.", "Cusco"], ["Lima", "Cusco", "Quito"]


@pytest.fixture(scope="module")
def content() -> ContentClassifier:
    """Right where the answers agree; each answer as often as it agrees with the others."""
    sets = [["Lima"] * 3, ["Lima", "Lima", "Cusco"], CITIES] * 10
    found = [content_agreement(texts, ASKED) for texts in sets]
    votes: list[list[float | None]] = [[1, 1, 1], [1, 1, 0], [0, 0, 0]] * 10
    return ContentClassifier.fit(found, [1, 1, 0] * 10, votes, inducing=8)


@pytest.fixture
def asked_model(model: FittedModel, content: ContentClassifier) -> FittedModel:
    return replace(model, content=content)


def test_a_set_with_a_question_is_read_by_agreement_without_the_encoder(
    asked_model: FittedModel, content: ContentClassifier, one_hot: list[tuple[str, str]]
) -> None:
    result = asked_model.predict([LIMA, CITIES], [ASKED, ASKED])
    found = [content_agreement(texts, ASKED) for texts in (LIMA, CITIES)]
    expected = content.predict(found)
    np.testing.assert_array_equal(result[:5], expected.sets)
    np.testing.assert_array_equal(result.p_answer, expected.p_answer)
    assert (result.by, result.declined) == (["agreement"] * 2, [None] * 2)
    assert (result.answer, result.chosen.tolist()) == (["It is Lima.", "Lima"], [0, 0])
    assert one_hot == []


def test_other_sets_are_read_by_their_spectrum_to_the_last_bit(
    asked_model: FittedModel, model: FittedModel
) -> None:
    prompt = "Peru's capital is yes or no. " * 12
    sets, questions = [AGREE, LIMA, DIFFER, DIFFER], [None, ASKED, prompt, " "]
    result, before = asked_model.predict(sets, questions), model.predict([AGREE, DIFFER, DIFFER])
    by_spectrum = [0, 2, 3]
    for ours, theirs in zip(result[:5], before[:5], strict=True):
        np.testing.assert_array_equal(np.asarray(ours)[by_spectrum], theirs)
    assert result.by == ["spectrum", "agreement", "spectrum", "spectrum"]
    drawn = "the answer is drawn from the prompt"
    assert result.declined == ["no question", None, drawn, "no question"]
    assert [result.answer[row] for row in by_spectrum] == [None] * 3
    assert result.chosen[by_spectrum].tolist() == [-1] * 3 and np.isnan(result.p_answer[by_spectrum]).all()


def test_numbers_of_a_set_do_not_depend_on_the_sets_beside_it(asked_model: FittedModel) -> None:
    alone, beside = asked_model.predict([LIMA], [ASKED]), asked_model.predict([CITIES, LIMA], [ASKED] * 2)
    assert (beside.probability[1], beside.p_answer[1]) == (alone.probability[0], alone.p_answer[0])


def test_a_size_without_a_classifier_is_read_by_agreement_only(asked_model: FittedModel) -> None:
    assert asked_model.predict([["Lima", "It is Lima"]], [ASKED]).by == ["agreement"]
    with pytest.raises(DataError, match="row 1 has 2 answers; the model was fitted to N = 4"):
        asked_model.predict([["Lima", "Lima"], ["Lima", "Lima"]], [ASKED, None])


def test_a_set_without_an_answer_is_not_read_by_agreement(asked_model: FittedModel) -> None:
    result = asked_model.predict([["", ""]], [ASKED])
    assert (result.no_answer, result.by, result.answer, result.chosen) == (["empty"], [None], [None], [-1])
    assert np.isnan(result.probability[0]) and np.isnan(result.p_answer[0])


def test_a_model_without_agreement_says_that_it_does_not_use_questions(model: FittedModel) -> None:
    result = model.predict([AGREE, [""] * 4], [ASKED, ASKED])
    assert result.declined == ["the model does not use questions", None]
    np.testing.assert_array_equal(result.probability, model.predict([AGREE, [""] * 4]).probability)


def test_agreement_is_that_of_the_texts_that_are_embedded(asked_model: FittedModel) -> None:
    thoughts = [f"I think of {city}.\n#### Lima" for city in CITIES]
    final = replace(asked_model, embed="final_answer").predict([thoughts], [ASKED])
    assert final.probability == asked_model.predict([["Lima"] * 3], [ASKED]).probability
    assert final.answer == [thoughts[0]]


def test_columns_of_a_table_are_read_in_their_order(asked_model: FittedModel) -> None:
    table = pd.DataFrame({"answers": [LIMA, CITIES[::-1]], "question": [ASKED, ASKED]}, index=[1, 0])
    assert asked_model.predict(table["answers"], table["question"]).answer == ["It is Lima.", "Quito"]


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ("Who?", "questions is one string"),
        ([ASKED], "1 questions for 2 response sets; give one for each, or None"),
        ([ASKED, 5], "the question of row 1 is 5, not a string; give None"),
    ],
)
def test_questions_that_do_not_fit_are_named(asked_model: FittedModel, questions: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        asked_model.predict([AGREE, DIFFER], questions)


def test_a_model_of_agreement_comes_back_from_its_folder(asked_model: FittedModel, tmp_path: Path) -> None:
    asked_model.save(tmp_path / "model")
    sets, questions = [LIMA, AGREE], [ASKED, None]
    ours, theirs = asked_model, load_model(tmp_path / "model")
    for one, other in zip(ours.predict(sets, questions), theirs.predict(sets, questions), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("part", ["", "answers"])
def test_classifiers_of_agreement_that_were_exchanged_are_refused(
    asked_model: FittedModel, part: str, tmp_path: Path
) -> None:
    asked_model.save(tmp_path)
    GPClassifier(spectra=False).fit([[1.0], [2.0]], [0, 1]).save(tmp_path / "content" / part)
    with pytest.raises(IntegrityError, match=r"content does not hold .* bundle\.json was written for"):
        load_model(tmp_path)


def test_classifiers_of_agreement_by_other_rules_are_refused(
    asked_model: FittedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_model.save(tmp_path)
    monkeypatch.setattr("sgpu.agreement.VERSION", 0)
    with pytest.raises(IntegrityError, match="words were counted by other rules"):
        load_model(tmp_path)


def test_confidence_is_that_of_the_answer_or_of_the_set_and_zero_without_an_answer(
    asked_model: FittedModel,
) -> None:
    result = asked_model.predict([LIMA, AGREE, [""] * 4], [ASKED, None, ASKED])
    assert result.confidence.tolist() == [result.p_answer[0], result.probability[1], 0]
    assert result.reason == [None, None, "empty"]


@pytest.fixture
def ranking(content: ContentClassifier) -> FittedModel:
    """A model like the one that ships: no spectra, and not calibrated for anybody's answers."""
    return FittedModel(content=content, calibrated=False)


def test_a_model_that_is_not_calibrated_ranks_and_gives_no_probability(ranking: FittedModel) -> None:
    result = ranking.predict([LIMA, CITIES, LIMA], [ASKED, ASKED, None])
    assert result.confidence[:2].tolist() == [0.5, 0]  # Lima with one of two others; nothing
    assert result.reason == ["needs_labels", "needs_labels", "no question"]
    assert np.isnan([result.probability, result.sd, result.p_answer]).all() and result.unsafe.all()
    assert result.by == ["agreement", "agreement", None] and np.isnan(result.confidence[2])
    with pytest.raises(UsageError, match="reads questions with their answers and no spectra"):
        ranking.require_spectrum()


def test_labels_make_probabilities_of_confidences_and_keep_their_order(
    ranking: FittedModel, tmp_path: Path
) -> None:
    sets = [["Lima"] * 3, ["Lima", "Lima", "Cusco"], CITIES] * 20
    labels = [1, 0, 0] * 8 + [0] * 36
    model = ranking.recalibrate(sets, labels, [ASKED] * 60)
    before, after = ranking.predict(sets[:3], [ASKED] * 3), model.predict(sets[:3], [ASKED] * 3)
    assert (np.argsort(after.p_answer) == np.argsort(before.confidence)).all()
    assert model.predict(sets, [ASKED] * 60).p_answer.mean() == pytest.approx(8 / 60, abs=0.05)
    assert (after.reason, ranking.calibrated) == ([None] * 3, False)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(
        load_model(tmp_path / "model").predict(sets[:3], [ASKED] * 3).sd, after.sd
    )  # fmt: skip


def test_too_few_labels_are_refused_with_what_the_others_lack(ranking: FittedModel) -> None:
    questions = [ASKED] * 49 + [None] * 2
    with pytest.raises(DataError, match=r"49 of 51 labelled sets are .*; 2: no question; .* takes 50"):
        ranking.recalibrate([LIMA] * 51, [1] * 51, questions)
    with pytest.raises(DataError, match="50 labels for 51 response sets"):
        ranking.recalibrate([LIMA] * 51, [1] * 50, questions)
