"""Files and flags that are wrong: each is refused with its place and what mends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import scene
from tests.faults.scene import refused, task, write
from tests.whole.home import Home

pytestmark = pytest.mark.whole

COMMANDS = (("validate",), ("launch", "-y"))
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
WRONG: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "brackets": ("name: [a\nrun: b\n", ("brackets.yaml:2", "not closed", "close it")),
    "binary": (b"\x7fELF\x02\x01\x01\0\0\0" * 50, ("binary.yaml", "not", "give the YAML file")),
    "bomb": (BOMB, ("bomb.yaml:", "aliases", "fewer aliases")),
    "many": (
        scene.group("many", *(task(f"t{i}", "true") for i in range(10_000))),
        ("many.yaml:", "at most 1,000 tasks", "num_nodes"),
    ),
    "long": (
        f"name: long\nrun: |\n  echo {'x' * (1 << 20)}\n",
        ("long.yaml:3", "1,048,583 characters", "file_mounts"),
    ),
    "unknown-infra": (
        "name: far\nresources: {infra: moon/base}\nrun: 'true'\n",
        ("unknown-infra.yaml:2:20", "`moon/base`", "local, ssh, slurm, kubernetes"),
    ),
    "shell-name": (
        'name: "$(touch pwned); `id`"\nrun: "true"\n',
        ("shell-name.yaml:1", "letters, digits"),
    ),
    "shell-task": (
        scene.group("ok", task('"a; rm -rf /"', "true")),
        ("shell-task.yaml:4", "letters, digits"),
    ),
}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_refused_with_its_place(
    one_home: Home, name: str, command: tuple[str, ...]
) -> None:
    text, words = WRONG[name]
    said = one_home.argosy(*command, write(one_home, name, text))
    refused(said, 2, *words)
    assert len(said.err) < 4000, f"{len(said.err)} characters: {said.err[:4000]}"
    assert not (one_home.path.parent / "pwned").exists()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_a_missing_file_is_refused_with_those_that_are_there(
    one_home: Home, command: tuple[str, ...]
) -> None:
    write(one_home, "there", "run: 'true'\n")
    refused(one_home.argosy(*command, "their.yaml"), 3, "no file their.yaml", "there.yaml")
    refused(one_home.argosy(*command, "."), 2, "Is a directory", "give a file")


def test_an_infra_that_is_not_configured_is_refused_with_those_that_are(one_home: Home) -> None:
    file = write(one_home, "ok", "name: ok\nrun: 'true'\n")
    refused(one_home.argosy("launch", "-y", file, "--infra", "moon"), 2, "`moon`", "local, ssh")
    said = one_home.argosy("launch", "-y", file, "--infra", "local/rack")
    refused(said, 2, "'local/rack'", "`argosy infra check`")
    refused(one_home.argosy("status", "ok"), 3, "no group 'ok'")


def test_accelerators_on_a_machine_without_them_name_the_flag(one_home: Home) -> None:
    if list(Path("/dev").glob("nvidia[0-9]*")):
        need = "NOSUCHCARD:8"
    else:
        need = "H100:8"
    text = f"name: cards\nresources: {{accelerators: {need}}}\nrun: echo ran without\n"
    file = write(one_home, "cards", text)
    said = one_home.argosy("launch", "-y", file)
    refused(said, 4, need)
    hints = [line for line in said.err.splitlines() if line.startswith("hint:")]
    assert any("--no-accelerators" in hint for hint in hints), said.told()
    ran = one_home.launch(file, "--no-accelerators").ended().good()
    assert "ran without" in ran.out


def test_what_a_shell_would_run_stays_text(one_home: Home) -> None:
    """Values and file names with shell characters reach the program as they are."""
    folder = one_home.path.parent / "a b;$(touch pwned)&'quote'"
    folder.mkdir()
    (folder / "it's.txt").write_text("kept\n")
    text = (
        "name: names\n"
        f'workdir: "{folder}"\n'
        'envs: {V: "$(touch pwned) `id` ; & | \' \\" $HOME"}\n'
        'run: |\n  cat "it\'s.txt"; printf \'%s\\n\' "$V"; ls\n'
    )
    said = one_home.launch(write(one_home, "names; $(id)", text)).ended().good()
    assert "kept" in said.out
    assert "$(touch pwned) `id` ; & | ' \" $HOME" in said.out
    assert "pwned\n" not in said.out.replace("(touch pwned)", "")
    assert not (one_home.path.parent / "pwned").exists()
