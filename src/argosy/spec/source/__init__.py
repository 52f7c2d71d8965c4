"""Text to documents: YAML with the place of every word, and what is wrong with it."""
