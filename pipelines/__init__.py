"""The workflows: here it is decided what is due, and `sgpu` does it.

Two things are done here: fitting one's own labelled answers, and running a study on the head of a cluster.
"""
