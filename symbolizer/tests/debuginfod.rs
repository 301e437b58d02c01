//! Names from debuginfod servers: what is fetched, kept and refused, and servers that do what they
//! can to hang, fill or deceive us.

use crate::debuginfod_world::{COMPLETE, World, hex, world};
use crate::loopback::{Server, free_port, status};
use crate::resolve_fixture::{C_INLINES, Fixture, installed, lines};
use heapprof_symbolizer::resolve::{
    Debuginfod, DebuginfodSettings, FetchAccount, Identity, ModuleRef, Role, SearchPath,
    resolve_module,
};
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

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
    assert_eq!(server.requested_paths(), [world.path.as_str()]);
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
    assert_eq!(server.requested_paths().len(), 2, "each server once");

    let symbols = world.ask(&world.client(&[&server.url]));
    let report = symbols.report.to_string();
    assert!(report.contains("not asked again"), "{report}");
    assert_eq!(server.requested_paths().len(), 2);
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
    assert_eq!(
        (failing.requested_paths().len(), client.account().failed),
        (1, 1)
    );
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
    assert!(
        looping.requested_paths().len() < 10,
        "{:?}",
        looping.requested_paths()
    );

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
            assert!(
                server.requested_paths().len() <= 1,
                "{what}: {:?}",
                server.requested_paths()
            );
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
    assert_eq!(server.requested_paths(), [] as [String; 0]);
}
