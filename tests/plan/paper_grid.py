"""The paper's vision grid as plain records, so that its cost can be tested without cards or files."""

from __future__ import annotations

from sgpu.plan.cells import PlanCell, PlanJudge, PlanModel, PlanStudy, Sizes
from sgpu.plan.image_tokens import image_rule

CAP = 1280 * 28 * 28
# Requested sizes of the paper, typical image (width, height).
DATASETS: dict[str, tuple[Sizes, tuple[int, int]]] = {
    "advqa": (Sizes(6_000, 2_000), (640, 480)),
    "vqa-rad": (Sizes(2_000, 500), (1024, 1024)),
    "ok-vqa": (Sizes(9_000, 5_000), (640, 480)),
    "vizwiz": (Sizes(10_000, 2_000), (1224, 1632)),
    "cifar-10": (Sizes(10_000, 5_000), (32, 32)),
    "imagenette": (Sizes(10_000, 5_000), (427, 320)),
}
# Parameters (1e9), engine, rule of image tokens, most pixels.
FACTS = {
    "qwen-3b": (3.75, "vllm", "qwen2.5-vl", CAP),
    "qwen-7b": (8.29, "vllm", "qwen2.5-vl", CAP),
    "llava-7b": (7.57, "vllm", "llava-next", 10**12),
    "idefics2-8b": (8.4, "transformers", "idefics2", 4 * 980**2),
}
MODELS = {
    name: PlanModel(
        name=name, parameters=size, engine=engine, tower_parameters=image_rule(rule).tower_parameters
    )
    for name, (size, engine, rule, _) in FACTS.items()
}
JUDGE_8B = PlanModel(name="llama-8b", parameters=8.03, memory_gib=15.0)
JUDGE_70B = PlanModel(name="llama-70b", parameters=70.6, gpus=4, memory_gib=131.5)


def paper_study(answer_tokens: float = 12.0) -> PlanStudy:
    """Four models on six data sets, training labels by an 8B judge, test labels by a 70B judge."""
    cells = tuple(
        PlanCell(
            model=model,
            dataset=dataset,
            requested=sizes,
            granted=sizes,
            n=20,
            question_tokens=12,
            wording_tokens=15.0,
            answer_tokens=answer_tokens,
            image=image_rule(FACTS[model.name][2]).cost(*image, FACTS[model.name][3], {}),
            judges=(
                PlanJudge(JUDGE_8B, sizes.train),
                PlanJudge(JUDGE_70B, sizes.test),
            ),
        )
        for model in MODELS.values()
        for dataset, (sizes, image) in DATASETS.items()
    )
    return PlanStudy(name="paper", cells=cells, entailment="deberta", reads_hidden=True)
