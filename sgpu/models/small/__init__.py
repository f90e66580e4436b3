"""Models that are trained on this machine at their first use, because no package brings their weights."""
