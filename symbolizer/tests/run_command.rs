//! `heapprof run`: what it refuses, what it warns of, and that exit status, signals and output are
//! the program's own. A harmless library stands in for libheapprof.so; the real one is tested by
//! the end-to-end tests.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{stderr, stdout};

/// A folder with an empty shared library in it.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    gcc(
        &["-shared", "-fPIC", "-x", "c", "/dev/null", "-o"],
        &folder.path().join("libheapprof.so"),
    );
    folder
}

fn gcc(args: &[&str], out: &Path) {
    let status = Command::new("gcc")
        .args(args)
        .arg(out)
        .status()
        .expect("gcc; run scripts/install-deps");
    assert!(status.success());
}

fn program(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let file = folder.join(format!("{name}.c"));
    fs::write(&file, source).unwrap();
    let path = folder.join(name);
    let mut args: Vec<&str> = flags.to_vec();
    let file = file.display().to_string();
    args.extend([file.as_str(), "-o"]);
    gcc(&args, &path);
    path
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heapprof"));
    command
        .env("HEAPPROF_LIBRARY", folder.join("libheapprof.so"))
        .env_remove("LD_PRELOAD")
        .env_remove("HEAPPROFILE")
        .current_dir(folder)
        .arg("run")
        .args(args);
    command
}

fn run(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

/// Expects status 1 and a message with these words, and that the program did not run.
fn refused(folder: &Path, program: &Path, words: &[&str]) {
    let output = run(folder, &["--", &program.display().to_string()]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stdout.is_empty(), "it ran");
    for word in words {
        assert!(said.contains(word), "`{word}` is not in: {said}");
    }
}

const HELLO: &str = "#include <stdio.h>\nint main(void) { puts(\"ran\"); return 0; }";

/// The loader is told what an allocator needs under an auditor, beside what it is told already;
/// without one it is told nothing.
#[test]
fn the_loader_leaves_room_under_an_auditor() {
    let folder = folder();
    let room = "glibc.rtld.optional_static_tls";
    let check = "glibc.malloc.check=0";
    for (auditor, before, expected) in [
        ("", None, "\n".to_owned()),
        ("", Some(check), format!("{check}\n")),
        ("none.so", None, format!("{room}=4096\n")),
        ("none.so", Some(check), format!("{check}:{room}=4096\n")),
        (
            "none.so",
            Some(&*format!("{room}=99")),
            format!("{room}=99\n"),
        ),
    ] {
        let mut command = command(
            folder.path(),
            &["--", "sh", "-c", "echo \"$GLIBC_TUNABLES\""],
        );
        command
            .env_remove("GLIBC_TUNABLES")
            .env("LD_AUDIT", auditor);
        if let Some(before) = before {
            command.env("GLIBC_TUNABLES", before);
        }
        assert_eq!(stdout(&command.output().unwrap()), expected, "{auditor}");
    }
}

#[test]
fn output_and_exit_status_are_the_programs() {
    let folder = folder();
    for code in [0, 1, 3, 255] {
        let output = run(
            folder.path(),
            &[
                "-q",
                "--",
                "sh",
                "-c",
                &format!("echo out; echo err >&2; exit {code}"),
            ],
        );
        assert_eq!(output.status.code(), Some(code));
        assert_eq!(
            (stdout(&output).as_str(), stderr(&output).as_str()),
            ("out\n", "err\n")
        );
    }
}

#[test]
fn a_death_by_signal_is_passed_on() {
    let folder = folder();
    for signal in [
        libc::SIGKILL,
        libc::SIGTERM,
        libc::SIGSEGV,
        libc::SIGPIPE,
        libc::SIGUSR1,
    ] {
        let output = run(
            folder.path(),
            &["-q", "--", "sh", "-c", &format!("kill -{signal} $$")],
        );
        assert_eq!(output.status.signal(), Some(signal));
    }
}

#[test]
fn signals_reach_the_program_once() {
    let folder = folder();
    for (signal, name) in [
        (libc::SIGINT, "INT"),
        (libc::SIGTERM, "TERM"),
        (libc::SIGHUP, "HUP"),
        (libc::SIGQUIT, "QUIT"),
        (libc::SIGUSR1, "USR1"),
        (libc::SIGUSR2, "USR2"),
    ] {
        // The shell runs the trap when its `sleep` ends. A second signal has time to come.
        let script = format!(
            "n=0; i=0; trap 'echo got {name}; n=$((n+1))' {name}; echo ready; \
                              while [ $n = 0 ] && [ $i -lt 200 ]; do sleep 0.05; i=$((i+1)); done; \
                              for i in 1 2 3 4; do sleep 0.05; done; exit $n"
        );
        let mut run = command(folder.path(), &["-q", "--", "sh", "-c", &script]);
        // Tests that a shell runs in the background ignore some signals, and a shell cannot trap
        // a signal that is ignored at its start.
        // SAFETY: signal(2) may be called between fork and exec.
        unsafe {
            run.pre_exec(move || {
                libc::signal(signal, libc::SIG_DFL);
                Ok(())
            });
        }
        let mut child = run.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map(Result::unwrap);
        assert_eq!(lines.next().as_deref(), Some("ready"));
        // SAFETY: no memory is involved; the process is our child and not yet reaped.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        assert_eq!(lines.collect::<Vec<_>>(), [format!("got {name}")]);
        assert_eq!(child.wait().unwrap().code(), Some(1), "{name}");
    }
}

#[test]
fn a_program_that_is_missing_or_cannot_run_is_said_as_shells_say_it() {
    let folder = folder();
    fs::write(folder.path().join("data"), "x").unwrap();
    for (name, code, words) in [
        ("no-such-program", 127, "no such program"),
        ("./no-such-program", 127, "no such program"),
        ("./data", 126, "not executable"),
        (".", 127, "no such program"),
        ("./", 126, "is a folder"),
    ] {
        let output = run(folder.path(), &["--", name]);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{name}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(words),
            "{name}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn static_programs_are_refused() {
    let folder = folder();
    for (name, flags) in [
        ("static", vec!["-static"]),
        ("static-pie", vec!["-static-pie"]),
    ] {
        let path = program(folder.path(), name, HELLO, &flags);
        refused(folder.path(), &path, &["static executable", name]);
    }
}

#[test]
fn programs_of_another_processor_are_refused() {
    let folder = folder();
    let path = program(folder.path(), "hello", HELLO, &[]);
    let bytes = fs::read(&path).unwrap();
    let mut arm = bytes.clone();
    arm[18..20].copy_from_slice(&183u16.to_le_bytes());
    let mut small = bytes;
    small[4] = 1;
    for (name, bytes) in [("arm", arm), ("small", small)] {
        let path = executable(folder.path(), name, &bytes);
        refused(folder.path(), &path, &["64-bit x86"]);
    }
}

fn executable(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A library is known by the word that it asks of its libc's loader; a program by its loader.
#[test]
fn a_library_for_another_libc_is_refused() {
    let folder = folder();
    let of_glibc = program(folder.path(), "hello", HELLO, &[]);
    let bytes = fs::read(&of_glibc).unwrap();
    let loader = b"/lib64/ld-linux-x86-64.so.2";
    let at = bytes
        .windows(loader.len())
        .position(|w| w == loader)
        .unwrap();
    let mut musl = bytes;
    musl[at..at + loader.len()].copy_from_slice(b"/lib/ld-musl-x86_64.so.1\0\0\0");
    let of_musl = executable(folder.path(), "musl", &musl);
    for (word, program, libc) in [
        ("_r_debug", &of_musl, "musl"),
        ("_dl_debug_addr", &of_glibc, "glibc"),
    ] {
        let source = folder.path().join("asks.c");
        fs::write(
            &source,
            format!("extern int {word}; int *asks(void) {{ return &{word}; }}"),
        )
        .unwrap();
        let source = source.display().to_string();
        let library = folder.path().join("libheapprof.so");
        gcc(&["-shared", "-fPIC", &source, "-o"], &library);
        let said = format!("another C library than {libc}");
        refused(folder.path(), program, &[&said, "HEAPPROF_LIBRARY"]);
    }
}

#[test]
fn programs_that_gain_privileges_are_refused() {
    let folder = folder();
    // SAFETY: this call cannot fail and touches no memory.
    let path = if unsafe { libc::geteuid() } == 0 {
        let path = program(folder.path(), "hello", HELLO, &[]);
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
        path
    } else {
        PathBuf::from("/usr/bin/passwd") // root's, and setuid on every Debian
    };
    refused(folder.path(), &path, &["gains privileges", "LD_PRELOAD"]);
}

#[test]
fn a_program_with_its_own_allocator_is_warned_of_and_run() {
    let folder = folder();
    let sources = [
        (
            "malloc",
            "#include <stddef.h>\nvoid *malloc(size_t n) { (void)n; return 0; }\nint main(void) { return 7; }",
        ),
        (
            "_rjem_malloc",
            "void *_rjem_malloc(unsigned long n) { (void)n; return 0; }\nint main(void) { return 7; }",
        ),
    ];
    for (symbol, source, taps, is_warned) in [
        (sources[0].0, sources[0].1, "0", true),
        (sources[1].0, sources[1].1, "0", true),
        // The library taps it, or says itself why not.
        (sources[0].0, sources[0].1, "1", false),
        (
            "rpmalloc",
            "void *rpmalloc(unsigned long n) { (void)n; return 0; }\nint main(void) { return 7; }",
            "1",
            true,
        ),
    ] {
        let path = program(
            folder.path(),
            &format!("own{symbol}{taps}"),
            source,
            &["-fno-builtin"],
        );
        let output = command(folder.path(), &["--", &path.display().to_string()])
            .env("HEAPPROF_TAP", taps)
            .output()
            .unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(7), "{said}");
        let warns = said.contains("warning") && said.contains(&format!("({symbol})"));
        assert_eq!(warns, is_warned, "{said}");
    }
    let output = run(folder.path(), &["--", "/bin/true"]);
    assert!(!stderr(&output).contains("warning"), "{}", stderr(&output));
}

#[test]
fn the_settings_reach_the_program() {
    let folder = folder();
    let script = "echo $LD_PRELOAD; echo $HEAPPROF_SAMPLE_INTERVAL $HEAPPROFILE $HEAPPROF_VERBOSE";
    let output = command(
        folder.path(),
        &[
            "-q", "-v", "-i", "64K", "-o", "/tmp/p", "--", "sh", "-c", script,
        ],
    )
    .env("LD_PRELOAD", "/lib/x86_64-linux-gnu/libm.so.6")
    .output()
    .unwrap();
    let library = folder.path().join("libheapprof.so").canonicalize().unwrap();
    let expected = format!(
        "{}:/lib/x86_64-linux-gnu/libm.so.6\n65536 /tmp/p 1\n",
        library.display()
    );
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
}

/// Expects that no program ran, since no log can be made in the folder.
fn refused_for_its_folder(command: &mut Command, words: &[&str]) {
    let output = command.output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stdout.is_empty(), "it ran");
    for word in words {
        assert!(said.contains(word), "`{word}` is not in: {said}");
    }
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!said.contains("trial"), "{said}");
}

#[test]
fn a_program_does_not_run_where_no_log_can_be_made() {
    let folder = folder();
    let missing = [
        "folder ./none/",
        "make the folder",
        "-o FOLDER/NAME",
        "o such file",
    ];
    for prefix in ["./none/x", "./none/"] {
        refused_for_its_folder(
            &mut command(folder.path(), &["-o", prefix, "--", "echo"]),
            &missing,
        );
    }
    let mut set = command(folder.path(), &["--", "echo"]);
    refused_for_its_folder(set.env("HEAPPROFILE", "./none/x"), &missing);
    let file = folder.path().join("libheapprof.so/x").display().to_string();
    let no_folder = ["libheapprof.so/", "ot a directory"];
    refused_for_its_folder(
        &mut command(folder.path(), &["-o", &file, "--", "echo"]),
        &no_folder,
    );
    // Not even root makes a file there.
    refused_for_its_folder(
        &mut command(folder.path(), &["-o", "/proc/x", "--", "echo"]),
        &["/proc/"],
    );
    refused_for_its_folder(
        command(folder.path(), &["--", "echo"]).current_dir("/proc"),
        &["folder ."],
    );
    let long = "x".repeat(300);
    refused_for_its_folder(
        &mut command(folder.path(), &["-o", &long, "--", "echo"]),
        &["too long"],
    );
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "a file is left"
    );
}

#[test]
fn a_folder_is_given_with_or_without_a_slash() {
    let folder = folder();
    fs::create_dir(folder.path().join("logs")).unwrap();
    for (given, expected) in [("logs", "logs/"), ("logs/", "logs/"), (".", "./")] {
        let output = run(
            folder.path(),
            &["-q", "-o", given, "--", "sh", "-c", "echo $HEAPPROFILE"],
        );
        assert_eq!(
            stdout(&output),
            format!("{expected}\n"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn a_missing_library_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["--", "true"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("HEAPPROF_LIBRARY"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_run_without_a_log_says_so() {
    let folder = folder();
    let output = run(folder.path(), &["--", "true"]);
    assert!(output.status.success());
    assert!(
        stderr(&output).contains("no log was written"),
        "{}",
        stderr(&output)
    );
}

/// A log that is there but of another process is not this run's.
#[test]
fn another_processs_log_is_not_taken_for_this_runs() {
    let folder = folder();
    fs::write(folder.path().join("made"), crate::common::server_log(4096)).unwrap();
    let script = "cp made out.heaplog; : > out.0001.heap";
    let output = run(folder.path(), &["-o", "out", "--", "sh", "-c", script]);
    assert!(
        stderr(&output).contains("no log was written"),
        "{}",
        stderr(&output)
    );
}

/// The test writes the log that the library would: the program tells it its number and waits.
#[test]
fn the_summary_names_the_files_and_the_largest_sites() {
    let folder = folder();
    let script = [
        "-i",
        "1",
        "-o",
        "out",
        "--",
        "sh",
        "-c",
        "echo $$; read line; exit 4",
    ];
    let mut child = command(folder.path(), &script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let pid = lines.next().unwrap().parse().unwrap();

    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let mut log = crate::common::LogBuilder::new(1);
    log.start_of("/bin/server", pid, now.as_nanos() as u64);
    log.module("/bin/server", 0x1000, 0x8000);
    for i in 0..7 {
        let stack = log.stack(&[0x1000, 0x2001 + i]);
        log.alloc(stack, 4096 << i);
    }
    crate::common::write(folder.path(), "out.heaplog", &log.end());
    crate::common::write(folder.path(), "out.0001.heap", b"");
    drop(child.stdin.take());

    let output = child.wait_with_output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(
        said.contains("total: in use 7 objects, 520192 bytes; allocated 7 objects, 520192 bytes"),
        "{said}"
    );
    assert!(
        said.contains("[server+0x1006]") && said.contains("[server+0x1002]"),
        "{said}"
    );
    assert!(!said.contains("[server+0x1001]"), "only five: {said}");
    assert!(
        said.contains("log: out.heaplog") || said.contains("log: ./out.heaplog"),
        "{said}"
    );
    assert!(said.contains("out.0001.heap"), "{said}");
}

/// A shell that starts a program with more memory, and itself becomes a small one: the summary and
/// the next commands are of the program with the highest peak.
#[test]
fn the_summary_is_of_the_process_that_held_most() {
    let folder = folder();
    let script = ["-o", "out", "--", "sh", "-c", "echo $$; read line"];
    let mut child = command(folder.path(), &script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let pid: u32 = lines.next().unwrap().parse().unwrap();
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    for (name, program, pid, size, freed) in [
        ("out_1.small", "/bin/small", pid, 3000, 0),
        ("out_7.python", "/bin/python", 7, 2000, 9_000_000),
        ("out_8.sed", "/bin/sed", 8, 4000, 0),
    ] {
        let mut log = crate::common::LogBuilder::new(1);
        log.start_of(program, pid, now.as_nanos() as u64 + u64::from(pid));
        log.module(program, 0x1000, 0x8000);
        let stack = log.stack(&[0x1000 + size]);
        log.alloc(stack, size);
        if freed > 0 {
            let id = log.alloc(stack, freed);
            log.free(id);
        }
        crate::common::write(folder.path(), &format!("{name}.heaplog"), &log.end());
    }
    drop(child.stdin.take());
    let said = stderr(&child.wait_with_output().unwrap());
    let place = |words: &str| {
        said.find(words)
            .unwrap_or_else(|| panic!("{words}: {said}"))
    };
    assert!(place("highest peak is python, pid 7: 8.6 MiB") < place("Its five sites"));
    let of_all = place("All processes together: the five sites");
    let own = &said[place("Its five sites")..of_all];
    assert!(own.contains("+0x7d0]") && !own.contains("+0xfa0]"), "{own}");
    assert!(own.contains("100.0%"), "{own}");
    assert!(said[of_all..].contains("+0xfa0]"), "{said}");
    place("heapprof: log: ./out_1.small.heaplog");
    place("log of the process with the highest peak: ./out_7.python.heaplog");
    place("next: heapprof explain ./out_7.python.heaplog; heapprof top ./out_7.python.heaplog;");
    place("together: heapprof report ./out_1.small.heaplog ./out_7.python.heaplog ./out_8.sed");
}

/// The test writes the logs and dumps that a program, what it was before, and its children leave.
#[test]
fn all_files_are_named_in_json_and_logs_without_a_sample_go() {
    let folder = folder();
    let script = ["-q", "-o", "out", "--print-log=json", "--", "sh", "-c"];
    let mut child = command(folder.path(), &script)
        .arg("echo $$; read line; exit 4")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let pid: u32 = lines.next().unwrap().parse().unwrap();
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    for (name, program, pid, after_ns, is_sampled) in [
        ("out", "/bin/env", pid, 0, true),
        ("out_1", "/bin/server", pid, 1, true),
        ("out_7.worker", "/bin/worker", 7, 2, true),
        ("out_8.sed", "/bin/sed", 8, 3, false),
    ] {
        let mut log = crate::common::LogBuilder::new(4096);
        log.start_of(program, pid, now.as_nanos() as u64 + after_ns);
        log.module(program, 0x1000, 0x8000);
        if is_sampled {
            let stack = log.stack(&[0x1000]);
            log.alloc(stack, 100);
        }
        crate::common::write(folder.path(), &format!("{name}.heaplog"), &log.end());
        crate::common::write(folder.path(), &format!("{name}.0001.heap"), b"");
    }
    drop(child.stdin.take());
    let document: serde_json::Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(4));
    assert_eq!(document["status"], 4);
    assert_eq!(document["log"], "./out_1.heaplog");
    assert_eq!(document["before"][0]["program"], "env");
    assert_eq!(
        document["processes"][1]["dumps"][0],
        "./out_7.worker.0001.heap"
    );
    assert_eq!(document["unsampled"][0]["program"], "sed");
    crate::json_documents::are_documented_but(
        "heapprof run --print-log=json",
        &[document],
        &["caveats"],
    );
    let left = |name: &str| folder.path().join(name).exists();
    assert!(left("out_7.worker.heaplog") && left("out_7.worker.0001.heap"));
    assert!(!left("out_8.sed.heaplog") && !left("out_8.sed.0001.heap"));
}
