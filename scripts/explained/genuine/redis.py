"""A redis-server on a port of its own, and the commands that a program of the collection sends."""

import os
import socket
import subprocess
import sys
import tempfile
import time


def serve(options, commands_of_step, pause=0.06):
    """Starts a server, and sends the commands of each step until the run is over."""
    end = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else "1e9")
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        words = ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder]
        server = subprocess.Popen([*words, *options], stdout=subprocess.DEVNULL)
        try:
            connection = connected(path)
            step = 0
            while time.monotonic() < end:
                commands = commands_of_step(step)
                connection.sendall(b"".join(encoded(command) for command in commands))
                replies = 0
                while replies < len(commands):
                    replies += connection.recv(1 << 16).count(b"\n")
                step += 1
                time.sleep(pause)
        finally:
            server.terminate()
            server.wait(30)


def connected(path):
    for _ in range(200):
        if os.path.exists(path):
            try:
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(path)
                return connection
            except OSError:
                pass
        time.sleep(0.05)
    sys.exit("redis-server does not answer")


def encoded(words):
    """A command as the protocol of redis has it."""
    parts = [f"*{len(words)}\r\n"] + [f"${len(word)}\r\n{word}\r\n" for word in words]
    return "".join(parts).encode()
