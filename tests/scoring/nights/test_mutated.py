"""Values that nobody meant, in all formats: a night ends with a verdict, and every row is somewhere."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from sgpu.scoring.day import score_days
from sgpu.scoring.outcome import exit_code
from tests.chaos.mutated import write_mutated
from tests.scoring.nights.nights import DAY, SCORER, quarantine, scores, settings

RECORDS, FILES = 1_000, 30


def test_mutated_values_and_files_end_no_night(place: Path) -> None:
    lines = write_mutated(place / "logs", RECORDS, FILES)
    results = score_days(settings(place, late_days=0, bucket_rows=4096), scorer=SCORER)
    assert exit_code(results, DAY) in (0, 3, 4, 5)
    (found,) = [one.accounting for one in results]
    assert found is not None
    found.check()
    assert found.rows_in >= lines and found.scored_rows > RECORDS / 10
    refused = quarantine(place)
    assert refused.filter(refused["line"].is_not_null()).height == found.quarantined
    assert not refused["detail"].str.contains("unexpected").any()
    assert max(Counter(scores(place).select("model", "request_id").rows()).values()) == 1
    # A Parquet file is read, or its fault stands in the quarantine.
    assert set(refused["file"]) & {f"dt={DAY}/table-{number:04d}.parquet" for number in range(FILES)}
