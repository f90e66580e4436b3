"""Sections of a study file, typed and defaulted: models, methods, evaluation, resources, bounds, tracking.

Those of data sets are in `sgpu.study.data_specs`, the whole file in `sgpu.study.benchmark`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from sgpu.engines.base import ENGINES
from sgpu.entailment.base import BACKENDS
from sgpu.errors import UsageError
from sgpu.gp.kernels import KERNELS
from sgpu.registry import NAME, Registry


class Strict(BaseModel):
    """Unknown keys are refused, so that a typo cannot silently fall back to a default."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def path_safe(name: str) -> str:
    """The name, or ValueError if it cannot be a folder's."""
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} names folders and table partitions: use letters, digits, '.', '_' and '-', "
            "starting with a letter or digit"
        )
    return name


Name = Annotated[str, Field(min_length=1, max_length=80)]


@dataclass(frozen=True)
class NameIn:
    """Annotates a field that holds a name of the registry, as it is when a study is read."""

    registry: Registry

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "enum": self.registry.names()}

    def _checked(self, name: str) -> str:
        try:
            return self.registry.check(name)
        except UsageError as error:
            raise ValueError(str(error)) from None


class ServerOptions(Strict):
    """How a server is asked, engine `openai`: at which pace, and what it is sent.

    By default that is what OpenAI's API documents. ``vllm_fields`` adds the three that follow it, each of
    which can be had by itself. Without ``n`` each answer is a request, as wherever a server refuses it.
    """

    concurrency: int = Field(default=16, ge=1, le=1024)  # requests at once
    timeout: float = Field(default=600.0, gt=0)  # seconds for one try
    max_retries: int = Field(default=8, ge=0, le=20)
    vllm_fields: bool = False
    top_k: bool = False
    repetition_penalty: bool = False
    return_token_ids: bool = False
    n: bool = True
    seed: bool = True
    logprobs: bool = True
    max_completion_tokens: bool = False  # in place of max_tokens, which OpenAI's newer models refuse


PACE = {"concurrency", "timeout", "max_retries"}  # changes no answer


class PriceSpec(Strict):
    """What a server asks for a million tokens, in USD: read, and written."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)


class BudgetSpec(Strict):
    """What the calls of all servers of a study may cost, over retries and repeated commands."""

    tokens: int | None = Field(default=None, ge=1)  # read and written
    usd: float | None = Field(default=None, gt=0)


class ModelSpec(Strict):
    """A language model: a card of `sgpu.study.models` by name, with what this study changes about it.

    With engine `openai` it may be any model of a server, which calls it ``model`` (default: ``name``).
    """

    name: Name
    model: str | None = Field(default=None, min_length=1)
    card: str | None = None  # defaults to `name`
    engine: Annotated[str, NameIn(ENGINES)] | None = None
    revision: str | None = None  # of the weights on the Hub; default: the card's
    base_url: str | None = None
    api_key_env: str | None = None
    requests_per_minute: int | None = Field(default=None, ge=1)
    system_prompt: str | None = None
    options: ServerOptions | None = None
    price: PriceSpec | None = None

    _name = field_validator("name")(path_safe)

    @model_validator(mode="after")
    def _of_a_server(self) -> ModelSpec:
        for key in ("model", "options", "price"):
            if getattr(self, key) is not None and self.engine != "openai":
                raise ValueError(f"`{key}` belongs to engine 'openai'")
        return self

    @property
    def card_name(self) -> str:
        return self.card or self.name


class EncoderSpec(Strict):
    """The sentence encoder whose spectra are used."""

    name: str = "all-MiniLM-L6-v2"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"


class EntailmentSpec(Strict):
    """Who decides whether one answer entails another, for methods that compare answers.

    ``model`` is the classifier of `deberta` (default microsoft/deberta-large-mnli), the encoder of `cosine`
    (default the study's) or the model card of `llm`. Without ``threshold`` the one of `cosine` is fitted on
    the judged training questions of each cell.
    """

    backend: Annotated[str, NameIn(BACKENDS)] = "cosine"
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


Layer = Literal["middle", "last", "all"] | int | float  # see `sgpu.hidden.rows`


class HiddenSpec(Strict):
    """The hidden states that are kept, where a method of the study reads any."""

    layers: list[Layer] = Field(default=["middle", "last"], min_length=1)  # of all answers
    # Probes read the first answer only and choose among these layers on the validation questions.
    probe_layers: list[Layer] = Field(default=["all"], min_length=1)
    positions: list[Literal["last", "slt", "tbg"]] = Field(default=["last", "slt", "tbg"], min_length=1)
    sep_position: Literal["slt", "tbg"] = "slt"  # where SEP reads


Kernel = Annotated[str, NameIn(KERNELS)]


class ClassifierSpec(Strict):
    """The Gaussian-process classifier; defaults are the paper's kernel and our measured recipe.

    ``pool`` says how cells weigh in a pooled fit: by their rows, or each the same. ``other_n`` says who
    answers for sets of another size than a study's: one classifier of any size, trained on ``sizes`` drawn
    from the stored answers, or one head for each of them.
    """

    kernel: Kernel = "matern15"
    inducing: int = Field(default=128, ge=2)
    hyper_rows: int = Field(default=3000, ge=10)
    pool: Literal["by_row", "by_cell"] = "by_row"
    other_n: Literal["size_free", "heads", "none"] = "size_free"
    sizes: list[Annotated[int, Field(ge=2)]] = Field(default=[2, 3, 5, 8, 10, 15])

    def of_one_fit(self) -> dict[str, Any]:
        """The settings that a single classifier has."""
        return self.model_dump(mode="json", include={"kernel", "inducing", "hyper_rows"})

    def of_agreement(self) -> dict[str, Any]:
        """Return those of `sgpu.gp.content.ContentClassifier`, whose kernel is its own."""
        return self.model_dump(mode="json", include={"inducing", "hyper_rows"})


class EvaluationSpec(Strict):
    """How confidences are measured."""

    bootstrap: int = Field(default=2000, ge=100)
    validation_share: float = Field(default=0.15, gt=0, lt=0.5)


Varied = Literal["kernels", "encoders", "n_answers", "train_sizes", "embedding_sets"]


class SensitivitySpec(Strict):
    """What the classifier is refitted with, one setting varied at a time; stored answers are used again.

    ``cells`` are the model/dataset names in which a setting is varied, for each setting or one list for all;
    a setting that it does not name is varied in all cells. ``n_answers`` and ``train_sizes`` beyond what a
    cell has are left out. The judges that are compared are the study's and that of `judge.agreement`.
    """

    cells: dict[Varied, list[str]] = Field(default_factory=dict)

    kernels: list[Kernel] = Field(default_factory=list)
    encoders: list[str] = Field(default_factory=list)
    n_answers: list[Annotated[int, Field(ge=2)]] = Field(default_factory=list)
    train_sizes: list[Annotated[int, Field(ge=4)]] = Field(default_factory=list)
    # Sets of two meanings in fixed wordings, to see what an encoder and the model itself make of them.
    embedding_sets: int = Field(default=0, ge=0)
    # `model`: the cell's own model words the answers of these sets, if it is one that can be asked.
    embedding_wordings: Literal["fixed", "model"] = "fixed"

    @field_validator("cells", mode="before")
    @classmethod
    def _of_every_setting(cls, cells: Any) -> Any:
        return dict.fromkeys(get_args(Varied), cells) if isinstance(cells, list) else cells


ActorStage = Literal["sample", "decode", "judge", "encode", "hidden", "entail"]


class ResourceSpec(Strict):
    """What a study may hold; zeros and None mean: decide by the machine.

    Of ``gpus`` each stage gets as many as the schedule of the study gives it; ``auto`` counts those that are
    up. ``actors`` gives a stage a number of its own; for ``decode``, of images, it is for each that samples.
    """

    gpus: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    actors: dict[ActorStage, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    # Ray Train workers; None: this process for up to a minute of fits, 0: always.
    fitters: int | None = Field(default=None, ge=0)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    # auto: small stages without an engine run in the command's own process, unless there is a cluster.
    executor: Literal["auto", "ray"] = "auto"
    sample_block_rows: int | None = Field(default=None, ge=1)
    block_rows: int = Field(default=256, ge=1)


class BoundsSpec(Strict):
    """What the study tolerates before it says so and exits non-zero."""

    quarantined: float = Field(default=0.05, ge=0, le=1)
    missing_labels: float = Field(default=0.05, ge=0, le=1)
    # Without a row begun or ended, once a worker of the pool is ready.
    stalled_minutes: float = Field(default=30, gt=0)


class KeepSpec(Strict):
    """What stays on disk when a study is finished; the rest is made again where it is needed and kept."""

    hidden_states: bool = True


class TrackingSpec(Strict):
    """Where MLflow keeps the study: `auto`: MLFLOW_TRACKING_URI, else runs/mlflow.db; `none`: nowhere."""

    mlflow: str = "auto"
    alias: str | None = "candidate"
