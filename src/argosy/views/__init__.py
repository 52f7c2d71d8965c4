"""What people read of a group, as pure values: the command line, JSON and a page share them."""
