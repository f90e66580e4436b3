"""Constructed production logs in every format that `sgpu score` reads, with the truth about each row.

`python -m bench.constructed_logs --out DIR --rows 50000 --days 2026-11-20 --seed 0` writes DIR/logs/dt=.../,
beside it DIR/truth.json (the accounting that scoring has to reach) and DIR/planted.jsonl (file, line and
fault of every bad row). Rows are made one at a time: memory does not grow with them.
"""
