"""Metrics with honest intervals: arrays in, arrays out; higher confidence = more trustworthy."""
