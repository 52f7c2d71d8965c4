"""The nouns: frozen values without I/O; everything else in Argosy meets in them."""
