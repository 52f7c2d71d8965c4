"""A real Kubernetes cluster for a test: the rig of tests/rigs/kubernetes, and namespaces in it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
KUBERIG = ROOT / "tests" / "rigs" / "kubernetes" / "kuberig"
ROLE = ROOT / "deploy" / "kubernetes-role.yaml"
IMAGE = "localhost/python:3.11"
ACCOUNT = "argosy"
VERB_SECONDS = 120.0
BUILD_SECONDS = 1500.0  # on two cores and an empty cache 8 minutes
UP_SECONDS = 240.0
WAIT_SECONDS = 120.0
GONE_SECONDS = 40.0
Rules = list[dict[str, Any]]


@dataclass(frozen=True)
class Rig:
    """A cluster that is up."""

    home: Path

    def verb(self, *words: str, seconds: float = VERB_SECONDS, given: str = "") -> str:
        """Run a verb of the rig to its end; what it printed."""
        done = subprocess.run(
            [str(KUBERIG), *words], env=self.environment, capture_output=True, text=True,
            input=given, timeout=seconds, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"kuberig {words}: {done.stdout}{done.stderr}"
        return done.stdout

    def kubectl(self, *words: str, given: str = "") -> str:
        """As the cluster's administrator."""
        return self.verb("kubectl", *words, given=given)

    def get(self, *words: str) -> Any:
        """What `kubectl get` finds, as data."""
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def apply(self, *things: Mapping[str, Any]) -> None:
        """Make them, or change them."""
        whole = {"apiVersion": "v1", "kind": "List", "items": list(things)}
        self.kubectl("apply", "-f", "-", given=json.dumps(whole))

    def ready(self, node: str) -> bool:
        """Whether the cluster says that the node is ready."""
        conditions = self.get("node", node)["status"]["conditions"]
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def restore(self, node: str) -> None:
        """Whatever was done to it: connected, awake, ready."""
        self.verb("node", "heal", node)
        self.verb("node", "thaw", node)
        if not (self.runs(node)):
            self.verb("node", "start", node)
        until(lambda: self.ready(node), f"{node} does not become ready")

    def runs(self, node: str) -> bool:
        """Whether its power is on: a pid may be another process's by now, so its start counts."""
        pid, since = (self.home / f"{node}.pid").read_text().split()
        try:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return False
        return words[0] not in "ZX" and words[19] == since

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.home / "kubeconfig"

    @property
    def environment(self) -> dict[str, str]:
        """For whatever has to do with this rig."""
        return {**os.environ, "KUBERIG_HOME": str(self.home)}


@contextmanager
def a_rig(*words: str) -> Iterator[Rig]:
    """A rig, `words` as `kuberig up` takes them; afterwards it is down.

    Where $KUBERIG_HOME names one that is up, it is that one, and it stays up.
    """
    given = os.environ.get("KUBERIG_HOME")
    if given and Path(given, "kubeconfig").exists():
        yield Rig(Path(given))
        return
    folder = Path(tempfile.mkdtemp(prefix="argk-"))
    # Its last part names network namespaces, so it is one of a kind.
    rig = Rig(folder / folder.name)
    try:
        rig.verb("build", seconds=BUILD_SECONDS)
        rig.verb("up", *words, seconds=UP_SECONDS)
        yield rig
    finally:
        try:
            rig.verb("down")
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Namespace:
    """A namespace, and an account in it with the rights that Argosy asks for."""

    rig: Rig
    name: str
    kubeconfig: Path  # of that account

    def kubectl(self, *words: str, given: str = "") -> str:
        """As the administrator, in it."""
        return self.rig.kubectl("-n", self.name, *words, given=given)

    def get(self, *words: str) -> Any:
        """What is found in it, as data."""
        return self.rig.get("-n", self.name, *words)

    def pods(self) -> dict[str, dict[str, Any]]:
        """Our pods, by the node of the group that each is: `work-1`. Of two, the one that stays."""
        items = self.get("pods", "-l", "argosy.dev/lease")["items"]
        items.sort(key=lambda one: "deletionTimestamp" not in one["metadata"])
        return {one["metadata"]["labels"]["argosy.dev/node"]: one for one in items}

    def ours(self) -> list[str]:
        """Everything in it that bears our mark."""
        kinds = "pods,services,secrets,configmaps,persistentvolumeclaims"
        items = self.get(kinds, "-l", "argosy.dev/server")["items"]
        return [f"{one['kind']} {one['metadata']['name']}" for one in items]

    def sign_in(self) -> None:
        """Write the kubeconfig, with a fresh token."""
        token = self.kubectl("create", "token", ACCOUNT, "--duration", "4h").strip()
        whole = json.loads(self.rig.kubeconfig.read_text())
        whole["users"] = [{"name": ACCOUNT, "user": {"token": token}}]
        whole["contexts"][0]["context"] |= {"user": ACCOUNT, "namespace": self.name}
        self.kubeconfig.write_text(json.dumps(whole))

    def grant(self, rules: Callable[[str, Rules], Rules]) -> None:
        """Give the account the rights of deploy/kubernetes-role.yaml, after `rules` (kind of the
        role, its rules) has changed them.
        """
        self.rig.apply(*granted(self.name, rules))


def granted(namespace: str, rules: Callable[[str, Rules], Rules]) -> list[dict[str, Any]]:
    """The manifests of deploy/kubernetes-role.yaml, for that namespace; what is cluster-wide is
    called after it.
    """
    found = []
    for thing in yaml.safe_load_all(ROLE.read_text()):
        if not thing or thing["kind"] == "Namespace":
            continue
        meta = thing["metadata"]
        if thing["kind"].startswith("Cluster"):
            meta["name"] += f"-{namespace}"
        else:
            meta["namespace"] = namespace
        if thing["kind"] in ("Role", "ClusterRole"):
            thing["rules"] = rules(thing["kind"], thing["rules"])
        if "roleRef" in thing and thing["roleRef"]["kind"] == "ClusterRole":
            thing["roleRef"]["name"] += f"-{namespace}"
        for subject in thing.get("subjects", ()):
            assert subject["name"] == ACCOUNT, subject
            subject["namespace"] = namespace
        found.append(thing)
    return found


def as_shipped(_kind: str, rules: Rules) -> Rules:
    """The rights as they are."""
    return rules


@contextmanager
def a_namespace(rig: Rig, folder: Path, **labels: str) -> Iterator[Namespace]:
    """A fresh one with its account; afterwards nothing with our mark may be left in it."""
    space = Namespace(rig, f"t-{secrets.token_hex(4)}", folder / "kubeconfig")
    meta = {"name": space.name, "labels": labels}
    rig.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    try:
        space.grant(as_shipped)
        until(lambda: _has_account(space), "the namespace gets no service account")
        space.sign_in()
        yield space
        left = lambda: f"left in the namespace: {space.ours()}"  # noqa: E731
        until(lambda: not space.ours(), left, GONE_SECONDS)
    finally:
        rig.kubectl("delete", "namespace", space.name, "--wait=false", "--ignore-not-found")
        wide = [one for one in granted(space.name, as_shipped) if one["kind"].startswith("Cluster")]
        for one in wide:
            rig.kubectl("delete", one["kind"], one["metadata"]["name"], "--ignore-not-found")


def _has_account(space: Namespace) -> bool:
    names = {one["metadata"]["name"] for one in space.get("serviceaccounts")["items"]}
    return {ACCOUNT, "default"} <= names


def until(
    holds: Callable[[], object], what: str | Callable[[], str], seconds: float = WAIT_SECONDS
) -> None:
    """Wait for a condition; fails with `what`."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what if isinstance(what, str) else what()
        time.sleep(0.1)
