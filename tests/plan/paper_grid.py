"""The paper's vision grid as plain records, so that its cost can be tested without cards or files."""

from __future__ import annotations

from sgpu.plan.cells import PlanCell, PlanJudge, PlanModel, PlanStudy, Sizes

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
MODELS = {
    "qwen-3b": PlanModel(name="qwen-3b", parameters=3.75, image_rule="qwen2.5-vl", max_pixels=CAP),
    "qwen-7b": PlanModel(name="qwen-7b", parameters=8.29, image_rule="qwen2.5-vl", max_pixels=CAP),
    "llava-7b": PlanModel(name="llava-7b", parameters=7.57, image_rule="llava-next", max_pixels=CAP),
    "idefics2-8b": PlanModel(
        name="idefics2-8b",
        parameters=8.4,
        engine="transformers",
        image_rule="idefics2",
        max_pixels=4 * 980**2,
    ),
}
JUDGE_8B = PlanModel(name="llama-8b", parameters=8.03, memory_gib=15.0)
JUDGE_70B = PlanModel(
    name="llama-70b", parameters=70.6, gpus=4, memory_gib=131.5, kv_bytes_per_token=320 * 1024
)


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
            image=image,
            judges=(
                PlanJudge("llm", JUDGE_8B, sizes.train, "train"),
                PlanJudge("llm", JUDGE_70B, sizes.test, "test"),
            ),
        )
        for model in MODELS.values()
        for dataset, (sizes, image) in DATASETS.items()
    )
    return PlanStudy(
        name="paper", cells=cells, actors={"sample": 8, "judge": 2}, entailment="deberta", reads_hidden=True
    )
