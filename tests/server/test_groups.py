"""What the API answers about groups, over a real socket."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

import pytest

from argosy.errors import Conflict, InputError, InputErrors, NotFound
from tests.server.rig import FILE, a_server

pytestmark = pytest.mark.anyio


async def test_a_group_is_launched_and_seen(folder: Path) -> None:
    async with a_server(folder) as rig:
        ref = await rig.running()
        view = await rig.get("groups/demo")
        assert (view["id"], view["name"], view["phase"]) == (ref, "demo", "RUNNING")
        assert [task["name"] for task in view["tasks"]] == ["trainer", "worker"]
        rows = (await rig.get("groups"))["groups"]
        assert [row["id"] for row in rows] == [ref]
        server = await rig.get("server")
        assert server["groups"] == 1
        assert server["rss_bytes"] > 0


async def test_a_plan_writes_nothing(folder: Path) -> None:
    async with a_server(folder) as rig:
        answer = await rig.post("plan", {"file": "demo.yaml", "text": FILE})
        assert answer["plan"]["fits"]
        assert (await rig.get("groups"))["groups"] == []


async def test_a_plan_warns_of_what_a_launch_refuses(folder: Path) -> None:
    text = (
        "name: a\nworkdir: ./code\nfile_mounts: {/a: ./no}\nsecrets: {API_KEY: null}\nrun: echo\n"
    )
    body = {"file": "a.yaml", "text": text, "base": str(folder / "none")}
    async with a_server(folder) as rig:
        plan = (await rig.post("plan", {**body, "secrets_later": True}))["plan"]
        for place, words in (("2:10", "none/code"), ("3:15", "none/no"), ("4:11", "API_KEY")):
            assert any(f"a.yaml:{place}" in one and words in one for one in plan["warnings"])
        for path in ("plan", "groups"):
            later = {"secrets_later": True} if path == "groups" else {}
            with pytest.raises(InputErrors) as caught:
                await rig.post(path, {**body, **later})
            assert [one.code for one in caught.value.errors] == ["spec/missing-secret"]


async def test_a_wrong_file_names_its_places(folder: Path) -> None:
    async with a_server(folder) as rig:
        with pytest.raises(InputErrors) as caught:
            await rig.launch("name: a\nrnu: echo 1\nnum_nodes: x\n")
        places = [error.place for error in caught.value.errors]
        assert [place.line for place in places if place] == [2, 3]
        assert {place.file for place in places if place} == {"demo.yaml"}


async def test_a_wrong_request_is_an_input_error(folder: Path) -> None:
    async with a_server(folder) as rig:
        for method, path, body in (
            ("POST", "groups", {"file": "x"}),
            ("POST", "groups", [1]),
            ("GET", "groups?limit=0", None),
        ):
            with pytest.raises(InputError) as caught:
                await rig.call(method, path, body)
            assert caught.value.code == "server/request"


async def test_unknown_groups_nodes_and_paths_are_not_found(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        for path in ("groups/nobody", "groups/nobody/watch", "groups/demo/logs?task=nobody",
                     "groups/demo/logs?task=worker&index=2", "nothing"):  # fmt: skip
            with pytest.raises(NotFound):
                await rig.get(path)
        with pytest.raises(NotFound) as caught:
            await rig.post("groups/demo/restart", {"task": "worker", "index": 5})
        assert "worker/0..1" in caught.value.hints[0]


async def test_a_live_name_is_a_conflict(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        with pytest.raises(Conflict) as caught:
            await rig.launch()
        assert any("--replace" in hint for hint in caught.value.hints)


async def test_waiting_ends_with_the_group_or_the_timeout(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        status, view = await rig.call("GET", "groups/demo/wait?timeout=0.05")
        assert (status, view["phase"]) == (408, "RUNNING")
        for node in ("trainer-0", "worker-0", "worker-1"):
            await rig.infra.end(node)
        status, view = await rig.call("GET", "groups/demo/wait?timeout=30")
        assert (status, view["phase"], view["exit_code"]) == (200, "SUCCEEDED", 0)


async def test_cancel_ends_a_group_and_may_be_repeated(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        await rig.post("groups/demo/cancel", {"now": True})
        view = await rig.get("groups/demo/wait?timeout=30")
        assert view["phase"] == "CANCELLED"
        assert await rig.post("groups/demo/cancel") == {"ok": True}
        assert (await rig.get("groups"))["groups"] == []
        assert len((await rig.get("groups?all=1"))["groups"]) == 1


async def test_a_restart_makes_a_new_attempt(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        await rig.post("groups/demo/restart", {"task": "trainer", "index": 0})
        await rig.until(lambda: rig.infra.program("trainer-0").order["number"] == 2)
        await rig.until(lambda: rig.infra.program("trainer-0").stage == 30)
        assert rig.infra.program("worker-0").order["number"] == 1


async def test_only_ended_groups_are_removed(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        with pytest.raises(Conflict):
            await rig.call("DELETE", "groups/demo")
        await rig.post("groups/demo/cancel", {"now": True})
        await rig.get("groups/demo/wait?timeout=30")
        assert (await rig.call("DELETE", "groups/demo"))[1] == {"ok": True}
        with pytest.raises(NotFound):
            await rig.get("groups/demo")


async def test_secrets_are_shown_nowhere(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        shown = await rig.get("groups/demo/spec")
        assert "name: trainer" in shown["text"]
        assert shown["spec"]["tasks"][0]["secrets"] == [["TOKEN", "***"]]
        for path in ("spec", "explain", "events", ""):
            text = str(await rig.lines(f"groups/demo/{path}".rstrip("/")))
            assert "hunter22" not in text


async def test_an_explanation_says_what_happened_last(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        told = await rig.get("groups/demo/explain")
        assert told["phase"] == "RUNNING"
        assert told["last"]


async def test_chaos_reaches_the_attempt_or_its_host(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        where = {"task": "worker", "index": 1}
        await rig.post("groups/demo/chaos", {"what": "freeze", **where})
        await rig.post("groups/demo/chaos", {"what": "lose-host", **where})
        assert rig.infra.broken == ["worker-1 freeze", "h1 lose"]
        told = [one for one in await rig.lines("groups/demo/events") if one["code"] == "chaos"]
        user = getpass.getuser()
        assert [(one["about"], one["text"]) for one in told] == [
            ("worker-1", f"freeze, on purpose, by {user}"),
            ("worker-1", f"lose-host, on purpose, by {user}"),
        ]
        with pytest.raises(InputError) as caught:
            await rig.post("groups/demo/chaos", {"what": "explode", **where})
        assert "lose-host" in caught.value.hints[0]


async def test_chaos_of_what_has_ended_is_a_conflict_and_breaks_nothing(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        await rig.post("groups/demo/cancel", {"now": True})
        await rig.get("groups/demo/wait?timeout=30")
        for what in ("kill", "freeze", "lose-host"):
            with pytest.raises(Conflict) as caught:
                await rig.post("groups/demo/chaos", {"what": what, "task": "worker", "index": 0})
            assert "worker-0 does not run" in caught.value.text
        assert rig.infra.broken == []
        codes = [one["code"] for one in await rig.lines("groups/demo/events")]
        assert "chaos" not in codes


@pytest.mark.parametrize("path", ["plan", "groups"])
async def test_an_unknown_infra_is_told_alike_by_plan_and_launch(folder: Path, path: str) -> None:
    async with a_server(folder) as rig:
        with pytest.raises(InputError) as caught:
            await rig.post(path, {"file": "demo.yaml", "text": FILE, "infra": "local/x"})
        assert caught.value.text == "no infra 'local/x' is known here; did you mean local?"
        assert "config.yaml" in caught.value.hints[1]


async def test_the_infras_are_checked(folder: Path) -> None:
    async with a_server(folder) as rig:
        (told,) = (await rig.get("infra"))["infras"]
        assert (told["name"], told["works"]) == ("local", True)
        assert told["facts"] == [["network", "host"]]
        assert told["hosts"][0]["host"] == "h1"


async def test_the_api_describes_itself(folder: Path) -> None:
    async with a_server(folder) as rig:
        paths = (await rig.get("openapi.json"))["paths"]
        assert {"/v1/groups", "/v1/groups/{ref}/logs", "/v1/plan"} <= set(paths)


async def test_what_no_command_line_sends_is_refused_before_it_is_a_group(folder: Path) -> None:
    good: dict[str, Any] = {"text": "name: a\nrun: echo\n"}
    async with a_server(folder) as rig:
        for wrong, words in (
            ({"base": "code"}, "absolute path"),
            ({"envs": {"A B": "c"}}, "name of a variable"),
            ({"secrets": {"": "c"}}, "name of a variable"),
            ({"envs": {"A": "b\0c"}}, "NUL"),
        ):
            for path in ("plan", "groups"):
                with pytest.raises(InputError) as caught:
                    await rig.post(path, {**good, **wrong})
                told = getattr(caught.value, "errors", (caught.value,))
                assert words in told[0].text
        with pytest.raises(InputError, match="since"):
            await rig.get(f"groups/{await rig.running()}/events?since={2**70}")
