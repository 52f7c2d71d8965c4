"""The names that somebody who wrote a wrong one may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near_infras(asked: str, known: Iterable[str]) -> tuple[str, ...]:
    """Infras that are called nearly so, the nearest first: `rack` may mean `local/rack`."""
    names = sorted(known)
    pools = [name for name in names if name.partition("/")[2] == asked]
    last = {name.rpartition("/")[2]: name for name in names}
    found = difflib.get_close_matches(asked, names, 2, 0.7)
    short = [last[one] for one in difflib.get_close_matches(asked, last, 2, 0.7)]
    return tuple(dict.fromkeys([*pools, *found, *short]))


def unknown_infra(asked: str, known: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """The sentence and the hints for an infra that is not here."""
    names = sorted(known)
    near = near_infras(asked, names)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"no infra {asked!r} is known here{meant}", (
        f"there is {', '.join(names) or 'none'}; `argosy infra check` tries each",
        *_how_to_add(asked, names),
    )


def _how_to_add(asked: str, names: Iterable[str]) -> tuple[str, ...]:
    """Where what was asked for would stand, by its kind."""
    kind = asked.partition("/")[0].lower()
    match kind:
        case "local" | "ssh":
            what = "SSH hosts" if kind == "ssh" else "virtual hosts"
            return (
                f"pools of {what} stand in `$ARGOSY_HOME/config.yaml`, in the section `{kind}`: "
                f"docs/{kind}.md shows how",
            )
        case "kubernetes":
            contexts = [name.partition("/")[2] for name in names if name.startswith("kubernetes/")]
            return (
                f"contexts that are known: {', '.join(contexts) or 'none'}",
                "the server reads the kubeconfig ($KUBECONFIG of the command that started it, else "
                "~/.kube/config) when it starts: after a change `argosy server stop`; contexts "
                "may also stand in `$ARGOSY_HOME/config.yaml`: docs/kubernetes.md shows how",
            )
    return ("infras are local, local/POOL, ssh/POOL and kubernetes/CONTEXT: docs/infra.md",)
