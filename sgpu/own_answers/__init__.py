"""Fitting a model to one's own labelled answers: the command `sgpu fit` as functions."""
