"""Choose the questions of `quickstart_full`: those on which a pilot with another seed is divided.

    python -m bench.divided_questions --out runs/pilot

A model that is right or wrong whatever is drawn leaves nothing for a method to tell. The pilot asks as the
study does; questions of which it gets 40 to 60% of the answers right are written, with their references.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

from bench.study_plus.cells import COMMAND, pilot_votes, published

STUDY = Path("pipelines/studies/quickstart_full.yaml")
QUESTIONS = STUDY.with_suffix(".jsonl")
DATASET, POOL, ANSWERS, SEED = "worldfacts", 2400, 5, 1
LEAST, MOST, SIZE = 0.4, 0.6, 400
PILOT = {
    "seed": SEED,
    "sampling.n": ANSWERS,
    "datasets": [
        {
            "kind": DATASET,
            "n_train": 0,
            "n_test": POOL,
            "options": {"kinds": ["city", "capital"], "min_population": 100_000, "max_share": 1.0},
        }
    ],
    "judge": {"name": "alias"},
    "methods": ["largest_eigenvalue"],
    "sensitivity": {},
    "evaluation.bootstrap": 100,
    "tracking.mlflow": "none",
}


def main() -> None:
    """Run the pilot and write the list."""
    parser = argparse.ArgumentParser(prog="divided-questions", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    overrides = [part for key, value in PILOT.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    subprocess.run([*COMMAND, "benchmark", str(STUDY), "--out", str(out), *overrides], check=True)
    chosen = divided(out)
    rows = (json.dumps(row, ensure_ascii=False) + "\n" for row in chosen)
    QUESTIONS.write_text("".join(rows), encoding="utf-8")
    print(f"{len(chosen)} questions in {QUESTIONS}")


def divided(run: Path) -> list[dict[str, object]]:
    """Return at most `SIZE` questions whose share of right answers is between `LEAST` and `MOST`."""
    votes, asked = pilot_votes(run, DATASET), published(run, "questions", DATASET).to_pylist()
    share = {name: sum(own) / len(own) for name, own in votes.items() if own}
    kept = [row for row in asked if LEAST <= share.get(row["question_id"], 0) <= MOST]
    return [
        {name: row[name] for name in ("question_id", "question", "references")}
        for row in sorted(kept, key=lambda row: str(row["question_id"]))[:SIZE]
    ]


if __name__ == "__main__":
    main()
