"""One program of the group that every benchmark starts: it listens, then writes its marker.

    python service.py NAME FOLDER

The marker FOLDER/NAME holds the instant (CLOCK_MONOTONIC) at which the program listened. It answers
HTTP until it is ended.
"""

import os
import signal
import socket
import sys
import time

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n"


def main():
    """Listen, say so, serve."""
    name, folder = sys.argv[1:3]
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    door = socket.socket()
    door.bind((os.environ.get("ARGOSY_HOSTNAME", "127.0.0.1"), 0))
    door.listen(16)
    listened = time.clock_gettime(time.CLOCK_MONOTONIC)
    path = os.path.join(folder, name)
    with open(path + ".part", "w") as file:
        file.write(str(listened))
    os.rename(path + ".part", path)
    while True:
        guest = door.accept()[0]
        guest.recv(4096)
        guest.sendall(ANSWER)
        guest.close()


main()
