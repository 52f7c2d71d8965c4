"""The cluster that tests share, wherever they lie: it takes half a minute to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.infra.kubernetes.rig import Rig, a_rig

GPUS = ",".join(f"node-{i}=8:NVIDIA-H100-80GB-HBM3" for i in (1, 2, 3))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Rig]:
    """Three nodes with 8 CPUs and 8 H100 each."""
    with a_rig("--nodes", "3", "--gpus", GPUS) as rig:
        yield rig
