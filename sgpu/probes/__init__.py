"""Trained probes: small classifiers on the hidden states of one answer. Arrays in, probabilities out."""
