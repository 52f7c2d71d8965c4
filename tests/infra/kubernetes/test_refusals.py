"""What the API server says when it refuses: who can mend it, how, and when to try again."""

from __future__ import annotations

import json

import pytest

from argosy.errors import (
    NEVER,
    AccessError,
    ArgosyError,
    CapacityError,
    InfraError,
    Unreachable,
)
from argosy.infra.kubernetes.cluster.failures import (
    AGAIN,
    as_refusal,
    no_answer,
    refused,
    translated,
)

QUOTA = (
    'pods "argosy-g1-1-1-1-1" is forbidden: exceeded quota: small, requested: requests.cpu=8, '
    "used: requests.cpu=4, limited: requests.cpu=10"
)
RIGHTS = (
    'pods is forbidden: User "system:serviceaccount:lab:me" cannot create resource "pods" in API '
    'group "" in the namespace "lab"'
)
POLICY = (
    'pods "argosy-x" is forbidden: violates PodSecurity "restricted:latest": '
    "allowPrivilegeEscalation != false"
)
DELETED = (
    'pods "x" is forbidden: unable to create new content in namespace lab because it is being '
    "terminated"
)


def status(code: int, message: str, reason: str = "Forbidden") -> bytes:
    """An answer of the API server."""
    kind = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return json.dumps({**kind, "reason": reason, "message": message}).encode()


def error_of(code: int, message: str = "no", **headers: str) -> ArgosyError:
    """What we say of it."""
    said = refused(
        code, status(code, message), {k.replace("_", "-"): v for k, v in headers.items()}
    )
    return translated(said, "kubernetes/lab", "make the pod of trainer-1")


@pytest.mark.parametrize(
    ("code", "message", "kind", "name", "hint"),
    [
        (403, QUOTA, CapacityError, "kubernetes/quota", "ResourceQuota"),
        (403, DELETED, InfraError, "kubernetes/namespace-deleted", "namespace"),
        (401, "Unauthorized", AccessError, "kubernetes/signed-out", "sign in"),
        (403, RIGHTS, AccessError, "kubernetes/forbidden", "deploy/kubernetes-role.yaml"),
        (403, POLICY, AccessError, "kubernetes/forbidden", "restricted: true"),
        (404, 'namespaces "lab" not found', InfraError, "kubernetes/not-found", "namespace"),
        (429, "too many requests", InfraError, "kubernetes/busy", ""),
        (500, "etcdserver: request timed out", InfraError, "kubernetes/busy", ""),
        (503, "apiserver is shutting down", InfraError, "kubernetes/busy", ""),
        (422, 'Pod "x" is invalid: spec', InfraError, "kubernetes/refused", "argosy export"),
    ],
)
def test_each_has_its_kind_its_words_and_its_hint(
    code: int, message: str, kind: type[ArgosyError], name: str, hint: str
) -> None:
    error = error_of(code, message)
    assert type(error) is kind
    assert error.code == name
    assert "kubernetes/lab" in error.text
    assert message in error.text
    assert hint in " ".join(error.hints)


def test_what_may_pass_is_tried_again_and_what_is_wrong_is_not() -> None:
    assert error_of(403, QUOTA).retry == AGAIN
    assert error_of(503).retry == AGAIN
    assert AGAIN < error_of(403, RIGHTS).retry < NEVER
    assert error_of(422).retry == NEVER


def test_a_server_that_says_when_is_asked_then() -> None:
    assert error_of(429, Retry_After="17").retry == 17.0
    assert error_of(429, Retry_After="Wed, 21 Oct 2015 07:28:00 GMT").retry == AGAIN
    assert error_of(429, Retry_After="-3").retry == AGAIN


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"upstream connect error", "upstream connect error"),
        (b"<html>Bad Gateway</html>", "<html>Bad Gateway</html>"),
        (b"", ""),
        (b'["a", "list"]', '["a", "list"]'),
        (b'{"kind": "Status"}', '{"kind": "Status"}'),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"x" * 5000, "x" * 500),
    ],
)
def test_an_answer_of_somebody_in_between_is_told_as_it_is(body: bytes, text: str) -> None:
    said = refused(502, body, {})
    assert said.text == text
    assert translated(said, "kubernetes/lab", "look").code == "kubernetes/busy"


def test_no_answer_says_why_even_where_the_error_has_no_words() -> None:
    error = no_answer("kubernetes/lab", TimeoutError())
    assert "TimeoutError" in error.text
    assert "kubectl version" in " ".join(error.hints)
    assert "refused" in no_answer("kubernetes/lab", OSError("connection refused")).text


def test_an_acquire_is_refused_not_unreachable() -> None:
    away = no_answer("kubernetes/lab", OSError("connection refused"))
    assert isinstance(away, Unreachable)
    refusal = as_refusal(away)
    assert type(refusal) is InfraError
    assert (refusal.text, refusal.code, refusal.retry) == (away.text, away.code, AGAIN)
    assert refusal.hints == away.hints
    other = error_of(403, QUOTA)
    assert as_refusal(other) is other
