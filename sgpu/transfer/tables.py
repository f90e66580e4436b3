"""The tables of a transfer study. Columns of questions and metrics are those of `sgpu.storage.tables`."""

from __future__ import annotations

import pyarrow as pa

from sgpu.storage.tables import COMPARISONS, METRICS, Table

CURVE = "curve"
_TARGET = [
    pa.field("model", pa.string(), nullable=False),
    pa.field("dataset", pa.string(), nullable=False),
]

# What each classifier says of all questions of its target; those of learning curves under design "curve".
FORECASTS = Table(
    "transfer_forecasts",
    pa.schema(
        [
            *_TARGET,
            pa.field("method", pa.string(), nullable=False),
            pa.field("axis", pa.string()),  # of a curve: cells or rows
            pa.field("size", pa.int64()),  # how many of them trained it
            pa.field("seed", pa.int64()),  # of the draw of the pool
            pa.field("question_id", pa.string(), nullable=False),
            pa.field("split", pa.string(), nullable=False),
            pa.field("label", pa.int8()),
            pa.field("probability", pa.float64()),  # null: no spectrum
            pa.field("fit_id", pa.string()),
        ]
    ),
    ("design",),
)

# Files of results, in long form. `method` has each name once for a target, so that other tools can read them.
METRIC_FILE = pa.schema([*_TARGET, pa.field("design", pa.string()), *METRICS.schema])
COMPARISON_FILE = pa.schema([*_TARGET, *COMPARISONS.schema])
# A point is a mean over seeds; `difference` is to no label of the target at all.
POINT_FILE = pa.schema(
    [
        *_TARGET,
        pa.field("design", pa.string()),
        pa.field("axis", pa.string()),  # cells, rows, or the map of a recalibration
        pa.field("size", pa.int64()),  # source cells, training rows, or labels of the target
        pa.field("metric", pa.string()),
        *(pa.field(name, pa.float64()) for name in ("value", "lo", "hi")),
        *(pa.field(f"difference{end}", pa.float64()) for end in ("", "_lo", "_hi", "_p")),
        pa.field("seeds", pa.int64()),  # of which the point is a mean
        pa.field("n", pa.int64()),
        pa.field("n_missing", pa.int64()),
        pa.field("undefined", pa.string()),
    ]
)
