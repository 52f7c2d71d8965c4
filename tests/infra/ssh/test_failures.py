"""What ssh says is told in our words, with the command that mends it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from argosy.errors import AccessError, InfraError, Unreachable
from argosy.infra.registry import InfraSettings, open_infras
from argosy.infra.ssh.config import HostConfig
from argosy.infra.ssh.failures import as_refusal, translated
from argosy.infra.ssh.infra import Ssh
from argosy.model.ids import ServerId

HOST = HostConfig("gpu-1", "10.0.0.1", "ada", 2222)


@pytest.mark.parametrize(
    ("said", "kind", "code", "hint"),
    [
        (
            "No ED25519 host key is known for 10.0.0.1 and you have requested strict checking.\n"
            "Host key verification failed.",
            AccessError,
            "ssh/host-key-unknown",
            "`ssh -o StrictHostKeyChecking=accept-new -p 2222 ada@10.0.0.1 true`",
        ),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            AccessError,
            "ssh/host-key-changed",
            "`ssh-keygen -R '[10.0.0.1]:2222'`",
        ),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n"
            "Offending ED25519 key in /home/ada x/.ssh/known_hosts:3\n"
            "Host key for [172.31.88.11]:2222 has changed and you have requested strict checking.\n"
            "Host key verification failed.",
            AccessError,
            "ssh/host-key-changed",
            "`ssh-keygen -f '/home/ada x/.ssh/known_hosts' -R '[172.31.88.11]:2222'`",
        ),
        (
            "Host key verification failed.\n"
            "kex_exchange_identification: Connection closed by remote host\n",
            AccessError,
            "ssh/host-key-unknown",
            "`ssh -p 2222 ada@10.0.0.1 true` asks at a terminal",
        ),
        (
            "/home/ada/.ssh/config: line 10: Bad configuration option: frobnicate\n"
            "/home/ada/.ssh/config: terminating, 1 bad configuration options",
            AccessError,
            "ssh/configuration",
            "mend it",
        ),
        ("ada@10.0.0.1: Permission denied (publickey).", AccessError, "ssh/permission-denied",
         "identity_file"),
        ("ssh: connect to host 10.0.0.1 port 2222: Connection refused", Unreachable,
         "ssh/refused", "`ssh -p 2222 ada@10.0.0.1 true`"),
        ("ssh: connect to host 10.0.0.1 port 2222: Connection timed out", Unreachable,
         "ssh/no-answer", "`ssh -p 2222 ada@10.0.0.1 true`"),
        ("ssh: Could not resolve hostname 10.0.0.1: Name or service not known", Unreachable,
         "ssh/unknown-host", "correct the host"),
        ("", Unreachable, "ssh/ended", "see whether the host runs"),
    ],
)  # fmt: skip
def test_each_failure_says_who_can_mend_it_and_how(said, kind, code, hint):
    error = translated(said, HOST)
    assert (type(error), error.code) == (kind, code)
    assert any(hint in one for one in error.hints), error.hints
    assert "gpu-1" in error.text


def test_what_is_wrong_on_the_way_is_said_as_such():
    """A jump host's own `ssh` says why, and then the one for the host that its way has ended."""
    end = "kex_exchange_identification: Connection closed by remote host\n"
    unknown = translated(f"Host key verification failed.\n{end}", HOST)
    assert "a host on the way to gpu-1" in unknown.text
    assert not any("accept_new" in hint for hint in unknown.hints)
    denied = translated(f"ada@jump: Permission denied (publickey).\n{end}", HOST)
    assert "ada@jump: Permission denied" in denied.text
    silent = translated(f"ssh: connect to host jump port 22: Connection timed out\n{end}", HOST)
    assert (silent.code, "jump port 22" in silent.text) == ("ssh/no-answer", True)


def test_a_refusal_is_never_unreachable():
    refused = as_refusal(translated("", HOST))
    assert type(refused) is InfraError
    assert 0 < refused.retry < float("inf")


def test_a_check_leaves_out_what_no_host_told(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "ssh: {pools: {lab: {hosts: [{host: 127.0.0.1, port: 1}]}}}\n"
    )

    async def story() -> None:
        infra = open_infras(InfraSettings(tmp_path, ServerId("0123456789ab"), time.time))["ssh/lab"]
        assert isinstance(infra, Ssh)
        try:
            health = await infra.check()
        finally:
            await infra.close()
        assert not health.works
        assert health.facts == (("hosts", "0 of 1 answer"), ("network", "host on several"))

    asyncio.run(story())
