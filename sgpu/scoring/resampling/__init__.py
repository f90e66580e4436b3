"""Sampling more answers for requests that were logged with too few."""
