"""The client library: everything that the command line does, for programs."""
