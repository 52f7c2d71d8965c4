"""One module for each family of commands; a command is imported when it is called."""
