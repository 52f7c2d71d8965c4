"""The process behind balanced addresses; it is started by `supervisor` and told by `balance`."""
