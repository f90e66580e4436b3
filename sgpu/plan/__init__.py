"""What a study will cost before it is run: prompts, tokens, GPU-hours, placement."""
