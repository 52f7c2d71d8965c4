"""One module a step; the name begins with the revision."""
