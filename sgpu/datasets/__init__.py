"""Data sets: questions with their references, own files, response sets, and how they are split."""
