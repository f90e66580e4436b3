"""Scoring sets of any size with one model, and with a second one in its shadow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sgpu.encoders import load_encoder
from sgpu.errors import IntegrityError
from sgpu.fitted.model import FittedModel
from sgpu.gp.heads import OtherSizes
from sgpu.logs.records import Reason
from sgpu.scoring.models.scorer import Scorer
from tests.scoring.made_models import RULE, OneHotEncoder, classifier, load_one_hot, saved

MIXED = [
    ["Lima", "Lima", "Lima", "Lima"],
    ["Lima", "Cusco"],
    ["Lima", "Cusco", "Quito", "Bogota"],
    ["Lima"] * 7,
    ["Lima", "Lima", "Cusco"],
    [f"city {i % 9}" for i in range(40)],
]


@pytest.fixture(autouse=True)
def encoders(monkeypatch: pytest.MonkeyPatch) -> list[OneHotEncoder]:
    """The encoders that were loaded, in order."""
    return load_one_hot(monkeypatch)


@pytest.fixture
def champion(tmp_path: Path) -> Path:
    return saved(tmp_path / "champion", rule=RULE)


def read_column(scored: pa.Table, name: str) -> list[Any]:
    return list(scored[name].to_pylist())


def test_a_mixed_batch_is_what_the_fitted_model_predicts_to_the_last_bit(champion: Path) -> None:
    scored, expected = Scorer(champion).score(MIXED), FittedModel.load(champion).predict(MIXED)
    assert read_column(scored, "probability") == expected.probability.tolist()
    assert read_column(scored, "std") == expected.sd.tolist()
    assert read_column(scored, "unsafe") == expected.unsafe.tolist()


def test_spectra_are_the_counts_of_equal_texts_without_padding(champion: Path) -> None:
    scored = Scorer(champion).score(MIXED)
    spectra = read_column(scored, "spectrum")
    assert [len(spectrum) for spectrum in spectra] == read_column(scored, "n_used") == [4, 2, 4, 7, 3, 40]
    assert spectra[4] == pytest.approx([2, 1, 0], abs=1e-12)
    assert [sum(spectrum) for spectrum in spectra] == pytest.approx([4, 2, 4, 7, 3, 40])
    assert read_column(scored, "n_distinct") == [1, 2, 4, 1, 2, 9]
    share = read_column(scored, "top_eigenvalue_share")
    assert share == pytest.approx([1, 1 / 2, 1 / 4, 1, 2 / 3, 5 / 40])
    assert read_column(scored, "head") == ["own", "size_free", "own", "size_free", "size_free", "size_free"]


def test_agreement_is_trusted_more(champion: Path) -> None:
    probability = read_column(Scorer(champion).score(MIXED), "probability")
    assert probability[0] > 0.7 > 0.5 > probability[2]
    assert probability[3] > probability[5]


def test_every_distinct_text_is_encoded_once(champion: Path, encoders: list[OneHotEncoder]) -> None:
    Scorer(champion).score(MIXED)
    (call,) = encoders[0].calls
    assert len(call) == len(set(call)) == 4 + 9


def test_no_sets_are_no_scores(champion: Path) -> None:
    assert Scorer(champion).score([]).num_rows == 0


@pytest.mark.parametrize("n", [2, 3, 19, 1000])
def test_any_number_of_answers_is_scored(champion: Path, n: int) -> None:
    scored = Scorer(champion).score([["yes"] * n, [f"no {i}" for i in range(n)]])
    assert read_column(scored, "n_used") == [n, n]
    assert read_column(scored, "top_eigenvalue_share") == pytest.approx([1, 1 / n])
    agreed, scattered = read_column(scored, "probability")
    assert agreed > scattered


def test_a_set_scores_the_same_whatever_is_scored_with_it(champion: Path) -> None:
    scorer = Scorer(champion)
    whole = scorer.score(MIXED)
    for places in ([0], [5, 1], [2, 3, 4], [4, 4, 0]):
        part = scorer.score([MIXED[place] for place in places])
        assert part.to_pylist() == whole.take(places).to_pylist()


def test_a_head_of_fewer_answers_reads_a_drawn_part_in_any_order(tmp_path: Path) -> None:
    scorer = Scorer(saved(tmp_path / "own", others=OtherSizes()))
    texts = ["a", "b", "c", "d", "e", "a"]
    scored = scorer.score([texts, texts[::-1]])
    assert read_column(scored, "n_used") == [4, 4]
    assert read_column(scored, "head") == ["own", "own"]
    assert len(set(read_column(scored, "probability"))) == 1


def test_heads_are_named_by_their_size(tmp_path: Path) -> None:
    scorer = Scorer(saved(tmp_path / "heads", others=OtherSizes({2: classifier(2)})))
    scored = scorer.score([["a", "b"], ["a", "a", "b"], ["a"] * 4])
    assert read_column(scored, "head") == ["head 2", "head 2", "own"]
    assert read_column(scored, "n_used") == [2, 2, 4]


def test_sets_that_no_head_reads_have_a_reason_and_no_number(tmp_path: Path) -> None:
    scored = Scorer(saved(tmp_path / "own", others=OtherSizes())).score([["a"] * 4, ["a", "b"], ["a"] * 5])
    assert read_column(scored, "refusal") == [None, Reason.NO_HEAD, None]
    refused = {name: value for name, value in scored.to_pylist()[1].items() if value is not None}
    assert refused.keys() == {"refusal", "why"}
    assert "2 answers; the model was fitted to N = 4" in refused["why"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ([], Reason.TOO_FEW),
        (["one"], Reason.TOO_FEW),
        (["fine", "\ud800 secret"], Reason.ENCODING),
        (["fine", None], Reason.BAD_VALUE),
        (["I don't know."] * 4, Reason.REFUSAL),
        (["", " ", "", ""], Reason.EMPTY),
        ("text", Reason.BAD_VALUE),
    ],
)
def test_a_bad_set_costs_only_itself_and_shows_no_text(
    champion: Path, bad: list[str], reason: Reason
) -> None:
    scorer = Scorer(champion)
    scored = scorer.score([MIXED[0], bad, MIXED[2]])
    assert read_column(scored, "refusal") == [None, reason, None]
    assert "secret" not in str(scored)
    assert scored.take([0, 2]).to_pylist() == scorer.score([MIXED[0], MIXED[2]]).to_pylist()


def test_a_batch_of_bad_sets_alone_encodes_nothing(champion: Path, encoders: list[OneHotEncoder]) -> None:
    scored = Scorer(champion).score([["one"], []])
    assert read_column(scored, "probability") == [None, None]
    assert encoders[0].calls == []


def test_an_empty_text_beside_an_answer_is_read(champion: Path) -> None:
    assert Scorer(champion).score([["", "", "", "Lima"]])["refusal"].to_pylist() == [None]


def test_the_rule_of_the_model_accepts_from_its_cut_on(champion: Path, tmp_path: Path) -> None:
    scored = Scorer(champion).score([*MIXED, ["one"]])
    expected = [p >= RULE.cut for p in read_column(scored, "probability")[:-1]]
    assert read_column(scored, "accepted") == [*expected, None]
    assert True in expected and False in expected
    without = Scorer(saved(tmp_path / "without")).score(MIXED)
    assert read_column(without, "accepted") == [None] * len(MIXED)


def test_a_challenger_with_the_same_encoder_encodes_nothing_more(
    champion: Path, tmp_path: Path, encoders: list[OneHotEncoder]
) -> None:
    scorer = Scorer(champion, saved(tmp_path / "challenger", n=3))
    scorer.score(MIXED)
    assert len(encoders) == 1
    texts = [text for call in encoders[0].calls for text in call]
    assert len(texts) == len(set(texts)) == 13


def test_the_shadow_is_what_the_challenger_says_alone(champion: Path, tmp_path: Path) -> None:
    challenger = saved(tmp_path / "challenger", n=3, others=OtherSizes())
    scored = Scorer(champion, challenger).score(MIXED)
    alone = Scorer(challenger).score(MIXED)
    for name in ("probability", "std", "unsafe"):
        shadow = read_column(scored, f"shadow_{name}")
        assert shadow == read_column(alone, name) and shadow[1] is None


@pytest.mark.parametrize("settings", [{}, {"encoder": "another"}, {"embed": "final_answer"}])
def test_a_challenger_changes_nothing_of_the_champion(
    champion: Path, tmp_path: Path, settings: dict[str, str]
) -> None:
    scorer = Scorer(champion, saved(tmp_path / "challenger", n=3, **settings))  # type: ignore[arg-type]
    own, both = Scorer(champion).score(MIXED), scorer.score(MIXED)
    shadow = [name for name in own.column_names if name.startswith("shadow_")]
    assert own.drop_columns(shadow) == both.drop_columns(shadow)
    assert scorer.score(MIXED[:2]) == both.slice(0, 2)  # nothing is kept from one call to the next


def test_another_encoder_of_the_challenger_is_loaded_too(
    champion: Path, tmp_path: Path, encoders: list[OneHotEncoder]
) -> None:
    Scorer(champion, saved(tmp_path / "challenger", encoder="another"))
    assert [encoder.name for encoder in encoders] == ["one-hot", "another"]


def test_without_a_challenger_the_shadow_is_missing(champion: Path) -> None:
    scored = Scorer(champion).score(MIXED)
    for name in ("probability", "std", "unsafe"):
        assert read_column(scored, f"shadow_{name}") == [None] * len(MIXED)


def test_each_row_names_the_encoder_of_the_champion(champion: Path) -> None:
    scored = Scorer(champion).score(MIXED[:1])
    assert read_column(scored, "encoder") == ["one-hot"]
    assert read_column(scored, "encoder_sha256") == ["f00d"]


ASKED = "What is the capital of Peru?"
AGREEING = ["The capital of Peru is Lima.", "It is Lima.", "Lima", "Cusco"]


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    return saved(tmp_path / "reader", rule=RULE, others=OtherSizes({}), reads_questions=True)


def test_a_set_with_a_question_is_read_by_agreement_and_not_encoded(
    reader: Path, encoders: list[OneHotEncoder]
) -> None:
    long, rest = "Lima is a city. " * 30, MIXED[0]
    sets, questions = [AGREEING, AGREEING[:2], rest, rest, AGREEING[:2]], [ASKED, ASKED, None, long, None]
    scored, expected = Scorer(reader).score(sets, questions), FittedModel.load(reader).predict
    result = expected(sets[:2], questions[:2])
    assert read_column(scored, "probability")[:2] == result.probability.tolist()
    assert read_column(scored, "p_answer") == [*result.p_answer.tolist(), None, None, None]
    assert read_column(scored, "answer") == [AGREEING[0], AGREEING[0], None, None, None]
    assert read_column(scored, "head")[:2] == ["agreement"] * 2
    assert read_column(scored, "n_used") == [4, 2, 4, 4, None]
    assert read_column(scored, "accepted")[:2] == (result.probability >= RULE.cut).tolist()
    for name in ("spectrum", "top_eigenvalue_share"):
        assert [value is None for value in read_column(scored, name)] == [True, True, False, False, True]
    assert [texts for encoder in encoders for texts in encoder.calls] == [["Lima"]]
    # No classifier reads spectra of two answers here.
    assert read_column(scored, "refusal") == [None, None, None, None, str(Reason.NO_HEAD)]


def test_a_set_without_a_question_scores_as_if_no_model_read_questions(reader: Path, tmp_path: Path) -> None:
    plain = Scorer(saved(tmp_path / "plain", rule=RULE, others=OtherSizes({}))).score(MIXED)
    assert Scorer(reader).score(MIXED) == plain
    assert Scorer(reader).score(MIXED, ["" for _ in MIXED]) == plain


def test_either_model_reads_the_question_or_not_by_itself(champion: Path, reader: Path) -> None:
    shadowed = Scorer(champion, reader).score([AGREEING], [ASKED]).to_pylist()[0]
    by_agreement = Scorer(reader).score([AGREEING], [ASKED])
    assert shadowed["shadow_probability"] == by_agreement["probability"][0].as_py()
    assert shadowed["answer"] is None and len(shadowed["spectrum"]) == 4


def test_other_weights_of_the_encoder_are_refused(champion: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OneHotEncoder, "fingerprint", "beef")
    with pytest.raises(IntegrityError, match="the weights of encoder 'one-hot' here have sha256 beef"):
        Scorer(champion)


def test_a_challenger_of_other_weights_under_the_same_name_is_refused(champion: Path, tmp_path: Path) -> None:
    challenger = saved(tmp_path / "challenger")
    content = json.loads((challenger / "bundle.json").read_text())
    content["spectrum"]["encoder"]["fingerprint"] = "beef"
    (challenger / "bundle.json").write_text(json.dumps(content))
    with pytest.raises(IntegrityError, match="fitted with beef"):
        Scorer(champion, challenger)


@pytest.fixture(params=["float32", "bfloat16"])
def real(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model over the real sentence encoder."""
    monkeypatch.setattr("sgpu.fitted.spectrum_classifier.load_encoder", load_encoder)
    folder = saved(tmp_path / "real", encoder="all-MiniLM-L6-v2")
    content = json.loads((folder / "bundle.json").read_text())
    content["spectrum"]["encoder"] |= {
        "fingerprint": load_encoder("all-MiniLM-L6-v2").fingerprint,
        "dtype": request.param,
    }
    (folder / "bundle.json").write_text(json.dumps(content))
    return folder


def test_with_the_real_encoder_too_a_set_scores_the_same_whatever_is_with_it(real: Path) -> None:
    # Many texts of one length: with batches of any shape every other vector would be rounded differently.
    sets = [[f"The answer is {(7 * i + j) % 150}." for j in range(2 + i % 7)] for i in range(60)]
    scorer = Scorer(real, device="cpu")
    whole = scorer.score(sets)
    for places in ([0], [39, 3], list(range(0, 60, 3))):
        part = scorer.score([sets[place] for place in places])
        assert part.to_pylist() == whole.take(places).to_pylist()


def test_with_the_real_encoder_scores_are_those_of_the_fitted_model_up_to_rounding(real: Path) -> None:
    sets = [["Lima", "Lima.", "It is Lima"], ["Lima", "Cusco", "Quito", "no idea"]]
    scored, expected = Scorer(real).score(sets), FittedModel.load(real).predict(sets)
    assert read_column(scored, "probability") == pytest.approx(expected.probability, abs=5e-3)
    assert read_column(scored, "std") == pytest.approx(expected.sd, abs=5e-3)
