"""The command line: parses, calls the client, renders a view."""
