from __future__ import annotations

import pytest
import torch
import vllm.v1.sample.ops.topk_topp_sampler as stock_module
from scipy.stats import chisquare

from sgpu.engines import cpu_sampler

STOCK = stock_module.apply_top_k_top_p_pytorch


def refuse(*_: object) -> torch.Tensor:
    raise AssertionError("left to vLLM")


def limits(rows: int, k: int, p: float) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((rows,), k, dtype=torch.int32), torch.full((rows,), p)


def random_logits(rows: int, vocabulary: int = 4096, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * 4


@pytest.mark.parametrize(("k", "p"), [(50, 0.9), (50, 1.0), (1, 0.9), (200, 0.5), (20, 1e-6)])
def test_mask_is_vllms_where_no_logits_are_equal(k: int, p: float) -> None:
    logits = random_logits(64)
    ks, ps = limits(64, k, p)
    expected = STOCK(logits.clone(), ks, ps)
    assert torch.equal(cpu_sampler.mask_top_k_top_p(logits, ks, ps, stock=refuse), expected)


def test_mask_is_vllms_for_rows_with_limits_of_their_own() -> None:
    logits = random_logits(3)
    ks, ps = torch.tensor([5, 50, 17], dtype=torch.int32), torch.tensor([0.3, 0.99, 0.7])
    expected = STOCK(logits.clone(), ks, ps)
    assert torch.equal(cpu_sampler.mask_top_k_top_p(logits, ks, ps, stock=refuse), expected)


@pytest.mark.parametrize("p", [0.9, 0.6])
def test_probabilities_are_vllms_where_bfloat16_logits_are_equal(p: float) -> None:
    # Which of several equal logits top-p drops is open in vLLM, so the sorted probabilities are compared.
    logits = random_logits(200).bfloat16().float()
    ks, ps = limits(200, 50, p)
    expected = STOCK(logits.clone(), ks, ps).softmax(-1).sort(-1).values
    found = cpu_sampler.mask_top_k_top_p(logits, ks, ps, stock=STOCK).softmax(-1).sort(-1).values
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)


def test_all_ties_at_the_kth_place_stay() -> None:
    logits = torch.full((1, 4096), -5.0)
    logits[0, :5] = torch.tensor([3.0, 2.0, 1.0, 1.0, 1.0])
    ks, ps = limits(1, 3, 1.0)
    kept = cpu_sampler.mask_top_k_top_p(logits, ks, ps, stock=refuse)
    assert torch.isfinite(kept[0]).nonzero().flatten().tolist() == [0, 1, 2, 3, 4]


def test_more_ties_than_were_looked_at_are_left_to_vllm() -> None:
    logits = torch.zeros(1, 4096)
    ks, ps = limits(1, 50, 0.9)
    with pytest.raises(AssertionError, match="left to vLLM"):
        cpu_sampler.mask_top_k_top_p(logits, ks, ps, stock=refuse)


def test_no_limit_on_k_is_left_to_vllm() -> None:
    ks, ps = limits(1, 4096, 0.9)
    with pytest.raises(AssertionError, match="left to vLLM"):
        cpu_sampler.mask_top_k_top_p(random_logits(1), ks, ps, stock=refuse)


@pytest.mark.parametrize("seeded", [True, False])
def test_draws_follow_the_warped_distribution(monkeypatch: pytest.MonkeyPatch, seeded: bool) -> None:
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        pytest.skip("a GPU is here, and the stand-ins are for the CPU")
    current_platform.import_kernels()
    from vllm.v1.sample import sampler

    # Both are put back after the test, so that others see vLLM as it is.
    monkeypatch.setattr(stock_module, "apply_top_k_top_p", stock_module.apply_top_k_top_p)
    monkeypatch.setattr(sampler, "batched_count_greater_than", sampler.batched_count_greater_than)
    assert cpu_sampler.install()
    n, row = 20_000, random_logits(1, 1024, seed=3) / 4
    p = row[0].double().softmax(-1)
    best = p.sort(descending=True).indices[:12]
    before = (p[best] / p[best].sum()).cumsum(0) - p[best] / p[best].sum()
    kept = best[before < 0.8]
    generators = {i: torch.Generator().manual_seed(1024 * i) for i in range(n)} if seeded else {}
    torch.manual_seed(11)
    drawn, _ = stock_module.TopKTopPSampler().forward_cpu(row.repeat(n, 1), generators, *limits(n, 12, 0.8))
    counts = torch.bincount(drawn, minlength=1024)
    assert counts.sum() == counts[kept].sum() == n
    assert len(kept) > 5
    assert chisquare(counts[kept].numpy(), (n * p[kept] / p[kept].sum()).numpy()).pvalue > 1e-3


def test_rank_counts_logits_that_are_not_less() -> None:
    logprobs = torch.tensor([[-1.0, -3.0, -2.0, -2.0], [-4.0, -1.0, -2.0, -3.0]])
    ranks = cpu_sampler.count_not_less(logprobs, torch.tensor([[-2.0], [-1.0]]))
    assert ranks.tolist() == [3, 1]
    assert ranks.dtype == torch.int64


def test_unknown_vllm_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(logits: torch.Tensor) -> torch.Tensor:
        return logits

    monkeypatch.setattr(stock_module, "apply_top_k_top_p", other)
    assert not cpu_sampler.install()
    assert stock_module.apply_top_k_top_p is other
