"""The workflows: here it is decided what is due, and `sgpu` does it."""
