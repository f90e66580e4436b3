"""Entailment: whether one answer to a question says what another one says."""
