"""What all pages share: numbers, words, pictures."""
