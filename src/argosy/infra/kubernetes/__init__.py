"""Kubernetes clusters: a lease is a pod, and its agent is reached by an exec stream."""
