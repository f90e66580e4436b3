"""The study file: which models, data sets and methods, with every setting typed and defaulted.

Unknown keys are refused, so that a typo cannot silently fall back to a default.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from sgpu.errors import UsageError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _path_safe(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} names folders and table partitions: use letters, digits, '.', '_' and '-', "
            "starting with a letter or digit"
        )
    return name


Name = Annotated[str, Field(min_length=1, max_length=80)]


class ModelSpec(_Strict):
    """A language model: a card of `sgpu.models` by name, with what this study changes about it."""

    name: Name
    card: str | None = None  # defaults to `name`
    engine: Literal["vllm", "transformers", "openai"] | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    requests_per_minute: int | None = Field(default=None, ge=1)
    system_prompt: str | None = None

    _name = field_validator("name")(_path_safe)

    @property
    def card_name(self) -> str:
        return self.card or self.name


class WorldfactsSpec(_Strict):
    """Questions built from GeoNames tables; see `sgpu.datasets.worldfacts`."""

    kind: Literal["worldfacts"]
    name: Name = "worldfacts"
    n_train: int = Field(default=240, ge=1)
    n_test: int = Field(default=160, ge=1)
    options: dict[str, Any] = Field(default_factory=dict)

    _name = field_validator("name")(_path_safe)


class ResponsesSpec(_Strict):
    """Response sets that were sampled elsewhere: JSONL or Parquet."""

    kind: Literal["responses"]
    path: Path
    model: Name = "unnamed-model"
    name: Name = "responses"
    n: int | None = Field(default=None, ge=2)
    test_share: float = Field(default=0.4, gt=0, lt=1)

    _names = field_validator("name", "model")(_path_safe)


DatasetSpec = Annotated[WorldfactsSpec | ResponsesSpec, Field(discriminator="kind")]


class SamplingSpec(_Strict):
    """How answers are drawn (the paper's values)."""

    n: int = Field(default=20, ge=2, le=1024)
    temperature: float = Field(default=1.0, gt=0)
    top_p: float = Field(default=0.9, gt=0, le=1)
    top_k: int = Field(default=50, ge=0)
    repetition_penalty: float = Field(default=1.0, gt=0)
    max_tokens: int = Field(default=24, ge=1)
    stop: list[str] = Field(default_factory=lambda: ["\n"])
    prompt: str = "Answer the following question as briefly as possible.\nQuestion: {question}\nAnswer:"

    @field_validator("prompt")
    @classmethod
    def _has_question(cls, prompt: str) -> str:
        if "{question}" not in prompt:
            raise ValueError("must contain the placeholder {question}")
        return prompt


class AgreementSpec(_Strict):
    """A second judge on a sample of the test questions, to report how far the two agree."""

    judge: Literal["llm", "vllm", "alias", "numeric"] = "llm"
    model: str | None = None
    sample: int = Field(default=40, ge=1)


class JudgeSpec(_Strict):
    """Who decides whether an answer is right."""

    name: Literal["alias", "numeric", "llm", "vllm"] = "alias"
    model: str | None = None  # the card of an LLM judge
    min_mass: float = Field(default=0.01, ge=0, le=1)
    agreement: AgreementSpec | None = None

    @model_validator(mode="after")
    def _llm_needs_model(self) -> JudgeSpec:
        for judge, model in [(self.name, self.model)] + (
            [(self.agreement.judge, self.agreement.model)] if self.agreement else []
        ):
            if judge in {"llm", "vllm"} and not model:
                raise ValueError(f"judge {judge!r} needs `model`: the name of a model card")
        return self


class EncoderSpec(_Strict):
    """The sentence encoder whose spectra are used."""

    name: str = "all-MiniLM-L6-v2"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"


class EntailmentSpec(_Strict):
    """Who decides whether one answer entails another, for methods that compare answers.

    ``model`` is the classifier of `deberta` (default microsoft/deberta-large-mnli), the encoder of `cosine`
    (default the study's) or the model card of `llm`. Without ``threshold`` the one of `cosine` is fitted on
    the judged training questions of each cell.
    """

    backend: Literal["cosine", "deberta", "alias", "llm"] = "cosine"
    model: str | None = None
    revision: str | None = None  # of a hub id
    prefix_question: bool = True  # deberta: the question before both answers
    threshold: float | None = Field(default=None, ge=-1, le=1)
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"  # deberta
    min_mass: float = Field(default=0.01, ge=0, le=1)  # llm: what yes and no must hold together

    @model_validator(mode="after")
    def _fits_the_backend(self) -> EntailmentSpec:
        only = {"threshold": "cosine", "revision": "deberta"}
        for key, backend in only.items():
            if getattr(self, key) is not None and self.backend != backend:
                raise ValueError(f"`{key}` belongs to backend {backend!r}, not to {self.backend!r}")
        if self.backend == "llm" and not self.model:
            raise ValueError("backend 'llm' needs `model`: the name of a model card")
        if self.backend == "alias" and self.model:
            raise ValueError("backend 'alias' takes no `model`")
        return self


Layer = Literal["middle", "last", "all"] | int | float  # see `sgpu.hidden.layers`


class HiddenSpec(_Strict):
    """The hidden states that are kept, where a method of the study reads any."""

    layers: list[Layer] = Field(default=["middle", "last"], min_length=1)  # of all answers
    # Probes read the first answer only and choose among these layers on the validation questions.
    probe_layers: list[Layer] = Field(default=["all"], min_length=1)
    positions: list[Literal["last", "slt", "tbg"]] = Field(default=["last", "slt", "tbg"], min_length=1)
    sep_position: Literal["slt", "tbg"] = "slt"  # where SEP reads

    @model_validator(mode="after")
    def _sep_reads_what_is_kept(self) -> HiddenSpec:
        if self.sep_position not in self.positions:
            raise ValueError(f"`sep_position` is {self.sep_position!r}, which is not in `positions`")
        return self


Kernel = Literal["matern05", "matern15", "matern25", "rbf"]


class ClassifierSpec(_Strict):
    """The Gaussian-process classifier; defaults are the paper's kernel and our measured recipe."""

    kernel: Kernel = "matern15"
    inducing: int = Field(default=128, ge=2)
    hyper_rows: int = Field(default=3000, ge=10)


class EvaluationSpec(_Strict):
    """How confidences are measured."""

    bootstrap: int = Field(default=2000, ge=100)
    validation_share: float = Field(default=0.15, gt=0, lt=0.5)


class SensitivitySpec(_Strict):
    """What the classifier is refitted with, one setting varied at a time; stored answers are used again.

    ``n_answers`` and ``train_sizes`` beyond what a cell has are left out. The judges that are compared are
    the study's and that of `judge.agreement`.
    """

    kernels: list[Kernel] = Field(default_factory=list)
    encoders: list[str] = Field(default_factory=list)
    n_answers: list[Annotated[int, Field(ge=2)]] = Field(default_factory=list)
    train_sizes: list[Annotated[int, Field(ge=4)]] = Field(default_factory=list)
    # Sets of two meanings in fixed wordings, to see what an encoder and the model itself make of them.
    embedding_sets: int = Field(default=0, ge=0)


class ResourceSpec(_Strict):
    """What one actor of each stage asks Ray for; zeros and None mean: decide by the machine."""

    samplers: int = Field(default=1, ge=1)
    judges: int = Field(default=1, ge=1)
    encoders: int = Field(default=1, ge=1)
    extractors: int = Field(default=1, ge=1)
    entailers: int = Field(default=1, ge=1)
    fitters: int = Field(default=1, ge=0)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    sample_block_rows: int | None = Field(default=None, ge=1)
    block_rows: int = Field(default=256, ge=1)


class BoundsSpec(_Strict):
    """What the study tolerates before it says so and exits non-zero."""

    quarantined: float = Field(default=0.05, ge=0, le=1)
    missing_labels: float = Field(default=0.05, ge=0, le=1)


class TrackingSpec(_Strict):
    """Where MLflow keeps the study: `auto` is SQLite beside the run folders, `none` keeps nothing."""

    mlflow: str = "auto"
    alias: str | None = "candidate"


@dataclass(frozen=True)
class Cell:
    """One model on one data set."""

    model: str
    dataset: str

    def __str__(self) -> str:
        return f"{self.model}/{self.dataset}"


DEFAULT_METHODS = [
    "sgpu",
    "spectral_entropy",
    "largest_eigenvalue",
    "predictive_entropy",
    "log_perplexity",
    "self_consistency",
]


class Study(_Strict):
    """A set of cells (model x data set) with all settings."""

    name: Name = "study"
    seed: int = Field(default=0, ge=0)
    models: list[ModelSpec] = Field(default_factory=list)
    datasets: list[DatasetSpec] = Field(min_length=1)
    methods: list[str] = Field(default_factory=lambda: list(DEFAULT_METHODS), min_length=1)
    method_settings: dict[str, dict[str, Any]] = Field(default_factory=dict)  # by method, where not default
    sampling: SamplingSpec = Field(default_factory=SamplingSpec)
    judge: JudgeSpec = Field(default_factory=JudgeSpec)
    encoder: EncoderSpec = Field(default_factory=EncoderSpec)
    hidden: HiddenSpec = Field(default_factory=HiddenSpec)
    entailment: EntailmentSpec = Field(default_factory=EntailmentSpec)
    classifier: ClassifierSpec = Field(default_factory=ClassifierSpec)
    evaluation: EvaluationSpec = Field(default_factory=EvaluationSpec)
    sensitivity: SensitivitySpec = Field(default_factory=SensitivitySpec)
    resources: ResourceSpec = Field(default_factory=ResourceSpec)
    bounds: BoundsSpec = Field(default_factory=BoundsSpec)
    tracking: TrackingSpec = Field(default_factory=TrackingSpec)

    _name = field_validator("name")(_path_safe)

    @field_validator("models", mode="before")
    @classmethod
    def _plain_names(cls, models: Any) -> Any:
        if isinstance(models, list):
            return [{"name": model} if isinstance(model, str) else model for model in models]
        return models

    @model_validator(mode="after")
    def _consistent(self) -> Study:
        names = [dataset.name for dataset in self.datasets]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"data set name(s) {', '.join(twice)} stand twice; give each its own `name`")
        if any(d.kind != "responses" for d in self.datasets) and not self.models:
            raise ValueError("`models` is empty, but a data set without answers needs a model to sample them")
        if unasked := sorted(set(self.method_settings) - set(self.methods)):
            raise ValueError(f"`method_settings` names {', '.join(unasked)}, but `methods` does not")
        return self

    @property
    def primary_method(self) -> str:
        """The method that the others are compared with and whose probability the report draws."""
        return "sgpu" if "sgpu" in self.methods else self.methods[0]

    def cells(self) -> list[Cell]:
        """Every model x data set pair; a data set of given responses belongs to its own model only."""
        cells = []
        for dataset in self.datasets:
            if isinstance(dataset, ResponsesSpec):
                cells.append(Cell(dataset.model, dataset.name))
            else:
                cells.extend(Cell(model.name, dataset.name) for model in self.models)
        return cells

    def dataset(self, name: str) -> DatasetSpec:
        return next(d for d in self.datasets if d.name == name)

    def model(self, name: str) -> ModelSpec:
        return next(m for m in self.models if m.name == name)


def load_study(path: Path, overrides: Sequence[str] = ()) -> Study:
    """Read a study file and apply ``a.b=value`` overrides; UsageError names the key and what is allowed."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise UsageError(f"study file {path} does not exist") from None
    except IsADirectoryError:
        raise UsageError(f"study file {path} is a folder; give the YAML file") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"study file {path} is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"study file {path} is not YAML: {error}") from None
    if not isinstance(tree, dict):
        raise UsageError(f"study file {path} must be a mapping with at least `datasets`")
    tree.setdefault("name", path.stem)
    for override in overrides:
        _apply_override(tree, override)
    for dataset in tree.get("datasets") or []:
        # A relative path means: beside the study file.
        if isinstance(dataset, dict) and dataset.get("kind") == "responses" and dataset.get("path"):
            dataset["path"] = str((path.parent / str(dataset["path"])).resolve())
            dataset.setdefault("name", _name_from(Path(dataset["path"])))
    try:
        return Study.model_validate(tree)
    except ValidationError as error:
        raise UsageError(_explain(path, error)) from None


def _name_from(path: Path) -> str:
    stem = path.name.split(".")[0]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.") or "responses"


def _apply_override(tree: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise UsageError(f"--set {override!r}: expected KEY=VALUE, for instance sampling.n=10")
    node: Any = tree
    *parents, last = key.split(".")
    try:
        for part in parents:
            node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
        if isinstance(node, list):
            node[int(last)] = yaml.safe_load(value)
        else:
            node[last] = yaml.safe_load(value)
    except (IndexError, ValueError, TypeError, AttributeError):
        raise UsageError(f"--set {override!r}: {key!r} does not lead to a setting of this study") from None


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    model: Any = Study
    by_kind = {"worldfacts": WorldfactsSpec, "responses": ResponsesSpec}
    for part in location:
        if isinstance(part, int):
            continue
        if part in by_kind and model is Study:
            model = by_kind[str(part)]
            continue
        field = model.model_fields.get(part) if hasattr(model, "model_fields") else None
        if field is None:
            continue
        inner = {"models": ModelSpec}.get(str(part), field.annotation)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            model = inner
    return sorted(model.model_fields)


def _explain(path: Path, error: ValidationError) -> str:
    lines = []
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"]) or "study"
        if problem["type"] == "extra_forbidden":
            key = str(problem["loc"][-1])
            known = _known_keys(problem["loc"][:-1])
            near = difflib.get_close_matches(key, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            lines.append(f"{where}: unknown key.{hint} Known: {', '.join(known)}.")
        else:
            given = problem.get("input")
            shown = "" if isinstance(given, dict | list) or given is None else f" (got {given!r})"
            lines.append(f"{where}: {problem['msg'].removeprefix('Value error, ')}{shown}")
    return f"study file {path}:\n  " + "\n  ".join(lines)
