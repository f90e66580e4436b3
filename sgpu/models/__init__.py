"""Language models: cards, weights, access, what the machine can run."""
