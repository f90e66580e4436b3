"""What the model assumes beyond the rates of a plan, each number with where it comes from."""

from __future__ import annotations

from collections.abc import Iterator

from sgpu.plan.rates import Positive, Rate, Share
from sgpu.storage.parquet_files import THREADS
from sgpu.study.specs import Strict

SLOW_CPU = "one of two shared cores, no GPU, 2026-11-21"


def _measured(value: float, note: str) -> Positive:
    return Positive(value=value, origin="measured", note=f"{note}; {SLOW_CPU}")


def _guess(value: float, note: str) -> Rate:
    return Rate(value=value, origin="guess", note=note)


class Assumptions(Strict):
    """Faults of a cluster, and the work that no GPU does."""

    speed_spread: Rate = _guess(0.05, "log-spread of the speed of equal actors")
    block_spread: Rate = _guess(0.15, "log-spread of the seconds of equal blocks")
    straggler_share: Share = Share(value=0.01, origin="guess", note="blocks that take much longer")
    straggler_factor: Positive = Positive(value=5, origin="guess", note="how much longer")
    hours_between_losses: Positive = Positive(
        value=200, origin="guess", note="of one GPU: a spot node of 8 is lost about once a day"
    )
    replace_seconds: Rate = _guess(300, "from the loss of a node to the next one")
    engine_block_rows: Positive = Positive(
        value=512, origin="given", note="rows of a block of an engine on a GPU; the code's default"
    )
    light_block_rows: Positive = Positive(value=256, origin="given", note="of other stages; the default")
    ledger_blocks_per_s: Positive = _measured(
        541, "one ledger actor with metrics, begin and end of blocks of 512 ids"
    )
    job_start_seconds: Rate = Rate(
        value=15, origin="measured", note=f"start of one Ray Data job, 12 to 20 were seen; {SLOW_CPU}"
    )
    checked_rows_per_s: Positive = _measured(444_558, "every id once in the output, on the driver")
    checked_row_bytes: Positive = _measured(172, "memory of that check, 1,000,000 ids")
    committed_files_per_s: Positive = _measured(
        184_800, "one Delta commit of 20,000 files, on a local disk; their rows are known from the check"
    )
    object_store_file_ms: Rate = _guess(
        20, "milliseconds that the check waits for one file in object storage; never measured there"
    )
    file_readers: Positive = Positive(
        value=THREADS, origin="given", note="files that the check reads at a time; the code's number"
    )
    bootstrap_row_us: Positive = _measured(
        897, "microseconds a test row: nine metrics, 12 methods, 2,000 resamples, 4.49 CPU s for 5,000 rows"
    )
    encoded_answers_per_s: Positive = _measured(2_611, "MiniLM in bfloat16, 60 % duplicates over 100 sets")
    spectra_per_s: Positive = _measured(33_309, "eigenvalues of response sets, N = 20, D = 384")
    fit_seconds: Rate = Rate(
        value=60, origin="guess", note="all fits; the training rows are bounded, 0.4 CPU s for 1,000 rows"
    )
    head_memory_gib: Positive = Positive(value=128, origin="given", note="of the head in cluster.yaml")
    idle_seconds: Rate = Rate(
        value=600, origin="given", note="that an idle GPU node stays and is paid; of cluster.yaml"
    )

    def named(self) -> Iterator[tuple[str, Rate]]:
        """Every number with its name."""
        for name in type(self).model_fields:
            yield name, getattr(self, name)
