"""Argosy runs a job group: several different programs from one YAML file, alive and ended together.

The public names are loaded lazily, so that importing a noun does not import the client.
"""

from __future__ import annotations

__version__ = "0.1.0"
