"""The models of a night: opened, their vectors kept, and the registry by hand."""
