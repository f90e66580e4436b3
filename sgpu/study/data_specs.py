"""What a study file says of its data sets: where questions come from, how they are asked and judged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from sgpu.datasets.base import DATASETS, DatasetCard
from sgpu.errors import UsageError
from sgpu.judges.base import JUDGES, asks_model
from sgpu.models.cards import PROMPT_FORMS
from sgpu.study.specs import Name, NameIn, Strict, path_safe

JudgeName = Annotated[str, NameIn(JUDGES)]
DEFAULT_SIZES = (240, 160)  # of a data set that the paper does not have


class SamplingSpec(Strict):
    """How answers are drawn (the paper's values).

    ``prompt``: a form of `sgpu.models.cards` or a template.
    """

    n: int = Field(default=20, ge=2, le=1024)
    temperature: float = Field(default=1.0, gt=0)
    top_p: float = Field(default=0.9, gt=0, le=1)
    top_k: int = Field(default=50, ge=0)
    repetition_penalty: float = Field(default=1.0, gt=0)
    max_tokens: int | None = Field(default=None, ge=1)  # none: 512 where a server answers, else 64
    stop: list[str] = Field(default_factory=lambda: ["\n"])
    prompt: str = PROMPT_FORMS["text-qa"]

    @field_validator("prompt")
    @classmethod
    def _has_question(cls, prompt: str) -> str:
        prompt = PROMPT_FORMS.get(prompt, prompt)
        if "{question}" not in prompt:
            raise ValueError(
                f"must be one of {', '.join(PROMPT_FORMS)}, or a template with the placeholder {{question}}"
            )
        return prompt


# Of an answer whose length neither the study nor the data set bounds.
SERVED_MAX_TOKENS, LOCAL_MAX_TOKENS = 512, 64


class AgreementSpec(Strict):
    """A further judge on the first test questions, to report how far it agrees with the study's."""

    judge: JudgeName = "llm"
    model: str | None = None
    sample: int = Field(default=40, ge=1)


class JudgeSpec(Strict):
    """Who decides whether an answer is right; ``test_model``: another judge for the test questions."""

    name: JudgeName = "alias"
    model: str | None = None  # the card of an LLM judge
    test_model: str | None = None
    guard: bool = True  # an LLM judge reads answers between marks that they cannot forge
    min_mass: float = Field(default=0.01, ge=0, le=1)
    agreement: list[AgreementSpec] = Field(default_factory=list)  # one mapping, or a list of them

    @field_validator("agreement", mode="before")
    @classmethod
    def _one_or_several(cls, agreement: Any) -> Any:
        return [agreement] if isinstance(agreement, dict) else agreement or []

    @model_validator(mode="after")
    def _judges_can_be_had(self) -> JudgeSpec:
        judges = [(self.name, self.model), *((other.judge, other.model) for other in self.agreement)]
        for judge, model in judges:
            if not model and asks_model(judge):
                raise ValueError(f"judge {judge!r} needs `model`: the name of a model card")
        if self.test_model and not asks_model(self.name):
            raise ValueError(f"`test_model` belongs to the judge 'llm', not to {self.name!r}")
        if len(set(judges)) < len(judges):
            raise ValueError("`agreement` names a judge that is the study's, or one of them twice")
        if len({other.sample for other in self.agreement}) > 1:
            raise ValueError("`agreement` has several `sample`; judges are compared on the same questions")
        return self

    @property
    def models(self) -> list[str]:
        """The model cards of all judges that are language models."""
        named = [self.model, self.test_model, *(other.model for other in self.agreement)]
        return list(dict.fromkeys(model for model in named if model))


class ImagesSpec(Strict):
    """What is done to images before a model sees them; None: the model's own bound, and no scaling up."""

    max_pixels: int | None = Field(default=None, ge=28 * 28)
    upscale_to: int | None = Field(default=None, ge=28)  # the shorter side of smaller images


class QuestionsSpec(Strict):
    """Questions of a data set in `sgpu.datasets`, which the study's models answer.

    ``n_train`` (validation included) and ``n_test`` are requests; a smaller pool gives what it has.
    ``n_validation`` takes that many further questions of the training pool for validation, and none of
    ``n_train``: with ``n_train`` 0 nothing is fitted, but scores can become probabilities. Defaults
    are the paper's sizes and the data set's own way of asking; what the study says of all its data sets
    (`sampling`, `judge`) goes before these, and what stands here before that.
    """

    kind: str
    name: Name = ""
    path: Path | None = None  # a folder with the source's files; default: from the Hub, or a package
    revision: str | None = None  # a commit of the Hub data set; default: the card's
    n_train: int = Field(default=DEFAULT_SIZES[0], ge=0)
    n_validation: int | None = Field(default=None, ge=1)
    n_test: int = Field(default=DEFAULT_SIZES[1], ge=1)
    check_rows: bool = True  # stop where the source has another number of rows than is known of it
    options: dict[str, Any] = Field(default_factory=dict)
    sampling: SamplingSpec = Field(default_factory=SamplingSpec)
    judge: JudgeSpec | None = None
    images: ImagesSpec = Field(default_factory=ImagesSpec)
    embed: Literal["full", "final_answer"] = "full"

    _name = field_validator("name")(path_safe)

    @field_validator("sampling")
    @classmethod
    def _with_class_names(cls, sampling: SamplingSpec, others: ValidationInfo) -> SamplingSpec:
        if "{classes}" not in sampling.prompt or "kind" not in others.data:
            return sampling
        classes = ", ".join(dataset_card(others.data["kind"]).classes)
        if not classes:
            raise ValueError("the prompt has {classes}, but the data set has none: write the classes out")
        return sampling.model_copy(update={"prompt": sampling.prompt.replace("{classes}", classes)})

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_card(cls, tree: Any) -> Any:
        if not isinstance(tree, Mapping) or not tree.get("kind"):
            return tree
        card = dataset_card(str(tree["kind"]))
        n_train, n_test = card.paper or DEFAULT_SIZES
        defaults = {"name": card.name, "n_train": n_train, "n_test": n_test, "embed": card.embed}
        return {**defaults, **tree, "sampling": {**card_sampling(card), **_as_given(tree.get("sampling"))}}

    @property
    def card(self) -> DatasetCard:
        return dataset_card(self.kind)


class ResponsesSpec(Strict):
    """Response sets that were sampled elsewhere: JSONL or Parquet."""

    kind: Literal["responses"]
    path: Path
    model: Name = "unnamed-model"
    name: Name = "responses"
    n: int | None = Field(default=None, ge=2)
    test_share: float = Field(default=0.4, gt=0, lt=1)
    embed: Literal["full", "final_answer"] = "full"
    judge: JudgeSpec | None = None

    _names = field_validator("name", "model")(path_safe)


def _which(dataset: Any) -> str:
    kind = dataset.get("kind") if isinstance(dataset, Mapping) else getattr(dataset, "kind", None)
    return "responses" if kind == "responses" else "questions"


DatasetSpec = Annotated[
    Annotated[QuestionsSpec, Tag("questions")] | Annotated[ResponsesSpec, Tag("responses")],
    Discriminator(_which),
]


def dataset_card(kind: str) -> DatasetCard:
    """The card of a data set by the name that study files use; ValueError names what exists."""
    try:
        card: DatasetCard = DATASETS.get(kind)
    except UsageError as error:
        raise ValueError(f"{error} 'responses' takes answers that were sampled elsewhere.") from None
    return card


def card_sampling(card: DatasetCard) -> dict[str, Any]:
    """How a data set is asked where a study says nothing of it."""
    return {"prompt": card.prompt, "max_tokens": card.max_tokens, "stop": list(card.stop)}


def with_study_sampling(datasets: Any, sampling: Any) -> Any:
    """Data sets as a study file gives them, with what the study says of sampling beneath what each says."""
    if not isinstance(datasets, list):
        return datasets
    merged = []
    for dataset in datasets:
        if isinstance(dataset, Mapping) and _which(dataset) == "questions":
            own = _as_given(dataset.get("sampling"))
            dataset = {**dataset, "sampling": {**_as_given(sampling), **own}}
        merged.append(dataset)
    return merged


def _as_given(sampling: Any) -> dict[str, Any]:
    if isinstance(sampling, SamplingSpec):
        return sampling.model_dump(exclude_unset=True)
    return dict(sampling) if isinstance(sampling, Mapping) else {}
