//! `heapprof serve` on programs that run: found by their process id and in folders, controlled by
//! the page's commands, with children that come and go.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use heapprof_tests::{
    Run, Running, ctl_output, ended, samples_so_far, service, started, writer_of,
};
use serde_json::Value;

const TOKEN: &str = "a-token-of-the-tests";

/// A server, and its address.
struct Server {
    running: Running,
    address: String,
}

impl Server {
    fn of(sources: &[&str]) -> Server {
        let mut running = Run::heapprof()
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(sources)
            .env("HEAPPROF_SERVE_TOKEN", TOKEN)
            .start();
        running.until("its address", |running| {
            running.stderr_so_far().contains('\n')
        });
        let said = running.stderr_so_far();
        let address = said.split("http://").nth(1).expect("an address");
        let address = address.split('/').next().expect("an address").to_owned();
        Server { running, address }
    }

    /// The status and the text of an answer.
    fn ask(&self, method: &str, target: &str, body: &str, token: bool) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).expect("a server");
        let authorization = match token {
            true => format!("Authorization: Bearer {TOKEN}\r\n"),
            false => String::new(),
        };
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\n{authorization}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).expect("a status");
        (status.parse().expect("a number"), body.to_owned())
    }

    fn processes(&self) -> Vec<Value> {
        let (_, text) = self.ask("GET", "/processes", "", false);
        let document: Value = serde_json::from_str(&text).expect("JSON");
        document["processes"].as_array().expect("a list").clone()
    }

    /// Waits until the list of processes is so.
    #[track_caller]
    fn until(&self, what: &str, is_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let until = Instant::now() + Duration::from_secs(40);
        loop {
            let processes = self.processes();
            if is_so(&processes) {
                return processes;
            }
            assert!(Instant::now() < until, "no {what} in {processes:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Presses a button of the page.
    fn press(&self, id: &str, command: &str) -> (u16, String) {
        let body = format!("command={}", command.replace(' ', "+"));
        self.ask("POST", &format!("/process/{id}/control"), &body, true)
    }
}

#[test]
fn the_buttons_control_the_program_whose_log_it_is() {
    let mut running = started(service("steady").interval(1));
    let pid = running.pid();
    running.until("a writer", |running| writer_of(running.pid()).is_some());
    // By its number: it has one log.
    let server = Server::of(&[&pid.to_string()]);
    let found = server.until("process", |all| all.len() == 1 && all[0]["pid"] == pid);
    let id = found[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(found[0]["state"], "running");
    assert!(found[0]["resident_bytes"].as_u64() > Some(1 << 20));

    let (status, said) = server.press(&id, "stop");
    assert_eq!(status, 200, "{said}");
    assert!(ctl_output(pid, &["status"]).contains("state: stopped"));
    assert_eq!(
        server.press(&id, "start"),
        (200, "recording, every allocation\n".into())
    );
    let (_, said) = server.press(&id, "interval 64KiB");
    assert!(said.contains("65536"), "{said}");
    assert!(ctl_output(pid, &["status"]).contains("one sample every 65536 bytes"));
    let (_, said) = server.press(&id, "mark a deploy");
    assert!(said.contains("a deploy"), "{said}");
    let (_, dump) = server.press(&id, "dump from the page");
    let text = fs::read_to_string(dump.trim_end()).expect("a dump");
    assert!(text.contains("reason: from the page"), "{text}");

    // Without the token, and what is no command, does nothing.
    let target = format!("/process/{id}/control");
    assert_eq!(server.ask("POST", &target, "command=stop", false).0, 401);
    for (senseless, why) in [
        ("kill", "command is one of"),
        ("", "command is one of"),
        ("stop\n", "one line"),
        ("interval", "an interval needs a number"),
        ("mark", "a marker needs a name"),
        ("mark  ", "a marker needs a name"),
    ] {
        let (status, said) = server.press(&id, senseless);
        assert_eq!(status, 400, "{senseless:?}: {said}");
        assert!(said.contains(why), "{senseless:?}: {said}");
    }
    assert!(!ctl_output(pid, &["status"]).contains("state: stopped"));
    let folder = running.folder().to_owned();
    let ran = ended(running);
    assert_eq!(ran.log().markers(), ["a deploy", "dump: from the page"]);
    server.until("end", |all| all[0]["state"] == "ended");
    let (status, said) = server.press(&id, "stop");
    assert_eq!(status, 409, "{said}");
    drop(folder);
}

/// A log of another process that has the number by now is not this program's.
#[test]
fn the_buttons_reach_no_other_program() {
    let mut running = started(service("idle").interval(1));
    running.until("a sample", |running| samples_so_far(running, 23002) == 1);
    let other = tempfile::tempdir().expect("a folder");
    let log = fs::read_dir(running.folder()).expect("a folder").flatten();
    let log = log.map(|entry| entry.path());
    let log = log
        .into_iter()
        .find(|path| path.extension().is_some_and(|it| it == "heaplog"));
    fs::copy(log.expect("a log"), other.path().join("copy.heaplog")).expect("copied");
    let server = Server::of(&[other.path().to_str().expect("a name")]);
    let found = server.until("process", |all| all.len() == 1 && all[0]["pid"] != 0);
    let id = found[0]["id"].as_str().expect("an id");
    let (status, said) = server.press(id, "stop");
    assert_eq!(status, 409, "{said}");
    assert!(said.contains("writes another log here"), "{said}");
    assert!(!ctl_output(running.pid(), &["status"]).contains("state: stopped"));
    ended(running);
}

#[test]
fn children_and_ends_are_seen_in_a_folder() {
    let mut running = started(service("fork").interval(1));
    running.until("a sample", |running| samples_so_far(running, 23002) >= 1);
    let folder = running.folder().to_str().expect("a name").to_owned();
    let server = Server::of(&[&folder]);
    let found = server.until("two processes", |all| {
        all.len() == 2
            && all
                .iter()
                .all(|it| it["in_use_bytes"].as_u64() >= Some(23002))
    });
    let child = found.iter().find(|it| it["forked_from"] == running.pid());
    assert!(child.is_some(), "{found:?}");
    ended(running);
    server.until("two ends", |all| {
        all.iter().all(|it| it["state"] == "ended")
    });
    // It ends cleanly when it is asked to.
    server.running.signal(libc::SIGTERM);
    assert_eq!(server.running.wait().well().stdout, "");
}
