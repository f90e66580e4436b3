"""What a plan is made from and of: plain records, so that its arithmetic needs no study file and no card."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from sgpu.errors import DataError


@dataclass(frozen=True)
class Sizes:
    """Questions of the two splits; train holds validation too."""

    train: int
    test: int

    @property
    def total(self) -> int:
        return self.train + self.test


def granted(requested: Sizes, pools: Mapping[str, int]) -> Sizes | None:
    """The rule of `sgpu.datasets.split` on counts: test is filled first; None where no pool is known.

    An upper bound where groups of several rows stand at the cut. Raises DataError for pools of other names.
    """
    if not pools:
        return None
    if set(pools) == {"all"}:
        test = min(requested.test, pools["all"])
        return Sizes(min(requested.train, pools["all"] - test), test)
    if set(pools) <= {"train", "test"}:
        return Sizes(min(requested.train, pools.get("train", 0)), min(requested.test, pools.get("test", 0)))
    raise DataError(f"a card counts the pools {sorted(pools)}; give 'all', or 'train' and 'test'")


SAMPLE_OF_TEST = "sample of test"


@dataclass(frozen=True, kw_only=True)
class PlanModel:
    """A language model as the planner sees it; ``parameters`` (1e9) is None where nothing is known."""

    name: str
    parameters: float | None
    engine: str = "vllm"
    gpus: int = 1  # that one engine spans
    memory_gib: float = 0.0
    kv_bytes_per_token: int = 0
    on_cpu: bool = False
    parameters_from: str = "card"
    image_rule: str | None = None
    image_options: Mapping[str, object] = field(default_factory=dict)
    max_pixels: int | None = None
    price: tuple[float, float] | None = None  # USD of a server for a million tokens read and written


@dataclass(frozen=True)
class PlanJudge:
    """Who votes on all answers to some questions; ``model`` is None for a judge that is a rule."""

    name: str
    model: PlanModel | None
    questions: int
    of: str  # which questions: "train", "test", "train and test", "sample of test"
    guarded: bool = False  # answers stand between marks, which a notice explains

    @property
    def title(self) -> str:
        return self.model.name if self.model else self.name


@dataclass(frozen=True, kw_only=True)
class PlanCell:
    """One model on one data set; None for what is not known before the data are read."""

    model: PlanModel
    dataset: str
    requested: Sizes | None
    granted: Sizes | None
    n: int
    question_tokens: int = 20
    wording_tokens: float = 0.0  # of the prompt form around the question
    answer_tokens: float = 12.0
    image: tuple[int, int] | None = None  # width, height in pixels, as the model is given it
    max_pixels: int | None = None
    sampled_elsewhere: bool = False
    judges: tuple[PlanJudge, ...] = ()
    encoders: tuple[tuple[str, int], ...] = (("all-MiniLM-L6-v2", 384),)  # with their dimension
    unknown: tuple[str, ...] = ()

    @property
    def questions(self) -> int:
        return self.granted.total if self.granted else 0

    @property
    def answers(self) -> int:
        return self.questions * self.n

    def __str__(self) -> str:
        return f"{self.model.name}/{self.dataset}"


@dataclass(frozen=True, kw_only=True)
class PlanStudy:
    """All cells of a study with what its methods ask of the stages."""

    name: str
    cells: tuple[PlanCell, ...]
    entailment: str | None = None  # the backend; None where no method compares answers
    entailment_model: PlanModel | None = None
    reads_hidden: bool = False
    on_cpu: bool = False
    cores: int = 2
    actors: Mapping[str, int] = field(default_factory=dict)  # by stage; one where it is not named
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # what the study cannot start without, on this machine
    weights_gb: float = 0.0  # of all models that its own engines load
    hidden_gb: float | None = 0.0  # None where a model's shape is not known


HOUR = 3600.0
STAGES = ("sample", "judge", "encode", "entail", "hidden")


@dataclass(frozen=True, kw_only=True)
class Work:
    """``calls`` are prompts, votes, pairs or texts, as the stage counts them.

    ``hours`` are of GPUs, or of the machine where ``on_cpu``. ``rates`` names what they rest on, ``bound``
    what holds the stage up. ``gpus`` and ``start_minutes`` are of one actor.
    """

    stage: str
    model: str
    dataset: str
    answered_by: str
    calls: float
    part: str = ""  # which questions, where it is not all of them
    hours: float = 0.0
    tokens_in: float = 0.0
    tokens_out: float = 0.0
    before_distinct: float = 0.0  # calls if equal answers were not sent once; 0 where that does not apply
    on_cpu: bool = False
    gpus: float = 0.0
    start_minutes: float = 0.0
    bound: str = ""
    rates: tuple[str, ...] = ()

    def lasting(
        self, seconds: float, bound: str, rates: tuple[str, ...], *, gpus: float = 0.0, start_minutes: float
    ) -> Work:
        """The same work with its time; on the CPU if it takes no GPU."""
        return replace(
            self, hours=seconds / HOUR, bound=bound, rates=rates, gpus=gpus, on_cpu=not gpus,
            start_minutes=start_minutes,
        )  # fmt: skip


def in_pipeline_order(work: Iterable[Work]) -> list[Work]:
    """Stage by stage, cells in their own order."""
    return sorted(work, key=lambda step: STAGES.index(step.stage))
