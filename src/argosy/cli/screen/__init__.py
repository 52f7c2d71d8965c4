"""How values look on a terminal; nothing here asks the server."""
