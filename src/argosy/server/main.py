"""The server process: `python -m argosy.server.main --home DIR`.

It takes the home's lock, opens the store, starts the control plane, and serves the API on the
home's unix socket until SIGTERM, SIGINT or a request stops it. Running groups go on without it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

from argosy.errors import ArgosyError, Broken, InfraError, InputErrors
from argosy.server.home import Home
from argosy.server.log import log_to

log = logging.getLogger("argosy.server")

READY: Final = b"+"


def main(arguments: list[str] | None = None) -> int:
    """Run a server; the exit status is 0 after a clean stop, else that of the error."""
    parser = argparse.ArgumentParser(prog="argosy-server", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the folder of its state")
    parser.add_argument("--detach", action="store_true", help="return once it answers")
    chosen = parser.parse_args(arguments)
    folder = chosen.home.expanduser().absolute()
    os.umask(0o077)
    return detached(folder) if chosen.detach else run(folder)


def run(folder: Path, ready: int = -1) -> int:
    """Serve until stopped. `ready`: a descriptor that gets one byte when the API answers."""
    home = Home(folder)
    logging.getLogger().addHandler(logging.NullHandler())  # before `log_to` nothing is written
    gc.disable()  # until it answers: collecting costs a seventh of the start
    try:
        home.lock()
        log_to(home.log)
        asyncio.run(_serve(home, ready))
    except ArgosyError as error:
        log.error("server-failed", extra=error.fields())
        _tell(error)
        return error.exit_code
    except OSError as error:
        log.exception("server-failed")
        explained = InfraError(
            f"the server cannot work in {folder}: {error}",
            code="home/failed",
            hint="free some space there, or set ARGOSY_HOME to a folder on another disk",
        )
        _tell(explained)
        return explained.exit_code
    except Exception as error:
        log.exception("server-failed")
        _tell(Broken(f"the server failed: {type(error).__name__}: {error}"))
        return Broken.exit_code
    finally:
        home.close()
        logging.shutdown()
    return 0


async def _serve(home: Home, ready: int) -> None:
    # The heavy imports come after the lock: a second server is refused at once.
    from argosy.control.control import Control
    from argosy.server.app import application
    from argosy.server.context import Context
    from argosy.server.web import Web
    from argosy.store.store import Store

    started_at = time.time()
    store = Store.open(home.store)
    try:
        control = Control(store, home.folder)
        await control.start()
        try:
            context = Context(control, home.folder, started_at, stop=lambda: web.stop())
            web = Web(application(context), context.closing)
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, web.stop)
            listener = home.listen()
            home.announce(started_at)  # after the socket: who finds this and no socket knows why
            gc.freeze()  # what was loaded stays: it need not be looked at again
            gc.enable()
            log.info("server-ready", extra={"pid": os.getpid(), "home": str(home.folder)})
            if ready >= 0:
                os.write(ready, READY)
            await web.serve(sockets=[listener])
        finally:
            await control.stop()
    finally:
        store.close()
        log.info("server-stopped", extra={"pid": os.getpid()})


def detached(folder: Path) -> int:
    """Run the server in a session of its own; returns 0 once it answers, else its exit status."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setsid()
        _without_terminal(folder)
        status = 70
        try:
            status = run(folder, ready=writing)
        finally:
            logging.shutdown()
            os._exit(status)
    os.close(writing)
    with open(reading, "rb") as pipe:
        if pipe.read(1) == READY:
            return 0
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _without_terminal(folder: Path) -> None:
    """Nothing of the starter's terminal is kept; what is said goes to the end of the log."""
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        said = os.open(Home(folder).log, flags, 0o600)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.close(said)
        os.close(nothing)


def _tell(error: ArgosyError) -> None:
    """The error for whoever reads this process's standard error."""
    each = error.errors if isinstance(error, InputErrors) else ()
    parts = [f"  {one.place}: {one.text} ({one.hints[0]})" for one in each]
    hints = () if parts else error.hints
    lines = [f"error: {error.text}", *parts, *(f"hint: {hint}" for hint in hints)]
    with contextlib.suppress(OSError, ValueError):
        print("\n".join(lines), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
