"""A real cluster keeps the laws of infras, and runs whole groups."""

from __future__ import annotations

import pytest

from argosy.testing.infra_stories import InfraStories
from argosy.testing.infra_suite import InfraSuite
from tests.infra.kubernetes.kube_bench import kube_bench

pytestmark = pytest.mark.kubernetes


class TestKubernetes(InfraSuite, InfraStories):
    """The suite on `kubernetes/rig`. Its nodes are broken by the rig, not by the infra."""

    @pytest.fixture(autouse=True)
    def _namespace(self, space):
        self.space = space

    def opened(self, home):
        return kube_bench(home / "home", self.space)
