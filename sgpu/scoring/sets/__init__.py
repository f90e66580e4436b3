"""From rows to response sets: which belong together, which are new."""
