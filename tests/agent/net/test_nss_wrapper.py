"""Names where no hosts file can be mounted: by nss_wrapper, as a program really resolves them."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from argosy.agent.net import host, names

ASK = "import socket; print(socket.gethostbyname('b-0.g'), socket.gethostbyname('localhost'))"


def test_a_program_resolves_its_peers_by_nss_wrapper(tmp_path: Path) -> None:
    if names.nss_wrapper() is None:
        pytest.skip("libnss-wrapper is not installed (.ci/run installs it)")
    network = host.build(str(tmp_path / "group"), "nss", ["a-0", "b-0"], names="nss_wrapper")
    try:
        names.rewrite(network.hosts, names.compose("g", network, []))
        spec = host.enter_attempt(network, "a-0", "a-0.g")
        assert spec["names"] == "nss_wrapper"
        done = subprocess.run(
            [sys.executable, "-c", ASK], env=spec["env"], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == [network.nodes["b-0"], "127.0.0.1"]
        with pytest.raises(OSError, match=r"."):
            socket.gethostbyname("b-0.g")  # the machine itself knows nothing of it
    finally:
        host.destroy(network.record())
