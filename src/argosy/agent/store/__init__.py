"""Code and files that come from elsewhere; what the server sends is kept by content."""
