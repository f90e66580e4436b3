"""Scores of production logs, night by night: every request that can be scored exactly once."""
