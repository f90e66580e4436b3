"""Uncertainty methods, one a file; the functions here are pure and take one response set or arrays."""
