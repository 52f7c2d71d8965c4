"""Namespaces in the cluster, and people who use them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.infra.kubernetes.between import Between, between, by_way_of
from tests.infra.kubernetes.person import Person, a_person
from tests.infra.kubernetes.rig import Namespace, Rig, a_namespace


@pytest.fixture(scope="session")
def rig(cluster: Rig) -> Rig:
    """Three nodes with 8 CPUs and 8 H100 each."""
    return cluster


@pytest.fixture
def space(rig: Rig, tmp_path: Path) -> Iterator[Namespace]:
    """A namespace in which nothing of ours may be left."""
    with a_namespace(rig, tmp_path) as space:
        yield space


@pytest.fixture
def person(space: Namespace, tmp_path: Path) -> Iterator[Person]:
    """Somebody with a home, whose context is that namespace."""
    with a_person(space, tmp_path / "home") as person:
        yield person


@pytest.fixture
def proxy(space: Namespace) -> Iterator[Between]:
    """Before the API server, for the account of that namespace."""
    with between(space.rig) as proxy:
        by_way_of(proxy, space)
        yield proxy


@pytest.fixture
def beyond(proxy: Between, space: Namespace, tmp_path: Path) -> Iterator[Person]:
    """Somebody whose server asks through the proxy."""
    with a_person(space, tmp_path / "home") as person:
        yield person
