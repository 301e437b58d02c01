//! Names from debuginfod: Debian's own server, elfutils' own client beside ours, and servers that do what they can
//! to hang, fill or deceive us.

mod common;
mod loopback;
mod resolve_fixture;

use common::{LogBuilder, stderr, stdout};
use heapprof_format::{Module, Segment};
use heapprof_symbolizer::resolve::{
    Debuginfod, DebuginfodSettings, FetchAccount, Identity, ModuleRef, ModuleSymbols, Outcome,
    Role, SearchPath, resolve_module,
};
use loopback::{Server, free_port, is_served, status};
use resolve_fixture::{C_INLINES, Fixture, installed, lines};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const COMPLETE: [&str; 3] = [
    "(inlined) leaf program.c:3",
    "(inlined) middle program.c:6",
    "outer program.c:9",
];

/// A stripped `program` whose debug information only a server has, and one address in it.
struct World {
    fixture: Fixture,
    call: u64,
    id: Vec<u8>,
    /// The debug information.
    debug: Vec<u8>,
    /// The path by which a server is asked for it.
    path: String,
}

fn world() -> World {
    let fixture = Fixture::new();
    fixture.compile("program.c", C_INLINES, &["-g", "-rdynamic"]);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    let id = fixture.build_id("program");
    fixture.run("objcopy", &["--only-keep-debug", "program", "detached"]);
    fixture.run("objcopy", &["--strip-all", "program", "program"]);
    let debug = std::fs::read(fixture.path("detached")).expect("the debug file");
    std::fs::remove_file(fixture.path("detached")).expect("the debug file");
    let path = format!("/buildid/{}/debuginfo", hex(&id));
    World {
        fixture,
        call,
        id,
        debug,
        path,
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl World {
    fn settings(&self, urls: &[&str]) -> DebuginfodSettings {
        DebuginfodSettings {
            urls: urls.iter().map(ToString::to_string).collect(),
            limit: Duration::from_secs(60),
            cache: self.fixture.path("cache"),
            largest: 1 << 30,
        }
    }

    fn client(&self, urls: &[&str]) -> Debuginfod {
        Debuginfod::new(self.settings(urls), |_| {})
    }

    fn ask(&self, client: &Debuginfod) -> ModuleSymbols {
        self.ask_for(client, &self.id)
    }

    fn ask_for(&self, client: &Debuginfod, id: &[u8]) -> ModuleSymbols {
        let search = SearchPath {
            debuginfod: Some(client.clone()),
            ..self.fixture.search()
        };
        let path = self.fixture.path("program");
        let module = ModuleRef {
            path: &path,
            build_id: Some(id),
        };
        resolve_module(&module, &[self.call], &search)
    }

    /// Asks a server that fails in some way: the report has the words, the symbol table has the name, and the
    /// cache has nothing.
    fn fails(&self, settings: DebuginfodSettings, words: &str) {
        let client = Debuginfod::new(settings, |_| {});
        let symbols = self.ask(&client);
        assert_eq!(lines(&symbols, self.call), ["outer ?:0"]);
        let report = symbols.report.to_string();
        assert!(report.contains(words), "'{words}' in {report}");
        assert_eq!(self.cached(), [] as [String; 0]);
        assert_eq!(client.account().failed, 1, "{report}");
        assert_eq!(client.account().fetched, 0);
    }

    /// Names of all files in the cache, each with its length.
    fn cached(&self) -> Vec<String> {
        let mut found = Vec::new();
        let Ok(folders) = std::fs::read_dir(self.fixture.path("cache")) else {
            return found;
        };
        for folder in folders {
            let folder = folder.expect("a folder").path();
            for file in std::fs::read_dir(&folder).into_iter().flatten() {
                let file = file.expect("a file");
                let len = file.metadata().expect("a file").len();
                found.push(format!("{} {len}", file.file_name().display()));
            }
        }
        found.sort();
        found
    }

    fn log(&self) -> String {
        let mut log = LogBuilder::new(1);
        log.module_record(Module {
            number: 0,
            time_ns: 0,
            path: self.fixture.path("program").display().to_string(),
            build_id: self.id.clone(),
            bias: 0x10_0000,
            segments: vec![Segment {
                start: 0x10_0000,
                len: 0x10_0000,
                file_offset: 0,
                flags: 5,
            }],
        });
        let stack = log.stack(&[0x10_0000 + self.call]);
        log.alloc(stack, 100);
        let path = self.fixture.write("run.heaplog", log.end());
        path.display().to_string()
    }

    /// The program in a clean environment but for the cache.
    fn heapprof(&self, args: &[&str], env: &[(&str, &str)]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_heapprof"))
            .args(args)
            .env_clear()
            .env("DEBUGINFOD_CACHE_PATH", self.fixture.path("cache"))
            .envs(env.iter().copied())
            .output()
            .expect("heapprof can be started")
    }
}

/// A process that ends with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn names_come_from_a_server_once_and_then_from_the_cache() {
    let world = world();
    let server = Server::of_files(vec![(world.path.clone(), world.debug.clone())]);
    let client = world.client(&[&server.url]);
    let symbols = world.ask(&client);
    assert_eq!(lines(&symbols, world.call), COMPLETE, "{}", symbols.report);
    assert_eq!(symbols.report.identity, Identity::Verified);
    assert_eq!(world.cached(), [format!("debuginfo {}", world.debug.len())]);
    let account = FetchAccount {
        fetched: 1,
        bytes: world.debug.len() as u64,
        ..FetchAccount::default()
    };
    assert_eq!(client.account(), account);

    // Even a run that could reach nobody has it now.
    let client = world.client(&["http://127.0.0.1:1"]);
    let symbols = world.ask(&client);
    assert_eq!(lines(&symbols, world.call), COMPLETE, "{}", symbols.report);
    assert_eq!(client.account().from_cache, 1);
    assert_eq!(server.asked(), [world.path.as_str()]);
}

#[test]
fn what_no_server_has_is_not_asked_for_again() {
    let world = world();
    let server = Server::of_files(Vec::new());
    let client = world.client(&[&server.url, &server.url]);
    let symbols = world.ask(&client);
    assert_eq!(lines(&symbols, world.call), ["outer ?:0"]);
    let report = symbols.report.to_string();
    assert!(
        report.contains(&format!(
            "{}{}: the server does not have it",
            server.url, world.path
        )),
        "{report}"
    );
    assert_eq!(
        (client.account().not_served, client.account().failed),
        (1, 0)
    );
    assert_eq!(world.cached(), ["debuginfo 0"]);
    assert_eq!(server.asked().len(), 2, "each server once");

    let symbols = world.ask(&world.client(&[&server.url]));
    let report = symbols.report.to_string();
    assert!(report.contains("not asked again"), "{report}");
    assert_eq!(server.asked().len(), 2);
}

#[test]
fn an_absence_is_only_remembered_when_every_server_said_so() {
    let world = world();
    let lacking = Server::of_files(Vec::new());
    let failing = Server::answering(|_, stream| status(stream, "503 Service Unavailable"));
    let client = world.client(&[&lacking.url, &failing.url]);
    let report = world.ask(&client).report.to_string();
    assert!(report.contains("status 503"), "{report}");
    assert_eq!(world.cached(), [] as [String; 0]);
    // Within a run nobody is asked twice all the same: a library may have been loaded fifty times.
    assert_eq!(world.ask(&client).report.to_string(), report);
    assert_eq!((failing.asked().len(), client.account().failed), (1, 1));
}

#[test]
fn the_second_server_is_asked_when_the_first_has_it_not() {
    let world = world();
    let lacking = Server::of_files(Vec::new());
    let having = Server::of(world.debug.clone());
    let dead = format!("http://127.0.0.1:{}/", free_port());
    let symbols = world.ask(&world.client(&[&lacking.url, &dead, &having.url]));
    assert_eq!(lines(&symbols, world.call), COMPLETE, "{}", symbols.report);
}

#[test]
fn another_build_is_refused_and_never_cached() {
    let world = world();
    let other = Fixture::new();
    let text = C_INLINES.replace("middle", "wrong");
    other.compile("program.c", &text, &["-g"]);
    let wrong = std::fs::read(other.path("program")).expect("the program");
    let server = Server::of(wrong.clone());
    world.fails(world.settings(&[&server.url]), "refused: another build");

    // In the cache, where anybody may have put it, it is no better; what is right takes its place.
    let place = world.fixture.path("cache").join(hex(&world.id));
    std::fs::create_dir_all(&place).expect("a folder");
    std::fs::write(place.join("debuginfo"), wrong).expect("a file");
    let server = Server::of(world.debug.clone());
    let symbols = world.ask(&world.client(&[&server.url]));
    assert_eq!(lines(&symbols, world.call), COMPLETE, "{}", symbols.report);
    assert_eq!(world.cached(), [format!("debuginfo {}", world.debug.len())]);
}

#[test]
fn what_is_no_elf_file_is_refused() {
    let world = world();
    let server = Server::of(b"<html>Please log in</html>".to_vec());
    world.fails(world.settings(&[&server.url]), "is not an ELF file");
    let server = Server::of(Vec::new());
    world.fails(world.settings(&[&server.url]), "is not an ELF file");
}

#[test]
fn a_body_that_is_cut_off_is_refused() {
    let world = world();
    let half = world.debug[..world.debug.len() / 2].to_vec();
    let whole = world.debug.len();
    let server = Server::answering(move |_, stream| {
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {whole}\r\n\r\n");
        let _ = stream.write_all(&half);
    });
    world.fails(world.settings(&[&server.url]), "broken off after");
}

#[test]
fn a_body_that_is_too_large_is_refused() {
    let world = world();
    let claiming = Server::answering(|_, stream| {
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: 1152921504606846976\r\n\r\n"
        );
    });
    world.fails(
        world.settings(&[&claiming.url]),
        "1152921504606846976 bytes are more",
    );

    // One that says nothing, and never ends; the part that was written is gone again.
    let endless = Server::answering(|_, stream| {
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        while stream.write_all(&[0x7f; 65_536]).is_ok() {}
    });
    let settings = DebuginfodSettings {
        largest: 1 << 20,
        ..world.settings(&[&endless.url])
    };
    world.fails(settings, "are more than the 1048576 allowed");
}

#[test]
fn a_small_body_that_unpacks_to_a_large_one_is_refused() {
    let world = world();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&vec![0; 8 << 20]).expect("memory");
    let bomb = encoder.finish().expect("memory");
    assert!(bomb.len() < 20_000);
    let server = Server::answering(move |_, stream| gzipped(stream, &bomb));
    let settings = DebuginfodSettings {
        largest: 1 << 20,
        ..world.settings(&[&server.url])
    };
    world.fails(settings, "are more than the 1048576 allowed");
}

fn gzipped(stream: &mut std::net::TcpStream, body: &[u8]) {
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(body);
}

#[test]
fn a_compressed_answer_is_unpacked() {
    let world = world();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(&world.debug).expect("memory");
    let body = encoder.finish().expect("memory");
    let server = Server::answering(move |_, stream| gzipped(stream, &body));
    let symbols = world.ask(&world.client(&[&server.url]));
    assert_eq!(lines(&symbols, world.call), COMPLETE, "{}", symbols.report);
}

#[test]
fn redirects_are_followed_a_few_times() {
    let world = world();
    let having = Server::of(world.debug.clone());
    let to = having.url.clone();
    let mirror = Server::answering(move |path, stream| {
        let _ = write!(
            stream,
            "HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: {to}{path}\r\nContent-Length: 0\r\n\r\n"
        );
    });
    let symbols = world.ask(&world.client(&[&mirror.url]));
    assert_eq!(lines(&symbols, world.call), COMPLETE, "{}", symbols.report);
    std::fs::remove_dir_all(world.fixture.path("cache")).expect("the cache");

    let looping = Server::answering(|path, stream| {
        let _ = write!(
            stream,
            "HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: {path}\r\nContent-Length: 0\r\n\r\n"
        );
    });
    world.fails(world.settings(&[&looping.url]), "redirect");
    assert!(looping.asked().len() < 10, "{:?}", looping.asked());

    // To what is no web address at all.
    let astray = Server::answering(|_, stream| {
        let _ = write!(
            stream,
            "HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n"
        );
    });
    world.fails(world.settings(&[&astray.url]), "too many redirects");
}

/// Each of these would go on for ever; the limit of a second is for all modules together.
#[test]
fn a_server_that_is_slow_in_any_way_costs_the_limit_once() {
    fn trickle(stream: &mut std::net::TcpStream, bytes: &[u8]) {
        for byte in bytes.iter().cycle() {
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    type Answer = fn(&str, &mut std::net::TcpStream);
    let answers: [(&str, Answer); 4] = [
        ("silent", |_, stream| {
            let _ = stream.read(&mut [0]);
        }),
        ("slow head", |_, stream| {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\n");
            trickle(stream, b"X-More: more\r\n");
        }),
        ("slow body", |_, stream| {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
            trickle(stream, &[0x7f]);
        }),
        ("slow chunks", |_, stream| {
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            );
            trickle(stream, b"1\r\nx\r\n");
        }),
    ];
    for (what, answer) in answers {
        for scheme in ["http", "https"] {
            let world = world();
            let server = Server::answering(answer);
            let settings = DebuginfodSettings {
                limit: Duration::from_secs(1),
                ..world.settings(&[&server.url.replace("http", scheme)])
            };
            let client = Debuginfod::new(settings, |_| {});
            let start = Instant::now();
            for module in 0..20 {
                let mut id = world.id.clone();
                id[0] ^= module;
                let report = world.ask_for(&client, &id).report.to_string();
                assert!(report.contains("1 s for all servers"), "{what}: {report}");
            }
            // Twenty limits would be twenty seconds; a busy machine may stretch one.
            let took = start.elapsed();
            assert!(took < Duration::from_secs(15), "{what}, {scheme}: {took:?}");
            assert_eq!(world.cached(), [] as [String; 0], "{what}");
            assert!(server.asked().len() <= 1, "{what}: {:?}", server.asked());
        }
    }
}

#[test]
fn a_server_that_cannot_be_reached_is_asked_once() {
    let world = world();
    let dead = format!("http://127.0.0.1:{}", free_port());
    world.fails(world.settings(&[&dead]), "refused");
    let client = world.client(&[&dead]);
    let _ = world.ask(&client);
    let other = world.ask_for(&client, &[1; 20]).report.to_string();
    assert!(
        other.contains("not asked: the server could not be reached"),
        "{other}"
    );
    let nowhere = "http://no-such-host.invalid";
    world.fails(world.settings(&[nowhere]), &format!("{nowhere}/buildid/"));
}

#[test]
fn the_module_itself_is_fetched_when_it_is_gone_and_its_debug_information_nowhere() {
    let world = world();
    let program = world.fixture.path("program");
    let bytes = std::fs::read(&program).expect("the program");
    std::fs::remove_file(&program).expect("the program");
    let path = world.path.replace("debuginfo", "executable");
    let server = Server::of_files(vec![(path, bytes)]);
    let symbols = world.ask(&world.client(&[&server.url]));
    assert_eq!(
        lines(&symbols, world.call),
        ["outer ?:0"],
        "{}",
        symbols.report
    );
    assert_eq!(symbols.report.identity, Identity::Verified);
    let report = symbols.report.to_string();
    assert!(!report.contains("was not found"), "{report}");
}

#[test]
fn what_dwz_shared_is_fetched_too() {
    assert!(installed("dwz"), "run scripts/install-deps");
    let fixture = Fixture::new();
    fixture.compile("program.c", C_INLINES, &["-g"]);
    fixture.run("cp", &["program", "second"]);
    fixture.run(
        "dwz",
        &["-m", "shared", "-M", "shared", "program", "second"],
    );
    let call = fixture.call_site("program", "<outer>", "<sink>");
    let id = fixture.build_id("program");
    let shared = std::fs::read(fixture.path("shared")).expect("the shared file");
    std::fs::remove_file(fixture.path("shared")).expect("the shared file");
    let world = World {
        call,
        id,
        debug: shared.clone(),
        path: String::new(),
        fixture,
    };
    let server = Server::of(shared);
    let symbols = world.ask(&world.client(&[&server.url]));
    assert_eq!(lines(&symbols, call), COMPLETE, "{}", symbols.report);
    let is_shared = |(path, role): (&Path, Role)| {
        role == Role::Supplementary && path.starts_with(world.fixture.path("cache"))
    };
    assert!(symbols.report.opened().any(is_shared), "{}", symbols.report);
}

#[test]
fn without_a_build_id_nobody_is_asked() {
    let world = world();
    let server = Server::of(world.debug.clone());
    let client = world.client(&[&server.url]);
    let search = SearchPath {
        debuginfod: Some(client),
        ..world.fixture.search()
    };
    for path in ["/nowhere/program", "[heap]", "[vdso]"] {
        let module = ModuleRef {
            path: Path::new(path),
            build_id: None,
        };
        let _ = resolve_module(&module, &[0x1000], &search);
    }
    assert_eq!(server.asked(), [] as [String; 0]);
}

#[test]
fn nobody_is_asked_without_the_option() {
    let world = world();
    let server = Server::of(world.debug.clone());
    let env = [("DEBUGINFOD_URLS", server.url.as_str())];
    let log = world.log();
    let output = world.heapprof(&["top", &log], &env);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(server.asked(), [] as [String; 0]);
    assert!(
        !stdout(&output).contains("program.c:"),
        "{}",
        stdout(&output)
    );

    // With it, DEBUGINFOD_URLS counts, and nothing is said when it goes well and nobody watches.
    let output = world.heapprof(&["top", "--debuginfod", &log], &env);
    assert!(
        stdout(&output).contains("program.c:3"),
        "{}",
        stdout(&output)
    );
    assert_eq!(stderr(&output), "");
    assert_eq!(server.asked(), [world.path.as_str()]);

    // elfutils would take that for one byte.
    let with_unit = [env[0], ("DEBUGINFOD_MAXSIZE", "1G")];
    let output = world.heapprof(&["top", "--debuginfod", &log], &with_unit);
    let words = "DEBUGINFOD_MAXSIZE=1G is no number of bytes";
    assert!(stderr(&output).contains(words), "{}", stderr(&output));

    let output = world.heapprof(&["info", "--debuginfod", &log], &env);
    let expected = "Asked of debuginfod: 0 files fetched (0 B), 1 from the cache";
    assert!(stdout(&output).contains(expected), "{}", stdout(&output));
}

#[test]
fn the_command_line_says_what_is_wrong() {
    let world = world();
    let log = world.log();
    let refused = |args: &[&str], env: &[(&str, &str)], words: &str| {
        let output = world.heapprof(&[&["top", &log], args].concat(), env);
        assert!(!output.status.success());
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    };
    let asked = ["--debuginfod"];
    refused(&asked, &[], "which server?");
    refused(
        &asked,
        &[("DEBUGINFOD_URLS", "ima:enforcing")],
        "which server?",
    );
    refused(
        &["--debuginfod-urls", "ftp://x"],
        &[],
        "'ftp://x' begins neither",
    );
    let words = "DEBUGINFOD_URLS: '/etc' begins neither";
    refused(&asked, &[("DEBUGINFOD_URLS", "http://x /etc")], words);
    refused(&["--debuginfod-timeout", "0"], &[], "a time is wanted");

    let dead = format!("http://127.0.0.1:{}", free_port());
    let args = ["--debuginfod-urls", &dead, &log];
    let output = world.heapprof(&[&["symbolize"][..], &args].concat(), &[]);
    assert!(output.status.success());
    assert!(stderr(&output).contains("1 failed"), "{}", stderr(&output));
    let output = world.heapprof(&[&["info"][..], &args].concat(), &[]);
    let line = format!("{dead}{}: ", world.path);
    assert!(stdout(&output).contains(&line), "{}", stdout(&output));
}

/// The server waits in the middle of the file until the terminal has shown that.
#[test]
fn a_terminal_shows_what_is_being_fetched() {
    let world = world();
    let (seen, was_seen) = mpsc::channel::<()>();
    let was_seen = std::sync::Mutex::new(was_seen);
    let debug = world.debug.clone();
    let server = Server::answering(move |_, stream| {
        let (first, rest) = debug.split_at(debug.len() / 2);
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            debug.len()
        );
        let _ = stream.write_all(first);
        let _ = was_seen
            .lock()
            .expect("one")
            .recv_timeout(Duration::from_secs(60));
        let _ = stream.write_all(rest);
    });
    let command = format!(
        "{} top --debuginfod-urls {} --debuginfod-timeout 2m {}",
        env!("CARGO_BIN_EXE_heapprof"),
        server.url,
        world.log()
    );
    let child = Command::new("script")
        .args(["-qefc", &command, "/dev/null"])
        .env("DEBUGINFOD_CACHE_PATH", world.fixture.path("cache"))
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script runs");
    let mut child = Killed(child);
    let mut screen = String::new();
    let mut out = child.0.stdout.take().expect("piped");
    let mut piece = [0; 4096];
    let mut seen = Some(seen);
    while let Ok(n @ 1..) = out.read(&mut piece) {
        screen.push_str(&String::from_utf8_lossy(&piece[..n]));
        if screen.contains("debuginfod: program") {
            seen.take().map(|seen| seen.send(()));
        }
    }
    assert!(seen.is_none(), "progress was not shown: {screen}");
    assert!(screen.contains("program.c:3"), "{screen}");
}

/// A certificate for 127.0.0.1 that only who is told to trusts; the server is OpenSSL's, its files are answers.
#[test]
fn https_is_spoken_certificates_are_checked_and_http_is_no_way_out() {
    let world = world();
    let head = format!(
        "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n",
        world.debug.len()
    );
    let answer = [head.as_bytes(), &world.debug].concat();
    world.fixture.write(&world.path[1..], answer);
    let args = "req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -days 2 -subj /CN=x \
                -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE";
    let args: Vec<&str> = args.split_whitespace().collect();
    world.fixture.run("openssl", &args);
    let port = free_port();
    let accept = format!("127.0.0.1:{port}");
    let server = Command::new("openssl")
        .args(["s_server", "-quiet", "-HTTP", "-accept", &accept])
        .args(["-cert", "cert", "-key", "key"])
        .current_dir(world.fixture.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl runs");
    let _server = Killed(server);
    until("openssl listens", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let url = format!("https://127.0.0.1:{port}");
    let log = world.log();
    let args = ["info", "--debuginfod-urls", &url, &log];

    let output = world.heapprof(&args, &[]);
    let text = stdout(&output);
    assert!(text.contains("invalid peer certificate"), "{text}");
    assert!(text.contains("1 failed"), "{text}");

    let cert = world.fixture.path("cert").display().to_string();
    let env = [("SSL_CERT_FILE", cert.as_str())];
    let output = world.heapprof(&args, &env);
    let text = stdout(&output);
    assert!(
        text.contains("1 files fetched"),
        "{text}{}",
        stderr(&output)
    );

    std::fs::remove_dir_all(world.fixture.path("cache")).expect("the cache");
    let open_to_all = Server::of(world.debug.clone());
    let answer = format!(
        "HTTP/1.0 302 Found\r\nConnection: close\r\nLocation: {}/x\r\nContent-Length: 0\r\n\r\n",
        open_to_all.url
    );
    world.fixture.write(&world.path[1..], answer);
    let output = world.heapprof(&args, &env);
    let text = stdout(&output);
    assert!(text.contains("1 failed"), "{text}");
    assert!(text.contains("https only"), "{text}");
    assert_eq!(open_to_all.asked(), [] as [String; 0]);
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Debian's server over a folder with the stripped program and its debug file, and elfutils' client beside ours: each
/// finds in the cache what the other fetched, and what the other did not find.
#[test]
fn debians_server_and_elfutils_client_agree_with_us() {
    let world = world();
    let served = world.fixture.write("served/program.debug", &world.debug);
    let port = free_port();
    let server = Command::new("debuginfod")
        .args(["-F", "-d", ":memory:", "-p", &port.to_string()])
        .arg(served.parent().expect("a folder"))
        .env_remove("DEBUGINFOD_URLS")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("debuginfod runs (scripts/install-deps installs it)");
    let _server = Killed(server);
    until("debuginfod has read its folder", || {
        is_served(port, &world.path)
    });

    let url = format!("http://127.0.0.1:{port}");
    let client = world.client(&[&url]);
    let symbols = world.ask(&client);
    assert_eq!(lines(&symbols, world.call), COMPLETE, "{}", symbols.report);
    let absent = [7; 20];
    let tried = world.ask_for(&client, &absent).report.tried;
    assert!(
        tried.iter().any(|(_, o)| *o == Outcome::NotServed),
        "{tried:?}"
    );

    let theirs = |id: &[u8], url: &str, cache: &str| {
        let output = Command::new("debuginfod-find")
            .args(["debuginfo", &hex(id)])
            .env("DEBUGINFOD_URLS", url)
            .env("DEBUGINFOD_CACHE_PATH", world.fixture.path(cache))
            .output()
            .expect("debuginfod-find runs");
        let found = PathBuf::from(stdout(&output).trim());
        output.status.success().then_some(found)
    };
    // What we fetched and what we missed, theirs has without any server.
    let found = theirs(&world.id, "http://127.0.0.1:1", "cache").expect("the file in our cache");
    assert_eq!(std::fs::read(found).expect("a file"), world.debug);

    let kept = world.cached();
    assert_eq!(kept[0], "debuginfo 0", "what we missed: {kept:?}");
    assert!(theirs(&absent, &url, "cache").is_none());

    // And the other way round.
    assert!(theirs(&world.id, &url, "cache-of-theirs").is_some());
    assert!(theirs(&absent, &url, "cache-of-theirs").is_none());
    let settings = DebuginfodSettings {
        cache: world.fixture.path("cache-of-theirs"),
        ..world.settings(&["http://127.0.0.1:1"])
    };
    let client = Debuginfod::new(settings, |_| {});
    let symbols = world.ask(&client);
    assert_eq!(lines(&symbols, world.call), COMPLETE, "{}", symbols.report);
    let report = world.ask_for(&client, &absent).report.to_string();
    assert!(report.contains("not asked again"), "{report}");
}
