"""Snapshots: what travels, what stays behind, what is shared."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from argosy.errors import InputError
from argosy.model.ids import GroupId
from argosy.model.spec import FileMount, GroupSpec, TaskSpec, Workdir
from argosy.storage.snapshot import drop, sources, take

A, B = GroupId("g1-1"), GroupId("g1-2")


@pytest.fixture
def code(tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    return folder


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def write(top, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def taken(home, path, group=A) -> str:
    return take(home, group, [str(path)])[str(path)]


def text(path: str) -> str:
    return Path(path).read_text()


def names(top: str) -> set[str]:
    return {
        os.path.relpath(os.path.join(folder, name), top)
        for folder, _, files in os.walk(top)
        for name in files
    }


def test_the_copy_has_contents_modes_and_links(home, code):
    write(code, {"train.py": "print(1)", "tool/run.sh": "#!/bin/sh"})
    (code / "tool/run.sh").chmod(0o755)
    (code / "tool").chmod(0o555)
    (code / "latest").symlink_to("train.py")
    (code / "broken").symlink_to("/nowhere/at/all")
    (code / "empty").mkdir()
    copy = taken(home, code)
    (code / "tool").chmod(0o755)
    write(code, {"train.py": "changed"})
    assert text(f"{copy}/train.py") == "print(1)"
    assert os.readlink(f"{copy}/latest") == "train.py"
    assert os.readlink(f"{copy}/broken") == "/nowhere/at/all"
    assert os.path.isdir(f"{copy}/empty")
    assert stat.S_IMODE(os.stat(f"{copy}/tool/run.sh").st_mode) == 0o755
    assert stat.S_IMODE(os.stat(f"{copy}/tool").st_mode) == 0o555
    drop(home, A)
    assert not os.path.exists(copy)


def test_gitignore_counts_where_there_is_no_skyignore(home, code):
    write(
        code,
        {
            ".gitignore": "*.log\nbuild/\n!keep.log\n/top.txt\n",
            "a.py": "",
            "x.log": "",
            "keep.log": "",
            "build/out": "",
            "top.txt": "",
            "sub/top.txt": "",
            "sub/.gitignore": "b.py\n!y.log\n",
            "sub/b.py": "",
            "sub/y.log": "",
            "b.py": "",
            ".git/HEAD": "",
            ".git/info/exclude": "secret\n",
            "secret": "",
        },
    )
    assert names(taken(home, code)) == {
        ".gitignore", "a.py", "keep.log", "sub/top.txt", "sub/.gitignore", "sub/y.log", "b.py",
    }  # fmt: skip


def test_skyignore_replaces_gitignore(home, code):
    write(code, {".gitignore": "a.py\n", ".skyignore": "data/\n", "a.py": "", "data/x": ""})
    assert names(taken(home, code)) == {".gitignore", ".skyignore", "a.py"}


def test_equal_trees_of_a_group_are_one(home, code, tmp_path):
    write(code, {"a": "1"})
    other = tmp_path / "other"
    other.mkdir()
    write(other, {"a": "1"})
    (other / "a").chmod(stat.S_IMODE((code / "a").stat().st_mode))
    assert taken(home, code) == taken(home, other)
    write(other, {"a": "2"})
    assert taken(home, code) != taken(home, other)


def test_groups_share_files_by_hard_link_and_drop_their_own(home, code):
    write(code, {"sub/a": "1"})
    first, second = taken(home, code, A), taken(home, code, B)
    assert first != second
    assert os.stat(f"{first}/sub/a").st_ino == os.stat(f"{second}/sub/a").st_ino
    drop(home, A)
    assert not os.path.exists(first)
    assert text(f"{second}/sub/a") == "1"


def test_a_single_file_is_a_snapshot_too(home, code):
    write(code, {"key.json": "{}"})
    copy = taken(home, code / "key.json")
    assert os.path.isfile(copy)
    assert text(copy) == "{}"
    assert os.stat(taken(home, code / "key.json", B)).st_ino == os.stat(copy).st_ino


def test_a_link_at_the_top_is_followed(home, code, tmp_path):
    write(code, {"a": "1"})
    (tmp_path / "link").symlink_to(code)
    assert taken(home, tmp_path / "link") == taken(home, code)


def test_pipes_and_sockets_stay_behind(home, code):
    write(code, {"a": "1"})
    os.mkfifo(code / "pipe")
    assert names(taken(home, code)) == {"a"}


def test_an_interrupted_copy_is_begun_anew(home, code):
    write(code, {"a": "1"})
    copy = taken(home, code)
    half = os.path.join(os.path.dirname(copy), f".{os.path.basename(copy)}.new")
    os.rename(copy, half)
    os.unlink(f"{half}/a")
    assert names(taken(home, code)) == {"a"}


def test_a_missing_path_is_the_users_to_mend(home, code):
    with pytest.raises(InputError) as caught:
        taken(home, code / "nothing")
    assert caught.value.code == "files/missing"
    assert "nothing does not exist" in caught.value.text
    assert "file_mounts" in caught.value.hints[0]


def test_a_bad_pattern_is_named(home, code):
    write(code, {".gitignore": "!\n", "a": ""})
    with pytest.raises(InputError) as caught:
        taken(home, code)
    assert ".gitignore" in caught.value.text


def test_a_group_names_its_local_paths_once():
    mounts = (FileMount("/d", "/data"), FileMount("/b", "s3://x"), FileMount("/w", "/code"))
    tasks = (TaskSpec("a", workdir=Workdir("/code"), file_mounts=mounts), TaskSpec("b"))
    assert sources(GroupSpec("g", tasks)) == ("/code", "/data")


def test_what_is_neither_file_nor_folder_is_told_as_such(home, code):
    os.mkfifo(code / "pipe")
    with pytest.raises(InputError, match="neither a file nor a folder"):
        taken(home, code / "pipe")
