"""The report of a transfer study: matrices as heat maps, tests, curves, recalibration."""
