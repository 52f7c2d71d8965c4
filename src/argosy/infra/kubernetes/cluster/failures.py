"""What the API server says when it refuses, in our words: who can mend it, and how."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from argosy.errors import AccessError, ArgosyError, CapacityError, InfraError, Unreachable

FORBIDDEN: Final = 403
ASK_FOR_RIGHTS: Final = "ask for the rights of deploy/kubernetes-role.yaml"
INSTALL: Final = (
    "`pip install '.[kubernetes]'` in the clone that Argosy was installed from (with pipx: "
    "`pipx install --force '.[kubernetes]'`), then `argosy server stop`"
)
NOT_ALLOWED: Final = "kubernetes/forbidden"  # the code of what our rights do not allow
AGAIN: Final = 5.0  # seconds until a server that did not answer is worth another try
BUSY: Final = (429, 500, 502, 503, 504)
RETRY_AFTER_MAX: Final = 60.0  # seconds that a server may ask for


class Refused(Exception):
    """An answer of the API server that is no success; `status` is the HTTP one."""

    def __init__(self, status: int, reason: str, text: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{status} {reason}: {text}")
        self.status, self.reason, self.text = status, reason, text
        self.retry_after = retry_after  # seconds; 0: it does not say


def refused(status: int, body: bytes, headers: Mapping[str, str]) -> Refused:
    """What an answer says: a `Status` object, or any text."""
    reason, text = "", body[:500].decode("utf-8", "replace").strip()
    try:
        said: dict[str, Any] = json.loads(body)
        reason, text = str(said.get("reason") or ""), str(said.get("message") or text)
    except (ValueError, AttributeError):
        pass
    return Refused(status, reason, text, seconds_asked(headers))


def seconds_asked(headers: Mapping[str, str]) -> float:
    """How long the server asks to wait before the next try; 0: it does not say."""
    after = headers.get("Retry-After", "")
    return min(float(after), RETRY_AFTER_MAX) if after.isdecimal() else 0.0


def translated(error: Refused, infra: str, doing: str) -> ArgosyError:
    """The error for a refusal while we were `doing` something."""
    text = f"{infra} refuses to {doing}: {error.text or error.reason}"
    if error.status == FORBIDDEN and "exceeded quota" in error.text:
        return CapacityError(
            f"{infra}: {error.text}",
            code="kubernetes/quota",
            hint="free some of it, or ask who runs the cluster for a larger ResourceQuota",
            retry=AGAIN,
        )
    if error.status == FORBIDDEN and "being terminated" in error.text:
        return InfraError(
            f"{infra}: its namespace is being deleted: {error.text}",
            code="kubernetes/namespace-deleted",
            hint="make the namespace again, or name another in config.yaml",
            retry=AGAIN * 6,
        )
    if error.status == 401:
        return AccessError(
            f"{infra} does not know who we are: {error.text or 'the sign-in has ended'}",
            code="kubernetes/signed-out",
            hint="sign in again, so that `kubectl get pods` works in that context",
            retry=AGAIN * 2,
        )
    if error.status == FORBIDDEN:
        return AccessError(
            text,
            code=NOT_ALLOWED,
            hint=(
                ASK_FOR_RIGHTS
                if "cannot" in error.text
                else "the cluster's own policy forbids it: `pod_config` or `restricted: true` of "
                "the context in config.yaml can change what is asked for"
            ),
            retry=AGAIN * 6,
        )
    if error.status == 404:
        return InfraError(
            text,
            code="kubernetes/not-found",
            hint="make the namespace, or name another in config.yaml",
            retry=AGAIN * 6,
        )
    if error.status in BUSY:
        retry = error.retry_after or AGAIN
        return InfraError(text, code="kubernetes/busy", retry=retry)
    return InfraError(
        text,
        code="kubernetes/refused",
        hint="`argosy export FILE --to kubernetes` shows what is asked for",
    )


def no_answer(infra: str, error: BaseException) -> Unreachable:
    """The API server cannot be reached at all."""
    return Unreachable(
        f"{infra} does not answer: {str(error) or type(error).__name__}",
        code="kubernetes/no-answer",
        hint="see whether `kubectl version` works in that context",
        retry=AGAIN,
    )


def as_refusal(error: ArgosyError) -> ArgosyError:
    """The same as a refusal of an `acquire`, which is never Unreachable."""
    if not isinstance(error, Unreachable):
        return error
    return InfraError(error.text, code=error.code, hint=error.hints, retry=AGAIN)
