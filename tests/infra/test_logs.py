"""Logs on the disk of a host that does not answer: the same bytes at the same offsets."""

from __future__ import annotations

import asyncio
from pathlib import Path

from argosy.agent.logs.log import Log
from argosy.infra.local.logs import log_end
from argosy.model.ids import AttemptId
from tests.infra.local_bench import an_infra, configure


def written(log: Log, data: bytes) -> None:
    with open(log.path, "ab") as file:
        file.write(data)
    log.poll()
    log.flush()


def test_the_end_of_a_log_is_what_its_agent_would_give(tmp_path: Path) -> None:
    output = tmp_path / "output"
    assert log_end(output, 100) is None
    log = Log(str(output), 1 << 20)
    assert log_end(output, 100) is None
    written(log, b"one\n" * 100)
    found = log_end(output, 1000)
    assert found is not None
    assert (found.offset, found.data) == log.read(0)
    found = log_end(output, 100)
    assert found is not None
    assert (found.offset, found.data) == log.read(300)
    output.write_bytes(b"")  # the program emptied it
    log.poll()
    written(log, b"two\n")
    found = log_end(output, 1000)
    assert found is not None
    assert (found.offset, found.data) == (400, b"two\n") == log.read(0)
    written(log, bytes(range(1, 251)) * 10_000)
    assert log.kept > 404  # the oldest part was freed
    found = log_end(output, 1 << 30)
    assert found is not None
    assert (found.offset, found.data) == log.read(0, 1 << 30)
    log.close()


def test_an_infra_reads_the_logs_of_its_hosts_only(tmp_path: Path) -> None:
    configure(tmp_path)
    infra = an_infra(tmp_path, "local/rack")
    folder = tmp_path / "infra" / "local" / "pools" / "rack" / "hosts" / "rack-1" / "attempts"
    (folder / "g1.1").mkdir(parents=True)
    (folder / "g1.1" / "output").write_bytes(b"here")

    async def end(host: str, attempt: str) -> bytes | None:
        found = await infra.log_end(host, AttemptId(attempt), 100)
        return found.data if found is not None else None

    assert asyncio.run(end("rack-1", "g1.1")) == b"here"
    assert asyncio.run(end("rack-0", "g1.1")) is None
    assert asyncio.run(end("../hosts/rack-1", "g1.1")) is None
    assert asyncio.run(end("rack-0", "../../rack-1/attempts/g1.1")) is None
