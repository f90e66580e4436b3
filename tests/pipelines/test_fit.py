"""From a file of labelled answers to a model, its measures and a registered version."""

from __future__ import annotations

import io
import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_answers import CITIES
from rich.console import Console
from sklearn.metrics import brier_score_loss, roc_auc_score

from sgpu.errors import DataError, StageError, UsageError
from sgpu.fitted.model import FittedModel
from sgpu.fitted.pinned_model import resolve_model
from sgpu.fitted.profile import TrainingProfile
from sgpu.own_answers.fit import fit_responses, profile_notes, show_fit
from sgpu.own_answers.request import FitRequest
from sgpu.scoring.models.registered_models import list_models
from sgpu.scoring.models.scorer import Scorer
from sgpu.stages.labelled_sets import LabelledSets, read_labelled
from sgpu.storage.bundle_files import bundle_sha256, free_place, publish_bundle
from sgpu.storage.location import Location
from sgpu.study.fit_settings import FitSettings
from sgpu.study.specs import ClassifierSpec
from tests.object_store import ObjectStore

QUICK = FitRequest(
    settings=FitSettings(
        method="sgpu", dtype="float32", device="cpu", classifier=ClassifierSpec(inducing=16)
    ),
    resamples=200,
)
CUT = replace(QUICK, target_error=0.3, confidence=0.8)


def labelled(rows: int = 360, seed: int = 0) -> list[dict[str, Any]]:
    """Sets of 6 answers, some of 3 and 9, mostly right where they agree; a few without a label."""
    draw = random.Random(seed)
    made = []
    for i in range(rows):
        city, sure, n = draw.choice(CITIES), draw.random(), (6, 6, 6, 3, 9)[i % 5]
        answers = [city if draw.random() < sure else draw.choice(CITIES) for _ in range(n)]
        row = {"question_id": f"q{i}", "question": f"City {i}?", "answers": answers}
        label = int((sure > 0.5) != (draw.random() < 0.05))
        made.append(row | ({} if i % 30 == 0 else {"label": label}))
    return made


def written(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "labelled.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def silent() -> Console:
    return Console(file=io.StringIO(), width=200)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """The labelled file, the folder of a model with a cut, and what was printed."""
    root = tmp_path_factory.mktemp("fit")
    console = silent()
    path = written(root, labelled())
    fit_responses(path, root / "model", CUT, console)
    return path, root / "model", printed(console)


def read_as(path: Path) -> LabelledSets:
    return read_labelled(path, test_share=0.2, calibration_share=0.2)


def test_the_folder_holds_a_model_that_scores_any_size(fitted: tuple[Path, Path, str]) -> None:
    model = FittedModel.load(fitted[1])
    spectrum = model.require_spectrum()
    assert (spectrum.n_answers, spectrum.encoder, spectrum.encoder_dtype) == (
        6,
        "all-MiniLM-L6-v2",
        "float32",
    )
    probability = model.predict([["Oslo"] * 5, CITIES[:5], ["Oslo"] * 6, CITIES[:6]]).probability
    assert probability[0] > probability[1] and probability[2] > probability[3]


def test_measures_are_those_of_held_out_rows_by_scikit_learn(fitted: tuple[Path, Path, str]) -> None:
    path, folder, _ = fitted
    answers, label = read_as(path).part("test")
    probability = Scorer(folder, device="cpu").score(answers)["probability"].to_numpy()
    metrics = {row["metric"]: row for row in json.loads((folder / "metrics.json").read_text())["metrics"]}
    assert metrics["auroc"]["value"] == pytest.approx(roc_auc_score(label, probability), abs=1e-12)
    assert metrics["brier"]["value"] == pytest.approx(brier_score_loss(label, probability), abs=1e-12)
    for name in ("auroc", "ece", "brier"):
        assert metrics[name]["lo"] <= metrics[name]["hi"]
        assert metrics[name]["n"] == len(label)


def test_rows_add_up_and_the_sides_do_not_share_any(fitted: tuple[Path, Path, str]) -> None:
    facts = json.loads((fitted[1] / "metrics.json").read_text())
    left_out = {"without a label": 12, "without an answer": 0, "not usable": 0, "repeated": 0}
    assert facts["left_out"] == left_out
    assert sum(facts["rows"].values()) + 12 == 360
    assert set(facts["answers"]) == {"3", "6", "9"}
    profile = FittedModel.load(fitted[1]).profile
    assert profile is not None
    assert (profile.training_rows, profile.held_out_rows) == (facts["rows"]["train"], facts["rows"]["test"])


def test_the_rule_is_chosen_on_rows_that_were_neither_trained_nor_tested_on(
    fitted: tuple[Path, Path, str],
) -> None:
    from sgpu.fitted.risk_control import probability_cut

    path, folder, _ = fitted
    answers, label = read_as(path).part("validation")
    expected = probability_cut(
        Scorer(folder, device="cpu").score(answers)["probability"].to_numpy(), label, 0.3, 0.2
    )
    profile = FittedModel.load(folder).profile
    assert expected is not None and profile is not None
    assert profile.rule == expected.rule
    assert profile.rule.n_calibration == len(label)
    rule = json.loads((folder / "metrics.json").read_text())["rule"]
    tested, tested_label = read_as(path).part("test")
    accepted = Scorer(folder, device="cpu").score(tested)["accepted"].to_numpy()
    assert (rule["cut"], rule["test_accepted"]) == (expected.rule.cut, accepted.sum())
    assert rule["test_accepted_wrong"] == (tested_label[accepted] == 0).sum()


PLUS = replace(CUT, settings=replace(CUT.settings, method="sgpu_plus"))


@pytest.fixture(scope="module")
def fitted_plus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """A model of sgpu_plus of rows that a judge labels, what its metrics.json says and what was printed."""
    root, console = tmp_path_factory.mktemp("plus"), silent()
    rows = [row for row in labelled() if "label" in row]
    for row in rows:
        most_common = max(row["answers"], key=row["answers"].count)
        row["references"] = [most_common if row.pop("label") else "Nowhere"]
    fit_responses(written(root, rows), root / "model", PLUS, console)
    return root, json.loads((root / "model" / "metrics.json").read_text()), printed(console)


def test_metrics_of_sgpu_plus_are_those_of_predictions_with_questions(
    fitted_plus: tuple[Path, dict[str, Any], str],
) -> None:
    root, facts, text = fitted_plus
    sets = read_as(root / "labelled.jsonl")
    (answers, label), votes = sets.part("test"), sets.votes_of("test")
    result = FittedModel.load(root / "model").predict(answers, sets.questions_of("test"))
    metrics = {row["metric"]: row for row in facts["metrics"]}
    assert metrics["auroc"]["method"] == "sgpu_plus"
    assert metrics["auroc"]["value"] == pytest.approx(roc_auc_score(label, result.probability))
    chosen = [vote[place] for vote, place in zip(votes, result.chosen, strict=True) if vote]
    assert metrics["accuracy_answer"]["value"] == pytest.approx(np.mean(chosen))
    assert metrics["accuracy_first_answer"]["value"] == pytest.approx(np.mean([v[0] for v in votes if v]))
    assert facts["read_by"] == {"agreement": len(label), "spectrum": {}}
    assert f"{len(label)} of {len(label)} held-out rows (100%) were read by agreement" in text
    assert "chosen answers that are right" in text


def test_the_rule_of_sgpu_plus_is_that_of_what_the_night_scores(
    fitted_plus: tuple[Path, dict[str, Any], str],
) -> None:
    root, facts, _ = fitted_plus
    sets = read_as(root / "labelled.jsonl")
    tested, label = sets.part("test")
    scored = Scorer(root / "model", device="cpu").score(tested, sets.questions_of("test"))
    accepted = scored["accepted"].to_numpy()
    assert set(scored["head"].to_pylist()) == {"agreement"}
    assert facts["rule"]["test_accepted"] == accepted.sum()
    assert facts["rule"]["test_accepted_wrong"] == (label[accepted] == 0).sum()


def test_a_model_of_sgpu_plus_is_replaced_as_a_whole(
    fitted_plus: tuple[Path, dict[str, Any], str], tmp_path: Path
) -> None:
    shutil.copytree(fitted_plus[0] / "model", tmp_path / "m")
    fit_responses(fitted_plus[0] / "labelled.jsonl", tmp_path / "m", QUICK, silent())
    assert not (tmp_path / "m" / "content").exists()


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    rows = [{key: value for key, value in row.items() if key != "question"} for row in labelled(8)]
    with pytest.raises(DataError, match=r"labelled.jsonl: has no column 'question'\. Needed: question_id"):
        fit_responses(written(tmp_path, rows), tmp_path / "m", PLUS, silent())


def test_a_short_table_is_printed(fitted: tuple[Path, Path, str]) -> None:
    text = fitted[2]
    for part in ("AUROC", "ECE", "Brier score", "12 without a label", "accepting answers from probability"):
        assert part in text
    assert "Oslo" not in text


def test_equal_files_and_requests_give_equal_bytes(fitted: tuple[Path, Path, str], tmp_path: Path) -> None:
    path, folder, _ = fitted
    fit_responses(path, tmp_path / "again", CUT, silent())
    assert bundle_sha256(tmp_path / "again") == bundle_sha256(folder)


def test_without_a_target_error_all_other_rows_are_trained_on(
    fitted: tuple[Path, Path, str], tmp_path: Path
) -> None:
    outcome = fit_responses(fitted[0], tmp_path / "m", QUICK, silent())
    facts = json.loads((tmp_path / "m" / "metrics.json").read_text())
    assert (facts["rows"]["validation"], facts["rule"], outcome.cut) == (0, None, None)
    profile = FittedModel.load(tmp_path / "m").profile
    assert profile is not None and profile.rule is None


def test_a_target_that_no_cut_holds_is_said_and_leaves_no_rule(tmp_path: Path) -> None:
    console = silent()
    request = replace(QUICK, target_error=0.001)
    outcome = fit_responses(written(tmp_path, labelled(120)), tmp_path / "m", request, console)
    assert outcome.cut is None
    assert "no threshold keeps the error rate at or below 0.1% with confidence 95%" in printed(console)
    profile = FittedModel.load(tmp_path / "m").profile
    assert profile is not None and profile.rule is None


def test_a_profile_that_is_too_small_to_compare_days_with_is_said_to_be(
    fitted: tuple[Path, Path, str],
) -> None:
    profile = FittedModel.load(fitted[1]).profile
    assert profile is not None and profile.held_out_rows < 200
    counted = f"{profile.held_out_rows} held-out rows (one of each `group`, if any)"
    assert f"{counted}: `sgpu score` compares days with the training" in fitted[2]
    few = TrainingProfile.of([], [], np.full(8, 0.5), np.ones(8), seed=0)
    (note,) = profile_notes(replace(FittedModel.load(fitted[1]), profile=few))
    assert "cannot compare probabilities with the training, for which 20 are needed" in note


def test_a_model_is_replaced_as_a_whole_and_nothing_else_is(
    fitted: tuple[Path, Path, str], tmp_path: Path
) -> None:
    place = tmp_path / "m"
    fit_responses(fitted[0], place, QUICK, silent())
    heads = replace(QUICK, settings=replace(QUICK.settings, classifier=ClassifierSpec(other_n="heads")))
    fit_responses(fitted[0], place, heads, silent())
    assert not (place / "size_free").exists()
    assert sorted(FittedModel.load(place).require_spectrum().others.by_n) == [2, 3, 5]
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="give a new folder"):
        fit_responses(fitted[0], tmp_path / "other", QUICK, silent())


def tree(folder: Path) -> dict[str, bytes | None]:
    found = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in found}


@pytest.mark.parametrize("name", ["thesis/chapter 1/text.tex", "empty/", "notes.txt", ".hidden"])
def test_a_folder_that_holds_anything_but_a_model_is_refused_and_left_as_it_is(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgpu.own_answers.fit.read_labelled", None)  # it is refused before any work
    place = tmp_path / "mine"
    (place / name).parent.mkdir(parents=True)
    if name.endswith("/"):
        (place / name).mkdir(parents=True)
    else:
        (place / name).write_text("mine")
    before = tree(tmp_path)
    monkeypatch.chdir(place)
    for out in (place, "."):
        with pytest.raises(UsageError, match="give a new folder"):
            fit_responses(tmp_path / "labelled.jsonl", out, QUICK, silent())
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["labelled.json", "raw/answers.jsonl", "heads/mine/gp.json", "gp.json.bak"])
def test_files_beside_a_model_are_not_lost_with_it(
    name: str, fitted: tuple[Path, Path, str], tmp_path: Path
) -> None:
    shutil.copytree(fitted[1], tmp_path / "m")
    (tmp_path / "m" / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "m" / name).write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(UsageError, match="holds a fitted model and 1 other files"):
        fit_responses(fitted[0], tmp_path / "m", QUICK, silent())
    assert tree(tmp_path) == before


def test_files_that_come_while_it_is_fitted_are_not_lost(tmp_path: Path) -> None:
    place, bundle = tmp_path / "m", tmp_path / "made"
    bundle.mkdir()
    free_place(Location.of(place))
    (place / "sub").mkdir(parents=True)
    with pytest.raises(UsageError, match="give a new folder"):
        publish_bundle(bundle, Location.of(place))
    assert (place / "sub").is_dir()


def test_a_file_or_a_link_to_nothing_is_no_place_for_a_model(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for name in ("file", "link"):
        with pytest.raises(UsageError, match="is no folder"):
            free_place(Location.of(tmp_path / name))


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    assert free_place(Location.of(tmp_path)) == Location.of(tmp_path)


@pytest.mark.parametrize("with_model", [False, True])
def test_a_prefix_that_holds_anything_but_a_model_is_refused_and_left_as_it_is(
    with_model: bool, object_store: ObjectStore, tmp_path: Path
) -> None:
    place = Location.of(object_store.uri("mine"))
    (place / "deep" / "thesis.txt").write_bytes(b"mine")
    if with_model:
        (place / "bundle.json").write_bytes(b"{}")
    before = place.files(recursive=True)
    for out in ("mine", "mine/deep/thesis.txt"):
        with pytest.raises(UsageError):
            fit_responses(tmp_path / "labelled.jsonl", object_store.uri(out), QUICK, silent())
    assert place.files(recursive=True) == before


def test_a_model_in_a_bucket_is_replaced_file_by_file(object_store: ObjectStore, tmp_path: Path) -> None:
    place = Location.of(object_store.uri("m"))
    beside = Location.of(object_store.uri("m2/thesis.txt"))
    beside.write_bytes(b"mine")
    for name in ("bundle.json", "gp.json", "heads/3/gp.json"):
        (place / name).write_bytes(b"old")
    (tmp_path / "made" / "size_free").mkdir(parents=True)
    for name in ("bundle.json", "size_free/gp.json"):
        (tmp_path / "made" / name).write_bytes(b"new")
    publish_bundle(tmp_path / "made", place)
    found = {
        file.path.removeprefix(f"{place.path}/"): file.read_bytes() for file in place.files(recursive=True)
    }
    assert found == {"bundle.json": b"new", "size_free/gp.json": b"new"}
    assert beside.read_bytes() == b"mine"


def test_an_empty_bucket_takes_a_model_and_stays(object_store: ObjectStore, tmp_path: Path) -> None:
    place = Location.of(f"s3://{object_store.bucket}")
    (tmp_path / "bundle.json").write_bytes(b"new")
    publish_bundle(tmp_path, free_place(place))
    assert (place / "bundle.json").read_bytes() == b"new"


def test_one_row_of_a_group_decides_on_the_cut_and_that_is_told(tmp_path: Path) -> None:
    rows = [row | {"group": f"g{i // 4}"} for i, row in enumerate(labelled())]
    console = silent()
    path = written(tmp_path, rows)
    fit_responses(path, tmp_path / "m", CUT, console)
    sets = read_as(path)
    groups = {sets.groups[place] for place in np.flatnonzero(sets.split == "validation")}
    facts = json.loads((tmp_path / "m" / "metrics.json").read_text())
    assert facts["rule"]["n_calibration"] == len(groups) < facts["rows"]["validation"] / 3
    profile = FittedModel.load(tmp_path / "m").profile
    assert profile is not None
    assert profile.rule is None or profile.rule.n_calibration == len(groups)
    told = f"{len(groups)} calibration rows (of {facts['rows']['validation']}: one of each group)"
    assert told in printed(console)


@pytest.mark.parametrize(
    ("target", "confidence", "told"),
    [
        (0.1, 0.995, "the error rate at or below 10% with confidence 99.5%"),
        (0.0005, 0.9999999, "the error rate at or below 0.05% with confidence 99.99999%"),
        (0.07, 0.95, "the error rate at or below 7% with confidence 95%"),
    ],
)
def test_shares_are_told_as_they_were_given(target: float, confidence: float, told: str) -> None:
    rule = {"target_error": target, "confidence": confidence, "cut": None, "n_calibration": 9}
    rows = {"train": 80, "validation": 9, "test": 9}
    facts = {"rows": rows, "metrics": [], "left_out": {}, "answers": {"6": 98}, "rule": rule}
    console = silent()
    show_fit(console, facts, [])
    assert told in printed(console)


@pytest.mark.parametrize(("right", "said"), [(0.9, "Only 4 of 40 answers are wrong"), (1.0, None)])
def test_measures_of_few_held_out_rows_come_with_a_caution(right: float, said: str | None) -> None:
    rows = {"train": 80, "validation": 0, "test": 40}
    accuracy = {"metric": "accuracy", "value": right, "lo": None, "hi": None, "n": 40}
    facts = {"rows": rows, "metrics": [accuracy], "left_out": {}, "answers": {"6": 120}, "rule": None}
    console = silent()
    show_fit(console, facts, [])
    assert ("held out: Only" in printed(console)) is (said is not None)
    assert said is None or said in printed(console)


def test_a_fit_that_fails_leaves_the_model_that_was_there(
    fitted: tuple[Path, Path, str], tmp_path: Path
) -> None:
    fit_responses(fitted[0], tmp_path / "m", QUICK, silent())
    before = bundle_sha256(tmp_path / "m")
    one_class = [row | {"label": 1} for row in labelled(60)]
    with pytest.raises(DataError, match="needs both classes"):
        fit_responses(written(tmp_path, one_class), tmp_path / "m", QUICK, silent())
    assert bundle_sha256(tmp_path / "m") == before


def test_a_test_side_of_one_class_has_no_auroc_and_says_so(tmp_path: Path) -> None:
    rows = [
        row | {"split": "test" if i % 4 == 0 else "train"} | ({"label": 1} if i % 4 == 0 else {})
        for i, row in enumerate(labelled(120))
    ]
    console = silent()
    outcome = fit_responses(written(tmp_path, rows), tmp_path / "m", QUICK, console)
    (auroc,) = [row for row in outcome.metrics if row.metric == "auroc"]
    assert auroc.value is None and "one class" in auroc.settings
    assert "not defined" in printed(console)


def test_a_bucket_takes_the_model(
    fitted: tuple[Path, Path, str], object_store: ObjectStore, tmp_path: Path
) -> None:
    place = object_store.uri("models/own")
    fit_responses(fitted[0], place, CUT, silent())
    assert resolve_model(place, tmp_path).sha256 == bundle_sha256(fitted[1])


# ------------------------------------------------------------------------------------------ registering


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/mlflow.db"


def test_a_fit_is_registered_as_challenger_and_never_as_champion(
    fitted: tuple[Path, Path, str], store: str, tmp_path: Path
) -> None:
    request = replace(CUT, register="mine", tracking_uri=store)
    first = fit_responses(fitted[0], tmp_path / "one", request, silent())
    other = replace(request, settings=replace(request.settings, seed=1))
    second = fit_responses(fitted[0], tmp_path / "two", other, silent())
    again = fit_responses(fitted[0], tmp_path / "one", request, silent())
    assert [one.version and one.version.version for one in (first, second, again)] == [1, 2, 1]
    assert again.version is not None and not again.version.created
    assert {one.version: one.aliases for one in list_models("mine", store)} == {1: ("challenger",), 2: ()}
    pinned = resolve_model("models:/mine@challenger", tmp_path / "work", store)
    assert pinned.sha256 == bundle_sha256(tmp_path / "one")


def test_measures_and_settings_stand_in_the_run_of_the_version(
    fitted: tuple[Path, Path, str], store: str, tmp_path: Path
) -> None:
    from mlflow import MlflowClient

    outcome = fit_responses(
        fitted[0], tmp_path / "m", replace(CUT, register="traced", tracking_uri=store), silent()
    )
    client = MlflowClient(tracking_uri=store, registry_uri=store)
    run = client.get_run(client.get_model_version("traced", "1").run_id)
    auroc = next(row.value for row in outcome.metrics if row.metric == "auroc")
    assert run.data.metrics["auroc/sgpu"] == auroc
    assert run.data.params["kernel"] == "matern15"
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["metrics.json"]


def test_promoting_is_asked_for_and_said(fitted: tuple[Path, Path, str], store: str, tmp_path: Path) -> None:
    request = replace(CUT, register="promoted", tracking_uri=store, promote=True, alias="candidate")
    console = silent()
    fit_responses(fitted[0], tmp_path / "m", request, console)
    assert list_models("promoted", store)[0].aliases == ("candidate", "champion")
    assert printed(console).casefold().count("champion") == 1
    assert "version 1 is now champion" in printed(console)


def test_eight_rows_make_no_champion_unless_forced(store: str, tmp_path: Path) -> None:
    rows = [row for row in labelled() if "label" in row]
    eight = [row for label in (0, 1) for row in [row for row in rows if row["label"] == label][:4]]
    path, console = written(tmp_path, eight), silent()
    request = replace(QUICK, register="eight", tracking_uri=store, promote=True)
    with pytest.raises(DataError, match=r"held-out rows, below 30.*with force"):
        fit_responses(path, tmp_path / "m", request, console)
    assert list_models("eight", store)[0].aliases == ("challenger",)
    assert "Champion" not in printed(console) and "champion is" not in printed(console)
    fit_responses(path, tmp_path / "m", replace(request, force=True), console)
    assert list_models("eight", store)[0].aliases == ("challenger", "champion")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"alias": "champion"}, "never moves the alias 'champion'"),
        ({"promote": True}, "the name to register"),
        ({"target_error": 1.5}, "target error is 1.5"),
        ({"confidence": 0.0}, "confidence is 0.0"),
    ],
)
def test_a_request_that_cannot_be_met_is_a_usage_error(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FitRequest(**values)


def test_a_store_that_is_down_is_known_before_the_work(
    fitted: tuple[Path, Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgpu.own_answers.fit.OwnModel", None)
    request = replace(CUT, register="mine", tracking_uri="http://127.0.0.1:1")
    with pytest.raises(StageError, match="could not open the tracking store"):
        fit_responses(fitted[0], tmp_path / "m", request, silent())
    assert not (tmp_path / "m").exists()


def test_a_store_that_fails_at_the_end_leaves_the_model_and_says_where(
    fitted: tuple[Path, Path, str], store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sgpu.tracking.runs import MlflowTracker

    def refuse(*_: object, **__: object) -> None:
        raise StageError("gone")

    monkeypatch.setattr(MlflowTracker, "register_fit", refuse)
    with pytest.raises(StageError, match=f"the model is in {tmp_path}/m, but it is not registered: gone"):
        fit_responses(fitted[0], tmp_path / "m", replace(CUT, register="mine", tracking_uri=store), silent())
    assert bundle_sha256(tmp_path / "m") == bundle_sha256(fitted[1])
