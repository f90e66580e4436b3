"""Plug-ins of a house of its own."""
