"""Hidden states of sampled answers, by a second pass over prompt and answer tokens."""
