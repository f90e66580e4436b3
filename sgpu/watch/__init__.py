"""Is today like the days before, and like the training data? Sketches, tests, and the verdict on a day."""
