"""The models of a night: found, checked, opened."""
