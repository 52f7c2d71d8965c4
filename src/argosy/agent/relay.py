"""Joins standard input and output to an agent's socket: `relay.py HOME [WORD [SECONDS]]`.

One is started for each stream, so it is a script of its own that imports next to nothing: nothing
of ours, and of Python only what is there in any case (`_socket` is what `socket` is made of).
"""

import os
import select
import sys
import time

try:
    import _socket as socket
except ImportError:  # another Python than CPython
    import socket  # type: ignore[no-redef]

EXIT_UNREACHABLE = 8
AGAIN_S = 0.02
CHUNK = 65536


def relay(home: str, say: str = "", wait: float = 0.0) -> int:
    """Until standard input or the agent ends; the exit code.

    `say`: a line that is written first, once the agent is there, for which it may `wait` (seconds).
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    deadline = time.monotonic() + wait
    while True:
        try:
            os.chdir(home)  # the path of a socket is short
            sock.connect("agent.sock")
            break
        except OSError as error:
            if time.monotonic() >= deadline:
                sys.stderr.write("error: no agent answers in %s: %s\n" % (home, error.strerror))
                return EXIT_UNREACHABLE
        time.sleep(AGAIN_S)
    if say:
        os.write(1, say.encode("ascii") + b"\n")
    return _joined(sock)


def _joined(sock: socket.socket) -> int:
    watch = select.poll()  # unlike epoll it takes regular files
    watch.register(0, select.POLLIN)
    watch.register(sock, select.POLLIN)
    while True:
        for fd, _ in watch.poll():
            data = os.read(0, CHUNK) if fd == 0 else sock.recv(CHUNK)
            if not data:
                return 0
            if fd == 0:
                sock.sendall(data)
            else:
                while data:
                    data = data[os.write(1, data) :]


if __name__ == "__main__":
    home, word, seconds = (*sys.argv[1:], *("", "", "0")[len(sys.argv) - 1 :])
    sys.exit(relay(home, word, float(seconds)))
