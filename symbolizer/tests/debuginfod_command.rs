//! `--debuginfod` on the command line: when nobody is asked, what is said and shown, https, and
//! Debian's own server beside elfutils' own client.

use crate::common::{stderr, stdout};
use crate::debuginfod_world::{COMPLETE, hex, world};
use crate::loopback::{Server, free_port, is_served};
use crate::resolve_fixture::lines;
use heapprof_symbolizer::resolve::{Debuginfod, DebuginfodSettings, Outcome};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A process that ends with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn nobody_is_asked_without_the_option() {
    let world = world();
    let server = Server::of(world.debug.clone());
    let env = [("DEBUGINFOD_URLS", server.url.as_str())];
    let log = world.log();
    let output = world.heapprof(&["top", &log], &env);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(server.requested_paths(), [] as [String; 0]);
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
    assert_eq!(server.requested_paths(), [world.path.as_str()]);

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
    let mut chunk = [0; 4096];
    let mut seen = Some(seen);
    while let Ok(n @ 1..) = out.read(&mut chunk) {
        screen.push_str(&String::from_utf8_lossy(&chunk[..n]));
        if screen.contains("debuginfod: program") {
            seen.take().map(|seen| seen.send(()));
        }
    }
    assert!(seen.is_none(), "progress was not shown: {screen}");
    assert!(screen.contains("program.c:3"), "{screen}");
}

/// A certificate for 127.0.0.1 that only who is told to trusts; the server is OpenSSL's, its files
/// are answers.
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
    let args = ["info", "--no-kept-names", "--debuginfod-urls", &url, &log];

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
    assert_eq!(open_to_all.requested_paths(), [] as [String; 0]);
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Debian's server over a folder with the stripped program and its debug file, and elfutils' client
/// beside ours: each finds in the cache what the other fetched, and what the other did not find.
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
    // Their client finds our fetched file and our miss in the cache, without any server.
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
