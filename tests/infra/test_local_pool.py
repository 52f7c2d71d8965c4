"""A pool of virtual hosts keeps the laws of infras, in both kinds of network, and its own."""

from __future__ import annotations

from argosy.testing.infra_stories import InfraStories
from argosy.testing.infra_suite import InfraSuite
from tests.infra.local_bench import local_bench


class TestLocalPool(InfraSuite, InfraStories):
    """The suite on `local/rack`, with the best network that works here."""

    def opened(self, home):
        return local_bench(home / "home", "local/rack")


class TestLocalPoolOnTheHostNetwork(InfraSuite, InfraStories):
    """The suite on `local/rack`, on the machine's own network."""

    def opened(self, home):
        return local_bench(home / "home", "local/rack", "host")
