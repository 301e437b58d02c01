//! `heapprof watch` in a terminal: tmux is the terminal, and its pane is what a user sees.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use heapprof_symbolizer::{Bytes, Count};
use heapprof_tests::{Build, Finished, Run, Running, ended, samples_so_far, started};

/// The longest time for a screen to come, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(40);

/// A pane of tmux in which a shell runs `heapprof watch`, and stays when that has ended.
struct Pane {
    folder: tempfile::TempDir,
}

impl Pane {
    /// Starts `heapprof watch` with these words, in a terminal of that size.
    fn watch(words: &str, (width, height): (u16, u16)) -> Pane {
        Pane::watch_with("", words, (width, height))
    }

    /// The same, with variables (`NAME=VALUE`).
    fn watch_with(variables: &str, words: &str, (width, height): (u16, u16)) -> Pane {
        let pane = Pane {
            folder: tempfile::tempdir().unwrap(),
        };
        let script = format!(
            "cd '{folder}'\n\
             echo on the first screen\n\
             stty -a > before\n\
             {variables} sh -c 'echo $$ > pid; exec '\"'{heapprof}' watch {words}\"\n\
             echo \"status $?\"\n\
             stty -a > part; mv part after\n\
             exec sleep 1000\n",
            folder = pane.folder.path().display(),
            heapprof = Build::get().heapprof.display(),
        );
        let path = pane.file("script");
        fs::write(&path, script).unwrap();
        let size = (width.to_string(), height.to_string());
        let command = format!("sh '{}'", path.display());
        pane.tmux(&["new-session", "-d", "-x", &size.0, "-y", &size.1, &command]);
        pane
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn tmux(&self, words: &[&str]) -> String {
        let socket = self.file("socket");
        let out = Command::new("tmux")
            .args(["-f", "/dev/null", "-S"])
            .arg(&socket)
            .args(words)
            .env("LC_ALL", "C.UTF-8")
            .env_remove("TMUX")
            .env_remove("NO_COLOR")
            .output()
            .expect("tmux: scripts/install-deps installs it");
        assert!(out.status.success(), "{words:?}: {out:?}");
        String::from_utf8(out.stdout).unwrap()
    }

    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Types letters, none of which is the name of a key.
    fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen is as it should be, and drawn to its end, and returns it.
    #[track_caller]
    fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let screen = self.screen();
            std::thread::sleep(Duration::from_millis(50));
            if is_so(&screen) && self.screen() == screen {
                return screen;
            }
            assert!(began.elapsed() < PATIENCE, "no {what}:\n{screen}");
        }
    }

    #[track_caller]
    fn until_seen(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }

    /// Waits for the end, and checks that the terminal is as it was found.
    #[track_caller]
    fn has_ended(&self, status: i32) {
        let screen = self.until_seen(&format!("status {status}"));
        assert!(screen.starts_with("on the first screen"), "{screen}");
        let began = Instant::now();
        while !self.file("after").exists() && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        let settings = |name| fs::read_to_string(self.file(name)).unwrap();
        assert_eq!(settings("after"), settings("before"));
        let flags = self.tmux(&["display-message", "-p", "#{cursor_flag}#{alternate_on}"]);
        assert_eq!(flags.trim(), "10", "a cursor, and the first screen");
    }

    fn pid(&self) -> i32 {
        fs::read_to_string(self.file("pid"))
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a system call without memory; the pane's shell has not taken the process's end.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        let socket = self.file("socket");
        let server = Command::new("tmux")
            .arg("-S")
            .arg(socket)
            .arg("kill-server")
            .output();
        drop(server);
    }
}

/// The fixture while it runs, with some samples on disk.
fn grows() -> Running {
    let run = Run::fixture("grows");
    let told = run.folder().join("told");
    let mut running = started(run.arg(told).interval(1));
    running.until("samples", |running| samples_so_far(running, 2001) > 50);
    running
}

/// The lines of the table, each in words. The keys are the last line of the screen, behind empty
/// ones.
fn lines_of(screen: &str) -> Vec<Vec<&str>> {
    let lines = screen.lines().skip_while(|line| !line.contains("function"));
    lines
        .skip(1)
        .take_while(|line| !line.trim().is_empty())
        .map(|line| line.split_whitespace().collect())
        .collect()
}

#[test]
fn a_live_program_is_watched_marked_and_dumped() {
    let running = grows();
    let pane = Pane::watch(&running.pid().to_string(), (80, 24));
    let screen = pane.until("the leak, with its rate", |screen| {
        screen.contains("keeps") && !screen.contains("over the run")
    });
    assert!(
        screen.contains(&format!("grows, pid {}  running for", running.pid())),
        "{screen}"
    );
    assert!(screen.contains("every allocation recorded"), "{screen}");
    assert!(
        screen.lines().all(|line| line.chars().count() <= 80),
        "{screen}"
    );
    // It grows by some 3 MB a second; the churn allocates ten times as much. Its beginning may
    // be its set-up.
    let verdict_of_keeps = |screen: &str, verdict: &str| {
        let mut lines = lines_of(screen).into_iter();
        lines.any(|line| line.contains(&"keeps") && line.contains(&verdict))
    };
    let is_early = verdict_of_keeps(&screen, "early") && screen.contains("growth too early");
    assert!(is_early || verdict_of_keeps(&screen, "exact"), "{screen}");
    let screen = pane.until("a verdict", |screen| verdict_of_keeps(screen, "exact"));
    assert!(!screen.contains("too early"), "{screen}");
    let later = pane.until("growth", |later| {
        let all = |screen: &str| screen.lines().nth(1).map(str::to_owned);
        all(later) != all(&screen)
    });
    assert_ne!(lines_of(&later)[0][0], lines_of(&screen)[0][0]);

    // The metric, by the list of metrics.
    pane.press(&["s"]);
    pane.until_seen("┌ metric");
    pane.press(&["Down", "Down", "Enter"]);
    let screen = pane.until_seen("allocated-bytes");
    assert!(lines_of(&screen)[0].contains(&"churns"), "{screen}");
    pane.press(&["r"]);
    let screen = pane.until_seen("smallest first");
    assert!(
        lines_of(&screen).last().unwrap().contains(&"churns"),
        "{screen}"
    );
    pane.press(&["r"]);

    pane.press(&["/"]);
    pane.types("kee");
    let screen = pane.until_seen("filter kee hides");
    assert!(!screen.contains("churns"), "{screen}");
    pane.press(&["Enter", "Enter"]);
    let screen = pane.until_seen("callers of keeps");
    let lines = lines_of(&screen);
    assert!(
        lines[0].contains(&"first_way") && lines[1].contains(&"second_way"),
        "{screen}"
    );
    pane.press(&["Down", "Enter"]);
    let screen = pane.until_seen("callers of keeps ← second_way");
    assert!(lines_of(&screen)[0].contains(&"main"), "{screen}");
    pane.press(&["Tab"]);
    let screen = pane.until_seen("called by keeps");
    assert!(lines_of(&screen)[0].contains(&"malloc"), "{screen}");
    pane.press(&["Enter"]);
    pane.until_seen("(allocated here)");
    pane.press(&["Left"]);
    pane.press(&["Left"]);
    pane.until_seen("filter kee hides");
    pane.press(&["Escape"]);
    pane.until_seen("churns");

    // A paused view stays.
    pane.press(&["Space"]);
    let paused = pane.until_seen("PAUSED");
    std::thread::sleep(Duration::from_millis(2500));
    let table = |screen: &str| {
        screen
            .lines()
            .skip(1)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(table(&pane.screen()), table(&paused));
    pane.press(&["Space"]);
    pane.until("the view that goes on", |screen| {
        table(screen) != table(&paused)
    });

    // The blocks that are kept come on top of those from before.
    pane.press(&["c"]);
    let screen = pane.until_seen("▼since 0:");
    assert!(lines_of(&screen)[0].contains(&"keeps"), "{screen}");
    pane.press(&["c"]);
    pane.until_seen("growth/s");

    pane.press(&["m"]);
    pane.until_seen("name of the mark");
    pane.types("half way");
    pane.press(&["Enter"]);
    pane.until_seen("marked as \"half way\"");
    pane.until_seen("▲half way");
    pane.press(&["d"]);
    pane.until_seen(".heap");

    pane.press(&["q"]);
    pane.has_ended(0);
    let ran = ended(running);
    assert!(
        ran.log().markers().contains(&"half way"),
        "{:?}",
        ran.log().markers()
    );
    assert_eq!(ran.files_ending(".heap").len(), 1);
}

/// Each site of `heapprof top --json` has a line with the same amount, written as people read it.
fn assert_shows(screen: &str, log: &Path, metric: &str, shown: impl Fn(f64) -> String) {
    let ran = Run::heapprof()
        .args(["top", "--json", "-n", "0", "-m", metric])
        .arg(log)
        .run()
        .well();
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let sites = document["sites"].as_array().unwrap();
    let lines = lines_of(screen);
    assert!(!sites.is_empty(), "{document}");
    for (place, site) in sites.iter().enumerate() {
        let amount = match &site["self"] {
            serde_json::Value::Object(all) => all[metric].as_f64(),
            number => number.as_f64(),
        };
        let begin = format!("{} ", shown(amount.unwrap()));
        let line = lines[place].join(" ");
        assert!(
            line.starts_with(&begin),
            "{metric}, {site}: {begin:?}\n{screen}"
        );
        let function = site["function"].as_str().unwrap();
        assert!(line.contains(function), "{metric}, {function}: {line}");
    }
}

fn a_log_that_has_ended(interval: u64) -> Finished {
    let run = Run::fixture("grows");
    let told = run.folder().join("told");
    let mut running = started(run.arg(told).interval(interval));
    running.until("samples", |running| samples_so_far(running, 2001) > 100);
    ended(running)
}

#[test]
fn a_log_that_has_ended_has_the_numbers_of_top() {
    let bytes = |value: f64| Bytes(value).to_string();
    for interval in [1, 4096] {
        let ran = a_log_that_has_ended(interval);
        let log = ran.log_path();
        for (metric, shown) in [
            ("in-use-bytes", &bytes as &dyn Fn(f64) -> String),
            ("allocated-objects", &|value| {
                Count(value as u64).to_string()
            }),
            ("peak", &bytes),
        ] {
            let words = format!("-m {metric} {}", log.display());
            let pane = Pane::watch(&words, (200, 30));
            let screen = pane.until("the whole screen", |screen| {
                screen.contains("ended after") && screen.contains("? help")
            });
            assert_shows(&screen, &log, metric, shown);
            pane.press(&["m"]);
            pane.until_seen("the process has ended");
            pane.press(&["C-c"]);
            pane.has_ended(0);
        }
    }
}

#[test]
fn the_terminal_is_given_back_whatever_ends_it() {
    let ran = a_log_that_has_ended(1);
    let log = ran.log_path();
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let pane = Pane::watch(&log.display().to_string(), (100, 20));
        pane.until_seen("ended after");
        pane.signal(signal);
        pane.has_ended(0);
    }
    // The terminal goes: nobody is left to draw for.
    let pane = Pane::watch(&log.display().to_string(), (100, 20));
    pane.until_seen("ended after");
    let pid = pane.pid();
    drop(pane);
    let began = Instant::now();
    while Path::new(&format!("/proc/{pid}")).exists() {
        assert!(began.elapsed() < PATIENCE, "{pid} runs without a terminal");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Stopped and continued, as by a shell.
    let pane = Pane::watch(&log.display().to_string(), (100, 20));
    pane.until_seen("ended after");
    pane.signal(libc::SIGTSTP);
    pane.until("the first screen", |screen| {
        screen.starts_with("on the first screen")
    });
    pane.signal(libc::SIGCONT);
    pane.until_seen("ended after");
    pane.press(&["q"]);
    pane.has_ended(0);
    // The bound on memory ends it from within.
    let words = format!("--max-memory 64KiB {}", log.display());
    let pane = Pane::watch(&words, (100, 20));
    pane.has_ended(1);
    assert!(
        pane.screen().contains("this takes more than"),
        "{}",
        pane.screen()
    );
}

#[test]
fn a_terminal_that_cannot_be_drawn_on_is_refused_and_colour_is_left_out() {
    let ran = a_log_that_has_ended(1);
    let log = ran.log_path();
    let pane = Pane::watch_with("TERM=dumb", &log.display().to_string(), (100, 20));
    pane.has_ended(1);
    assert!(pane.screen().contains("heapprof top"), "{}", pane.screen());

    let has_colour = |variables: &str| {
        let pane = Pane::watch_with(variables, &log.display().to_string(), (100, 20));
        pane.until_seen("ended after");
        let styled = pane.tmux(&["capture-pane", "-p", "-e"]);
        (30..38).any(|colour| styled.contains(&format!("\u{1b}[{colour}m")))
            || styled.contains("[38;5;")
    };
    assert!(has_colour("A=1"));
    assert!(!has_colour("NO_COLOR=1"));

    // A pipe.
    let ran = Run::heapprof().arg("watch").arg(&log).run();
    assert_eq!((ran.code(), ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.contains("`heapprof top "), "{}", ran.stderr);
}

#[test]
fn what_is_no_log_and_no_process_is_named() {
    let refused = |word: &str, why: &str| {
        let ran = Run::heapprof().arg("watch").arg(word).run();
        assert_eq!(ran.code(), 1, "{word}");
        assert!(ran.stderr.contains(why), "{word}: {}", ran.stderr);
    };
    refused("4194303", "process 4194303: there is no such process");
    refused("/nonexistent.heaplog", "cannot read /nonexistent.heaplog");
    refused("/etc/passwd", "neither a heapprof log");
    refused("/", "it is a folder");
    let without = std::process::id().to_string();
    refused(&without, &format!("process {without} ("));
    assert_eq!(Run::heapprof().arg("watch").run().code(), 2);
}

#[test]
fn a_terminal_that_changes_its_size_is_filled() {
    let ran = a_log_that_has_ended(1);
    let pane = Pane::watch(&ran.log_path().display().to_string(), (80, 24));
    let screen = pane.until_seen("? help");
    assert!(!screen.contains("cum"), "{screen}");
    pane.tmux(&["resize-window", "-x", "200", "-y", "40"]);
    let screen = pane.until("a wide screen", |screen| {
        screen.contains("cum") && screen.lines().any(|line| line.chars().count() > 190)
    });
    assert!(screen.contains("grows.c:"), "{screen}");
    assert_eq!(screen.lines().count(), 40);
    pane.tmux(&["resize-window", "-x", "60", "-y", "12"]);
    let screen = pane.until("a small screen", |screen| screen.lines().count() == 12);
    assert!(
        screen.lines().all(|line| line.chars().count() <= 60),
        "{screen}"
    );
    pane.press(&["q"]);
    pane.until_seen("status 0");
}

/// A program that does nothing costs the view next to nothing.
#[test]
fn a_quiet_view_uses_next_to_no_time() {
    let ran = a_log_that_has_ended(1);
    let pane = Pane::watch(&ran.log_path().display().to_string(), (200, 40));
    pane.until_seen("ended after");
    let ticks = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pane.pid())).unwrap();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    std::thread::sleep(Duration::from_secs(1));
    let before = ticks();
    std::thread::sleep(Duration::from_secs(5));
    let used = ticks() - before;
    assert!(used <= 5, "{used} hundredths of a second in five seconds");
}

/// The names of a log outlive the rebuild of its program, in the terminal, too.
#[test]
fn a_log_has_the_names_that_were_kept() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let heapprof = |args: &[&str]| Run::heapprof().inside(folder).args(args).run().well();
    let compile = |text: &str| {
        fs::write(folder.join("app.c"), text).unwrap();
        let status = Command::new("gcc")
            .args(["-g", "-Wl,--build-id", "-o", "app", "app.c"])
            .current_dir(folder)
            .status()
            .expect("gcc; run scripts/install-deps");
        assert!(status.success());
    };
    let text = "#include <stdlib.h>\nvoid *kept;\nvoid fills(void) { kept = malloc(5000); }\n\
                int main(void) { fills(); return 0; }\n";
    compile(text);
    heapprof(&["run", "-q", "-i", "1", "-o", "a", "--", "./app"]);
    compile(&format!("int first(void) {{ return 7; }}\n{text}"));
    let log = folder.join("a.heaplog");
    let pane = Pane::watch(&log.display().to_string(), (120, 24));
    pane.until_seen("fills");
    pane.press(&["q"]);
    pane.has_ended(0);
    let pane = Pane::watch(&format!("--no-kept-names {}", log.display()), (120, 24));
    let screen = pane.until_seen("[app+0x");
    assert!(!screen.contains("fills"), "{screen}");
    pane.press(&["q"]);
    pane.has_ended(0);
}
