"""Plain records that a plan is made from and of, so that its arithmetic needs no study file or card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sgpu.errors import DataError
from sgpu.plan.image_tokens import NO_IMAGE, ImageCost


@dataclass(frozen=True)
class Sizes:
    """Questions of the two splits; train includes validation."""

    train: int
    test: int

    @property
    def total(self) -> int:
        return self.train + self.test


def grant_sizes(requested: Sizes, pools: Mapping[str, int]) -> Sizes | None:
    """Apply the rule of `sgpu.datasets.split` to counts: test is filled first. None if no pool is known.

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


@dataclass(frozen=True, kw_only=True)
class PlanModel:
    """A language model as the planner sees it.

    ``parameters`` and those of its vision tower are in 1e9, None where nothing is known. ``gpus``: that one
    engine spans. ``price``: USD of a server for a million tokens read and written.
    """

    name: str
    parameters: float | None
    engine: str = "vllm"
    gpus: int = 1
    memory_gib: float = 0.0
    tower_parameters: float = 0.0
    price: tuple[float, float] | None = None


@dataclass(frozen=True)
class PlanJudge:
    """A judge of all answers to so many questions; ``model`` is None for a rule.

    ``guarded``: answers stand between marks, which a notice explains.
    """

    model: PlanModel | None
    questions: int
    guarded: bool = False


@dataclass(frozen=True, kw_only=True)
class PlanCell:
    """One model on one data set; sizes are None where they are not known before the data are read."""

    model: PlanModel
    dataset: str
    requested: Sizes | None
    granted: Sizes | None
    n: int
    question_tokens: int = 20
    wording_tokens: float = 0.0  # of the prompt form around the question
    answer_tokens: float = 12.0
    image: ImageCost = NO_IMAGE
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


@dataclass(frozen=True, kw_only=True)
class PlanStudy:
    """All cells of a study with what its methods ask of the stages.

    ``entailment``: the backend, None where no method compares answers. ``hidden_gb`` is None where a model's
    shape is not known. ``missing``: what the study cannot start without, on this machine.
    """

    name: str
    cells: tuple[PlanCell, ...]
    entailment: str | None = None
    entailment_model: PlanModel | None = None
    fits_threshold: bool = False  # of cosine entailment, on labels
    reads_hidden: bool = False
    on_cpu: bool = False
    cores: int = 2
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    weights_gb: float = 0.0
    hidden_gb: float | None = 0.0


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one stage does for one cell with one engine.

    ``calls`` are prompts, votes, pairs or texts. ``hours`` are of GPUs, of the machine where ``gpus`` is 0.
    ``gpus`` and ``start_minutes`` are those of one actor. ``limit`` names what holds the stage up.
    """

    stage: str
    engine: str
    answered_by: str
    dataset: str
    rows: int
    calls: float
    tokens_in: float = 0.0
    tokens_out: float = 0.0
    hours: float = 0.0
    gpus: float = 0.0
    start_minutes: float = 0.0
    block_rows: int = 256
    limit: str = ""

    @property
    def pool(self) -> str:
        """The name of the pool that does it, as a run has it."""
        return f"{self.stage.partition(' ')[0]} {self.engine}"

    @property
    def row_minutes(self) -> float:
        """Minutes of one actor for a row."""
        return self.hours * 60 / (self.gpus or 1.0) / self.rows
