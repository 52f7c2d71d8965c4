"""Places that give capacity; each knows nothing of the others."""
