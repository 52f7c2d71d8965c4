"""A pool of real SSH hosts keeps the laws of infras, and runs whole groups."""

from __future__ import annotations

import pytest

from argosy.testing.infra_stories import InfraStories
from argosy.testing.infra_suite import InfraSuite
from tests.infra.ssh.ssh_bench import ssh_bench

pytestmark = pytest.mark.ssh


class TestSsh(InfraSuite, InfraStories):
    """The suite on `ssh/lab`. Its hosts are broken by the rig, not by the infra."""

    @pytest.fixture(autouse=True)
    def _hosts(self, on_rig):
        self.rig = on_rig

    def opened(self, home):
        return ssh_bench(home / "home", self.rig)
