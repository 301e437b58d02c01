"""Programs that are attached to: how each is started, asked and ended.

An answer is right if `client()(n)` returns True. The bounds are what a program may have more after
all cycles than after the first ones.
"""

import http.client
import os
import shutil
import socket
import subprocess
import time

from attached.machine import FIXTURES, ROOT, TARGET, children, port_of


def wait_for(what, seconds=30):
    """Waits until a function returns something, and returns that."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            found = what()
        except (OSError, IndexError):
            found = None
        if found:
            return found
        time.sleep(0.05)
    raise RuntimeError("a program does not start")


class Program:
    packages = {}
    command = None
    # Clients, each with a pause between two questions; 0 and 0: the usual number, and none.
    clients = 0
    pause = 0
    more_descriptors = 8  # connections of clients
    more_threads = 0
    more_kib = 8 * 1024

    def __init__(self, folder):
        self.folder = folder
        self.child = None

    @classmethod
    def is_there(cls):
        return cls.command is None or shutil.which(cls.command) is not None

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def spawn(self, *words, **options):
        self.child = subprocess.Popen(list(words), cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)

    def pid(self):
        return self.child.pid

    def stop(self):
        self.child.terminate()
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


def connected(path):
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(30)
    stream.connect(path)
    return stream


class Redis(Program):
    packages = {"redis-server": "/usr/bin/redis-server", "redis-tools": "/usr/bin/redis-benchmark"}
    command = "redis-server"

    @property
    def socket(self):
        return self.path("socket")

    def start(self):
        self.spawn("redis-server", "--port", "0", "--unixsocket", self.socket, "--save", "")
        wait_for(lambda: connected(self.socket))

    def client(self):
        stream = connected(self.socket)
        answers = stream.makefile("rb")

        def ask(n):
            value = b"%d " % n * (1 + n % 200)
            key = b"key:%d:%d" % (id(stream), n % 500)
            stream.sendall(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(key), key, len(value), value))
            if answers.readline() != b"+OK\r\n":
                return "no OK"
            stream.sendall(b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(key), key))
            length = int(answers.readline()[1:])
            return answers.read(length + 2)[:-2] == value
        return ask


class Postgresql(Program):
    packages = {"postgresql-15": "/usr/lib/postgresql/15/bin/postgres"}
    clients = 1
    binaries = "/usr/lib/postgresql/15/bin"

    @classmethod
    def is_there(cls):
        return os.path.exists(f"{cls.binaries}/postgres")

    def start(self):
        as_postgres = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"] if os.geteuid() == 0 else []
        data = self.path("data")
        os.mkdir(data)
        if as_postgres:
            shutil.chown(data, "postgres")
        subprocess.run([*as_postgres, f"{self.binaries}/initdb", "--pgdata", data, "--auth", "trust", "--username", "postgres", "--no-sync"],
                       check=True, stdout=subprocess.DEVNULL, cwd=self.folder)
        self.spawn(*as_postgres, f"{self.binaries}/postgres", "-D", data, "-k", data, "-c", "listen_addresses=", "-c", "fsync=off")
        wait_for(lambda: os.path.exists(f"{data}/.s.PGSQL.5432"))
        self.psql = wait_for(self.connection)

    def connection(self):
        psql = subprocess.Popen(["psql", "--no-psqlrc", "--no-align", "--tuples-only", "-h", self.path("data"), "-U", "postgres"],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1)
        psql.stdin.write("SELECT pg_backend_pid();\n")
        line = psql.stdout.readline()
        self.backend = int(line) if line else None
        return psql if line else None

    def pid(self):
        return self.backend

    def client(self):
        def ask(n):
            m = 1 + n % 3000
            self.psql.stdin.write(f"SELECT sum(i), length(string_agg(i::text, ',' ORDER BY i DESC)) FROM generate_series(1, {m}) i;\n")
            return self.psql.stdout.readline() == f"{m * (m + 1) // 2}|{len(','.join(map(str, range(1, m + 1))))}\n"
        return ask

    def stop(self):
        self.psql.stdin.close()
        self.psql.wait()
        super().stop()


class Nginx(Program):
    packages = {"nginx-light": "/usr/sbin/nginx"}

    @classmethod
    def is_there(cls):
        return os.path.exists("/usr/sbin/nginx")

    def start(self):
        os.mkdir(self.path("www"))
        self.text = "".join(f"{n}\n" for n in range(20000))
        self.write("www/numbers.txt", self.text)
        places = "".join(f"{name}_temp_path {self.path(name)}; " for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        user = "user www-data;" if os.geteuid() == 0 else ""
        conf = self.write("nginx.conf", f"""{user} worker_processes 1; daemon off; pid {self.path('pid')}; error_log {self.path('error.log')};
            events {{ worker_connections 64; }}
            http {{ access_log off; gzip on; gzip_types *; {places}
              server {{ listen unix:{self.path('socket')}; root {self.path('www')};
                location /again/ {{ proxy_pass http://unix:{self.path('socket')}:/; }} }} }}""")
        self.spawn("/usr/sbin/nginx", "-c", conf)
        wait_for(lambda: connected(self.path("socket")))
        self.worker = wait_for(lambda: children(self.child.pid)[0])

    def pid(self):
        return self.worker

    def client(self):
        def ask(n):
            connection = http.client.HTTPConnection("localhost")
            connection.sock = connected(self.path("socket"))
            folder = "/again" if n % 2 else ""
            headers = {"Accept-Encoding": "gzip"} if n % 3 == 0 else {}
            connection.request("GET", f"{folder}/numbers.txt", headers=headers)
            body = connection.getresponse().read()
            connection.close()
            if headers:
                import gzip
                body = gzip.decompress(body)
            return body == self.text.encode()
        return ask


class Lines(Program):
    """A server that answers a number on each line by m(m - 1), with m its remainder by 50."""

    def start(self):
        self.spawn(*self.words())
        self.port = wait_for(lambda: port_of(self.child.pid))

    def client(self):
        stream = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        answers = stream.makefile("rb")

        def ask(n):
            stream.sendall(b"%d\n" % n)
            m = n % 50
            line = answers.readline()
            return line == b"%d\n" % (m * (m - 1)) or repr(line)
        return ask


class Python(Lines):
    more_kib = 16 * 1024

    def words(self):
        return "/usr/bin/python3", self.write("server.py", """
import json, socketserver, zlib
class Answers(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            text = json.dumps([{"i": i, "t": "x" * i} for i in range(int(line) % 50)])
            data = json.loads(zlib.decompress(zlib.compress(text.encode() * 20))[:len(text)])
            self.wfile.write(b"%d\\n" % sum(len(d["t"]) + d["i"] for d in data))
socketserver.ThreadingTCPServer.daemon_threads = True
socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answers).serve_forever()
""")


class Node(Lines):
    packages = {"nodejs": "/usr/bin/node"}
    command = "node"
    more_kib = 64 * 1024  # its garbage

    def words(self):
        return "node", self.write("server.js", """
const net = require('net'), readline = require('readline'), zlib = require('zlib');
net.createServer(socket => {
  socket.on('error', () => {});
  readline.createInterface({ input: socket }).on('line', line => {
    const data = Array.from({ length: Number(line) % 50 }, (_, i) => ({ i, t: 'x'.repeat(i) }));
    zlib.deflate(Buffer.from(JSON.stringify(data)), (error, packed) => {
      const again = JSON.parse(zlib.inflateSync(packed));
      socket.write(again.reduce((sum, d) => sum + d.t.length + d.i, 0) + '\\n');
    });
  }).on('error', () => {});
}).listen(0, '127.0.0.1');
""")


class Java(Lines):
    packages = {"openjdk-17-jdk-headless": "/usr/bin/javac"}
    command = "javac"
    more_kib = 64 * 1024  # its garbage, and compiled code
    more_threads = 4  # compilers

    def words(self):
        self.write("Server.java", """
import java.io.*; import java.net.*; import java.nio.ByteBuffer; import java.util.zip.*;
public class Server {
    static void serve(Socket socket) {
        try (socket) {
            BufferedReader in = new BufferedReader(new InputStreamReader(socket.getInputStream()));
            OutputStream out = socket.getOutputStream();
            for (String line; (line = in.readLine()) != null; ) {
                int m = Integer.parseInt(line) % 50;
                byte[] data = new byte[m * (m - 1)], packed = new byte[10000], again = new byte[10000];
                Deflater deflater = new Deflater(); deflater.setInput(data); deflater.finish();
                int length = deflater.deflate(packed); deflater.end();
                Inflater inflater = new Inflater(); inflater.setInput(packed, 0, length);
                int got = inflater.inflate(again); inflater.end();
                ByteBuffer.allocateDirect(4096);
                out.write((got + "\\n").getBytes());
            }
        } catch (Exception error) { }
    }
    public static void main(String[] arguments) throws Exception {
        ServerSocket server = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"));
        while (true) { Socket socket = server.accept(); new Thread(() -> serve(socket)).start(); }
    }
}
""")
        subprocess.run(["javac", "Server.java"], cwd=self.folder, check=True)
        return "java", "-Xmx64m", "-cp", self.folder, "Server"


class Rust(Program):
    more_kib = 32 * 1024  # its cache grows

    @classmethod
    def is_there(cls):
        return shutil.which("cargo") is not None

    def start(self):
        target = os.path.join(TARGET, "rust-servers", "jemalloc")
        subprocess.run(["cargo", "build", "--release", "--quiet", "--features", "jemalloc", "--target-dir", target],
                       cwd=os.path.join(ROOT, "scripts", "rust-servers"), check=True)
        self.spawn(os.path.join(target, "release", "rust-servers"), "1000000000")
        self.port = wait_for(lambda: port_of(self.child.pid))

    def client(self):
        stream = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        answers = stream.makefile("rb")

        def ask(n):
            stream.sendall(n.to_bytes(8, "little"))
            length = int.from_bytes(answers.read(4), "little")
            return answers.read(length) == b'{"question":%d,"answer":"%s"}' % (n, b"x" * (n % 700))
        return ask


class Busy(Program):
    """attached_server. Its threads check their own blocks and waits."""
    threads = 50
    clients = 1
    pause = 0.2
    before = ()

    def start(self):
        self.child = subprocess.Popen([*self.before, f"{FIXTURES}/attached_server", str(self.threads)], cwd=self.folder,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        if self.child.stdout.readline() != "ready\n":
            raise RuntimeError("attached_server does not start")

    def client(self):
        def tell(command):
            self.child.stdin.write(f"{command}\n")
            return self.child.stdout.readline()

        def ask(n):
            said = tell(f"burst {1 + n % 3}"), tell("errors")
            return said == (f"done {1 + n % 3}\n", "done 0\n") or repr(said)
        return ask

    def stop(self):
        self.child.stdin.close()
        self.child.wait(30)


class Namespace(Busy):
    """The process that is attached to has its files in another mount namespace, and is 1 there."""
    threads = 8
    before = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount", "--mount-proc")

    def pid(self):
        return wait_for(lambda: children(self.child.pid)[0])


PROGRAMS = {
    "redis": Redis, "postgresql": Postgresql, "nginx": Nginx, "python3": Python, "node": Node, "java": Java, "rust": Rust, "busy": Busy,
    "namespace": Namespace,
}
