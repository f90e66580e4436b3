"""What runs stages: sessions, the runner, workers, locks, progress."""
