"""What the log formats have in common: checked fields, clock times, questions, answers."""
