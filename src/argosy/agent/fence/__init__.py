"""The fence of a host: what ends its programs when no server was heard for too long."""
