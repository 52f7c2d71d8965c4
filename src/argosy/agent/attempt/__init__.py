"""One attempt: what it needs, its programs, its probe, its end."""
