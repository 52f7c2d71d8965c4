"""Where others come in: the socket, what they ask, and what is answered."""
