"""What ssh says is told in our words, with the command that mends it."""

from __future__ import annotations

import pytest

from argosy.errors import AccessError, InfraError, Unreachable
from argosy.infra.ssh.config import HostConfig
from argosy.infra.ssh.failures import as_refusal, translated

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


def test_a_refusal_is_never_unreachable():
    refused = as_refusal(translated("", HOST))
    assert type(refused) is InfraError
    assert 0 < refused.retry < float("inf")
