"""BIND: a name server that takes its memory by `mallocx` of a shared jemalloc.

Debian's named takes and gives back its memory by jemalloc's own functions, whose flags no
replacement could serve. It counts its memory itself, and tells the count over HTTP.
"""

import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import time
import urllib.request

HOSTS = 3000
QUERIES = 4000
# Two for a host, one and its repetition for the zone, and two for its server.
RECORDS = 2 * HOSTS + 4
CONFIGURATION = """
options {{
    directory "{folder}"; pid-file none; session-keyfile none; managed-keys-directory "{folder}";
    listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};
    recursion no; dnssec-validation no; notify no; allow-transfer {{ 127.0.0.1; }};
}};
controls {{ }};
statistics-channels {{ inet 127.0.0.1 port {http} allow {{ 127.0.0.1; }}; }};
zone "example.test" {{ type primary; file "example.test"; }};
"""
ADDRESS, TEXT, TRANSFER = 1, 16, 252


def program():
    return shutil.which("named", path=os.environ.get("PATH", "") + ":/usr/sbin")


def address(number):
    return f"10.{number // 65536}.{number // 256 % 256}.{number % 256}"


def free_port():
    """A port that is free for both protocols."""
    with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        stream.bind(("127.0.0.1", 0))
        datagrams.bind(stream.getsockname())
        return stream.getsockname()[1]


def query(number, name, kind):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
    return struct.pack(">HHHHHH", number, 0, 1, 0, 0, 0) + labels + struct.pack(">HH", kind, 1)


def answers_of(reply):
    """The code of a reply, and the data of its answers."""
    _, flags, questions, answers, _, _ = struct.unpack(">HHHHHH", reply[:12])
    at = 12
    def skip_name(at):
        while reply[at] and reply[at] < 0xc0:
            at += reply[at] + 1
        return at + (2 if reply[at] >= 0xc0 else 1)
    for _ in range(questions):
        at = skip_name(at) + 4
    data = []
    for _ in range(answers):
        at = skip_name(at)
        size = struct.unpack(">H", reply[at + 8:at + 10])[0]
        data.append(reply[at + 10:at + 10 + size])
        at += 10 + size
    return flags & 15, data


def ask(port):
    """Asks for addresses, texts, and missing names. Returns how many answers are wrong."""
    wrong, choose = 0, random.Random(1)
    with socket.socket(type=socket.SOCK_DGRAM) as asking:
        asking.connect(("127.0.0.1", port))
        asking.settimeout(20)
        for number in range(QUERIES):
            host = choose.randrange(HOSTS + HOSTS // 10)
            kind = choose.choice((ADDRESS, TEXT))
            asking.send(query(number, f"host{host}.example.test", kind))
            reply = asking.recv(4096)
            if host >= HOSTS:
                expected = (3, [])
            elif kind == ADDRESS:
                expected = (0, [socket.inet_aton(address(host))])
            else:
                text = f"text of host {host}".encode()
                expected = (0, [bytes([len(text)]) + text])
            wrong += reply[:2] != struct.pack(">H", number) or answers_of(reply) != expected
    return wrong


def transfer(port):
    """Transfers the zone. Returns how many records came; its first one is repeated as the last."""
    records = 0
    with socket.create_connection(("127.0.0.1", port), 20) as stream:
        request = query(7, "example.test", TRANSFER)
        stream.sendall(struct.pack(">H", len(request)) + request)
        file = stream.makefile("rb")
        while records < RECORDS:
            size = file.read(2)
            if len(size) < 2:
                break
            records += len(answers_of(file.read(struct.unpack(">H", size)[0]))[1])
    return records


def started(folder, variables):
    """Starts named. Returns it, and its ports."""
    port, http = free_port(), free_port()
    with open(os.path.join(folder, "example.test"), "w") as file:
        file.write("$TTL 300\n@ SOA ns hostmaster 1 3600 600 86400 300\n@ NS ns\nns A 127.0.0.1\n")
        for host in range(HOSTS):
            file.write(f'host{host} A {address(host)}\nhost{host} TXT "text of host {host}"\n')
    with open(os.path.join(folder, "named.conf"), "w") as file:
        file.write(CONFIGURATION.format(folder=folder, port=port, http=http))
    log = open(os.path.join(folder, "named.log"), "w")
    server = subprocess.Popen([program(), "-g", "-n", "2", "-c", os.path.join(folder, "named.conf")], cwd=folder,
                              env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    for _ in range(600):
        with open(log.name) as told:
            if "running\n" in told.read():
                return server, port, http
        if server.poll() is not None:
            break
        time.sleep(0.1)
    with open(log.name) as told:
        raise SystemExit(f"linked-allocators: named does not start: {told.read()[-2000:]}")


def own_count(http):
    """The bytes in use that named counts itself."""
    with urllib.request.urlopen(f"http://127.0.0.1:{http}/json/v1/mem", timeout=20) as told:
        return sum(context["inuse"] for context in json.load(told)["memory"]["contexts"])


def recorded(folder, library, allocator):
    """Runs named, recording everything, and asks it. Returns wrong answers, and its own count."""
    variables = {"LD_PRELOAD": library, "HEAPPROF_SAMPLE_INTERVAL": "1", "HEAPPROFILE": os.path.join(folder, "t"), "HEAPPROF_ALLOCATOR": allocator}
    server, port, http = started(folder, variables)
    try:
        wrong = ask(port)
        wrong += transfer(port) != RECORDS
        count = own_count(http)
        # The log is flushed, and named has no time to give its memory back.
        time.sleep(1)
        server.send_signal(signal.SIGKILL)
    finally:
        server.kill()
        server.wait()
    return wrong, count


def ended(folder, library, allocator):
    """Runs named to its end. Returns wrong answers, and its status."""
    variables = {"LD_PRELOAD": library, "HEAPPROF_SAMPLE_INTERVAL": "1", "HEAPPROFILE": os.path.join(folder, "e"), "HEAPPROF_ALLOCATOR": allocator}
    server, port, _ = started(folder, variables)
    wrong = ask(port)
    server.send_signal(signal.SIGTERM)
    return wrong, server.wait(60)
