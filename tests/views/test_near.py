"""What is said of an infra that is not here: the near names, and where it would stand."""

from __future__ import annotations

import pytest

from argosy.views.near import unknown_infra

KNOWN = ("local", "local/rack", "ssh/lab", "kubernetes/prod", "kubernetes/test")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("local/rock", "in the section `local`: docs/local.md"),
        ("ssh/x", "in the section `ssh`: docs/ssh.md"),
        ("kubernetes/x", "contexts that are known: prod, test"),
        ("kubernetes/x", "docs/kubernetes.md"),
        ("slurm/x", "infras are local, local/POOL, ssh/POOL and kubernetes/CONTEXT"),
    ],
)
def test_the_hints_are_those_of_the_kind(asked: str, words: str) -> None:
    text, hints = unknown_infra(asked, KNOWN)
    assert f"no infra {asked!r} is known here" in text
    assert words in " ".join(hints)
    pages = {f"docs/{kind}.md" for kind in ("local", "ssh", "kubernetes")}
    assert len([page for page in pages if page in " ".join(hints)]) <= 1


def test_without_contexts_it_says_which_kubeconfig_is_read() -> None:
    _, hints = unknown_infra("kubernetes", ("local",))
    assert "contexts that are known: none" in hints
    assert "$KUBECONFIG of the command that started it" in hints[2]
