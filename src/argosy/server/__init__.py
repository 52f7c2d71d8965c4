"""The HTTP API on the home's unix socket: thin routers over `control`, `store` and `views`."""
