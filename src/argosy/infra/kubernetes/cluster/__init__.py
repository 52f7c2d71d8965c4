"""The connection to a cluster: requests, watches, streams of `exec`, and our objects there."""
