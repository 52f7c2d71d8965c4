"""Lease files: what is written, what others see, and when it is read again."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from argosy.errors import AccessError, InfraError
from argosy.infra.local.leases import Held, LeaseFiles, translated
from argosy.model.ids import LeaseId

A, B = LeaseId("g1-1.1-1"), LeaseId("g1-1.1-2")


def put(files: LeaseFiles, *leases: LeaseId, **fields) -> None:
    with files.locked():
        for lease in leases:
            files.put(Held(lease, host="h", **fields))


def names(files: LeaseFiles) -> list[str]:
    return [held.lease for held in files.all()]


def test_what_one_writes_another_sees(tmp_path):
    one, other = LeaseFiles(tmp_path), LeaseFiles(tmp_path)
    assert other.all() == ()
    put(one, A, indices=(3, 4), card="H100", cpus=1.5)
    assert other.find(A) == Held(A, host="h", indices=(3, 4), card="H100", cpus=1.5)
    put(other, B)
    assert names(one) == [A, B]
    one.drop(A)
    assert names(other) == [B]


def test_nothing_is_read_again_while_nothing_changes(tmp_path):
    files = LeaseFiles(tmp_path)
    put(files, A)
    first = files.all()
    assert files.all() is first
    with files.locked():
        pass
    assert files.all() is first
    put(LeaseFiles(tmp_path), B)
    assert files.all() is not first


def test_what_a_killed_writer_left_is_seen_and_mended(tmp_path):
    """It was killed between its file and the end of the change."""
    files, other = LeaseFiles(tmp_path), LeaseFiles(tmp_path)
    put(files, A)
    assert names(other) == [A]
    count = int((tmp_path / "lock").read_text())
    (tmp_path / "lock").write_text(f"{count + 1:020d}")
    (tmp_path / "leases" / f"{B}.json").write_text(
        (tmp_path / "leases" / f"{A}.json").read_text().replace(A, B)
    )
    assert names(other) == [A, B]
    with files.locked():
        assert names(files) == [A, B]
    assert int((tmp_path / "lock").read_text()) % 2 == 0
    assert names(other) == [A, B]


def test_marks_are_set_once_and_stay(tmp_path):
    files = LeaseFiles(tmp_path)
    assert files.change(A, released=True) is None
    put(files, A)
    assert files.change(A, gone="the host was lost").gone == "the host was lost"
    after = files.change(A, released=True, gone="something else")
    assert (after.released, after.gone) == (True, "the host was lost")


def test_many_threads_lose_nothing(tmp_path):
    files = LeaseFiles(tmp_path)
    leases = [LeaseId(f"g1-1.1-{n}") for n in range(60)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda lease: put(files, lease), leases))
        assert sorted(names(files)) == sorted(leases)
        list(pool.map(files.drop, leases[:30]))
    assert sorted(names(files)) == sorted(leases[30:])
    assert sorted(names(LeaseFiles(tmp_path))) == sorted(leases[30:])


def test_a_damaged_file_is_named(tmp_path):
    files = LeaseFiles(tmp_path)
    put(files, A)
    (tmp_path / "leases" / f"{A}.json").write_text("{")
    with pytest.raises(InfraError) as caught:
        LeaseFiles(tmp_path).all()
    assert f"{A}.json is damaged" in caught.value.text


def test_a_name_that_leaves_the_folder_is_refused(tmp_path):
    files = LeaseFiles(tmp_path)
    with pytest.raises(InfraError), files.locked():
        files.put(Held(LeaseId("../x")))


@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [
        (28, InfraError, "local/disk-full"),
        (30, AccessError, "local/not-writable"),
        (5, InfraError, "local/files"),
    ],
)
def test_errors_of_the_disk_are_translated(tmp_path, number, kind, code):
    error = translated(OSError(number, os.strerror(number), str(tmp_path)), tmp_path)
    assert type(error) is kind
    assert error.code == code
    assert str(tmp_path) in error.text
