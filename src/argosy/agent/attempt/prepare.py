"""Everything that an attempt needs before `setup` and `run`: its network, its files, its GPUs, all
at once; then its volumes, which need to know the others.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, Optional, Set

from ..child import Child
from ..groups import Group
from ..naming import digest, safe_name
from ..place import Place
from ..store.clone import TOKEN, Repository
from ..store.stock import Wait
from . import files, volumes

GPU_RETRY = 2.0
TRIES_MAX = 10
"""How often files are looked for, before what is damaged again and again is given up."""


class Preparation:
    """One attempt's preparation. `on_end` is called once: `problem` "" means that `found` is
    complete.
    """

    def __init__(
        self, place: Place, group: Group, lease: str, task: Dict[str, Any], order: Dict[str, Any]
    ) -> None:
        self.problem = self.text = ""
        """Cause (files-failed, volume-failed, network-failed) and words."""
        self._held = self._wanting = ""
        """Who holds a GPU that this attempt waits for; how far its files are."""
        self.found: Dict[str, Any] = {}
        """For the attempt's record: address, spec, work, setup_needed, exchange."""
        self.on_end: Callable[[], None] = lambda: None
        self.on_wait: Callable[[], None] = lambda: None
        self._place, self._group, self._lease = place, group, lease
        self._task, self._order = task, order
        self._waiting: Set[str] = {"network", "files", "gpus"}
        self._child: Optional[Child] = None
        self._wait: Optional[Wait] = None
        self._tries = 0

    @property
    def held(self) -> str:
        """What holds it up, in words."""
        return "; ".join(filter(None, (self._held, self._wanting)))

    def begin(self) -> None:
        """Begin; never raises."""
        self._group.ensure([self._order["node"]], self._network_ready)
        try:
            self._take_gpus()
            self._put_files()
        except (OSError, files.FilesError) as error:
            self._fail("files-failed", str(error))

    def drop(self) -> None:
        """Give it up; nobody is told."""
        self._waiting.clear()
        if self._child is not None:
            self._child.drop()
            self._child = None
        if self._wait is not None:
            self._place.stock.drop(self._wait)
            self._wait = None

    def _done(self, part: str) -> None:
        if part in self._waiting:
            self._waiting.discard(part)
            if not self._waiting and part != "volumes" and self._task.get("volumes"):
                self._waiting.add("volumes")
                self._place.loop.soon(self._put_volumes)
            elif not self._waiting:
                self._place.loop.soon(self.on_end)

    def _put_volumes(self) -> None:
        """Once the working directory is there, and it is known how programs enter their place."""
        if "volumes" not in self._waiting:
            return
        wanted = list(self._task["volumes"])
        spec = self.found["spec"]
        scene = volumes.Scene(
            shared=self._place.shared,
            group=self._group.folder,
            home=self._place.home,
            user_home=self._place.user.home,
            work=str(self.found["work"]),
            mounts=spec["mode"] == "isolated" or spec["names"] == "mount",
            mark=str(self._group.facts["id"]),
        )

        def ready(put: Any, error: Optional[str]) -> None:
            self._child = None
            self._tell_wanting("")
            if error is not None:
                self._fail("volume-failed", error)
                return
            self.found["spec"] = dict(spec, volumes=put["binds"])
            self.found["exchange"] = put["exchange"]
            self._done("volumes")

        self._tell_wanting("waits for its volumes")  # a share whose server is away never answers
        try:
            self._child = Child(self._place.loop, lambda: volumes.put(wanted, scene), ready)
        except OSError as error:
            self._fail("volume-failed", str(error))

    def _fail(self, cause: str, text: str) -> None:
        self.drop()
        self.problem, self.text = cause, text
        self._place.loop.soon(self.on_end)

    def _take_gpus(self) -> None:
        if "gpus" not in self._waiting:
            return
        indices = list(self._order.get("gpu_indices") or [])
        held = self._place.gpus.take(indices, str(self._order["attempt"]), self._place.me)
        if held != self._held:
            self._held = held
            self.on_wait()
        if held:
            self._place.loop.after(GPU_RETRY, self._take_gpus)
        else:
            self._done("gpus")

    def _put_files(self) -> None:
        """The working directory is the node's, kept over attempts on a lease: `setup` need not run
        again.
        """
        workdir = str(self._task.get("workdir") or "")
        mounts = list(self._task.get("file_mounts") or [])
        setup = str(self._task.get("setup") or "")
        name = work_name(self._lease, str(self._order["node"]), self._task)
        work = os.path.join(self._place.home, "work", name)
        if not os.path.isdir(work):
            self._place.journal.put("setup", name, None)
        done = self._place.journal.get("setup", name) or {}
        self.found["work"] = work
        self.found["setup_needed"] = bool(setup.strip()) and done.get("key") != digest(setup)
        home = self._place.user.home
        repository = repository_of(self._task)
        if not workdir and not mounts and repository is None:
            files.put(work, "", [], home)
            self._done("files")
            return
        self._gather(
            lambda: files.put(work, workdir, mounts, home, self._place.stock.store, repository),
            lambda: files.absent(work, workdir, mounts, self._place.stock.store),
        )

    def _gather(self, put: Callable[[], Any], absent: Callable[[], Dict[str, str]]) -> None:
        """Wait for the trees that are not on this host; then put everything in place, in a child.
        What turns out to be damaged there is waited for again.
        """
        self._wait = None
        self._tell_wanting("")
        trees = absent()
        self._tries += 1

        def arrived(problem: str) -> None:
            if problem:
                self._wait = None
                self._fail("files-failed", problem)
            else:
                self._guarded(lambda: self._gather(put, absent))

        def ready(damaged: Any, error: Optional[str]) -> None:
            self._child = None
            if error is None and damaged and self._tries < TRIES_MAX:
                self._guarded(lambda: self._gather(put, absent))
            elif error is not None or damaged:
                self._fail("files-failed", error or "its files are damaged in the store")
            else:
                self._done("files")

        if trees:
            self._wait = Wait(self._lease, trees, arrived, self._tell_wanting)
            self._place.stock.wait(self._wait)
        else:
            self._child = Child(self._place.loop, put, ready)

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (OSError, files.FilesError) as error:
            self._fail("files-failed", str(error))

    def _tell_wanting(self, text: str) -> None:
        if text != self._wanting:
            self._wanting = text
            self.on_wait()

    def _network_ready(self, error: Optional[str]) -> None:
        if "network" not in self._waiting:
            return
        if error is not None:
            self._fail("network-failed", error)
            return
        node = str(self._order["node"])
        own_pids = not self._order.get("gpu_indices")
        self.found["address"] = self._group.address(node)
        self.found["spec"] = self._group.spec(node, self._group.node_name(node), own_pids)
        self._done("network")


def work_name(lease: str, node: str, task: Dict[str, Any]) -> str:
    """The name of the node's working directory: another one when other files are asked for."""
    mounts = json.dumps(list(task.get("file_mounts") or []), sort_keys=True)
    repository = repository_of(task)
    code = repository.name if repository is not None else str(task.get("workdir") or "")
    return safe_name("%s.%s.%s" % (lease, node, digest(code, mounts)))


def repository_of(task: Dict[str, Any]) -> Optional[Repository]:
    """What the task's code is cloned from; None when it is not."""
    found = task.get("git")
    if not found:
        return None
    given = dict(task.get("env") or {}, **(task.get("secrets") or {}))
    return Repository(str(found["url"]), str(found["ref"]), str(given.get(TOKEN) or ""))
