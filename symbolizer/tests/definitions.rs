//! Help, manual pages and completions come from the same definitions: every command and every
//! option that the help speaks of is in the page and in each shell's script, and the shells take
//! their scripts.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use heapprof_format::Record;

use crate::common::{LogBuilder, heapprof, stderr, stdout, write};

/// The first words of the lines under a heading of the help, as it indents them.
fn listed(help: &str, heading: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != heading).skip(1);
    lines
        .take_while(|line| line.is_empty() || line.starts_with("  "))
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .map(String::from)
        .collect()
}

/// The long options that a help text defines: `--cum`, or `-n, --number <N>` at the beginning of a
/// line.
fn options(help: &str) -> BTreeSet<String> {
    let option = |line: &str| -> Option<String> {
        let line = line.trim_start();
        let long = match line.split_once(", ") {
            Some((short, long)) if short.len() == 2 && short.starts_with('-') => long,
            _ => line,
        };
        let name = long.strip_prefix("--")?;
        let end = name.find(|c: char| !(c.is_alphanumeric() || c == '-'));
        Some(format!("--{}", &name[..end.unwrap_or(name.len())]))
    };
    help.lines().filter_map(option).collect()
}

fn ran(args: &[&str]) -> String {
    let output = heapprof(args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    assert_eq!(stderr(&output), "", "{args:?}");
    stdout(&output)
}

/// All commands with the long options of each.
fn commands() -> Vec<(String, BTreeSet<String>)> {
    let help = ran(&["--help"]);
    let mut names = listed(&help, "Commands:");
    names.retain(|name| name != "help");
    assert!(names.len() >= 12, "{help}");
    let with_options = |name: String| {
        let options = options(&ran(&[&name, "--help"]));
        assert!(options.contains("--help"), "{name}: {options:?}");
        (name, options)
    };
    names.into_iter().map(with_options).collect()
}

/// The words of a manual page: roff writes `\-` for a dash and marks fonts with `\fB`.
fn words(page: &str) -> BTreeSet<String> {
    let plain = page
        .replace("\\-", "-")
        .replace("\\fB", " ")
        .replace("\\fI", " ")
        .replace("\\fR", " ");
    let is_word = |c: char| c.is_alphanumeric() || c == '-';
    plain.split(|c| !is_word(c)).map(String::from).collect()
}

#[test]
fn options_are_told_from_what_is_said_about_them() {
    let help = "Options:\n  -n, --number <N>\n          How many; with --other, too\n          - x: of -y, --z\n\n      --cum\n  -h, --help\n";
    let expected = ["--number", "--cum", "--help"].map(String::from);
    assert_eq!(options(help), expected.into());
}

#[test]
fn every_command_and_option_has_its_place_in_the_manual() {
    let overview = words(&ran(&["man"]));
    for (command, options) in commands() {
        assert!(
            overview.contains(&format!("heapprof-{command}")),
            "{command} is not in heapprof(1)"
        );
        let page = ran(&["man", &command]);
        assert!(page.contains(".TH heapprof-"), "{command}: {page:.200}");
        let words = words(&page);
        for option in &options {
            assert!(
                words.contains(option),
                "{option} is not in heapprof-{command}(1)"
            );
        }
    }
    let unknown = heapprof(&["man", "nonsense"]);
    assert!(!unknown.status.success() && stderr(&unknown).contains("nonsense"));
}

/// Returns a shell's verdict on a script that it only checks. `None`: there is no such shell.
fn checked(shell: &str, script: &str) -> Option<Result<(), String>> {
    let child = Command::new(shell)
        .arg("-n")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.ok()?;
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(script.as_bytes()).expect("it reads all");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    Some(match output.status.success() && output.stderr.is_empty() {
        true => Ok(()),
        false => Err(stderr(&output)),
    })
}

#[test]
fn every_shell_takes_its_completions_and_finds_every_option_in_them() {
    let commands = commands();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = ran(&["completions", shell]);
        for (command, options) in &commands {
            assert!(script.contains(command.as_str()), "{shell}: {command}");
            for option in options {
                // fish writes `-l option`, elvish and powershell `--option`, bash and zsh both.
                let plain = option.trim_start_matches('-');
                let found =
                    script.contains(option.as_str()) || script.contains(&format!("-l {plain}"));
                assert!(found, "{shell}: {option} of {command}");
            }
        }
        if ["bash", "zsh", "fish"].contains(&shell) {
            let verdict = checked(shell, &script)
                .unwrap_or_else(|| panic!("no {shell} here; run scripts/install-deps"));
            assert_eq!(verdict, Ok(()), "{shell}");
            // And the check is one: a script that is cut off is not taken.
            let cut = &script[..script.len() / 2];
            let broken = format!("{cut}\n}} fi done ) end end\n");
            assert!(
                checked(shell, &broken).expect("a shell").is_err(),
                "{shell}"
            );
        }
    }
}

/// bash itself, asked what could come next. `heapprof` is the one that is tested.
fn bash_offers(words: &[&str]) -> Vec<String> {
    let script = ran(&["completions", "bash"]);
    let last = words.len() - 1;
    let previous = words[last - 1];
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let program = format!(
        "{script}\nCOMP_WORDS=({})\nCOMP_CWORD={last}\n_heapprof heapprof '{}' '{previous}'\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        quoted.join(" "),
        words[last],
    );
    let binary = Path::new(env!("CARGO_BIN_EXE_heapprof"));
    let folder = binary.parent().expect("a folder").display();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let output = Command::new("bash")
        .args(["--norc", "-c", &program])
        .env("PATH", path)
        .output()
        .expect("bash runs");
    assert_eq!(stderr(&output), "");
    stdout(&output).lines().map(String::from).collect()
}

#[test]
fn bash_completes_commands_options_and_values() {
    assert_eq!(bash_offers(&["heapprof", "expo"]), ["export"]);
    assert_eq!(bash_offers(&["heapprof", "top", "--foc"]), ["--focus"]);
    let groups = bash_offers(&["heapprof", "top", "--by", ""]);
    for group in [
        "function", "line", "file", "module", "crate", "thread", "size", "type",
    ] {
        assert!(groups.iter().any(|g| g == group), "{group} in {groups:?}");
    }
    assert_eq!(
        bash_offers(&["heapprof", "export", "--format", "dh"]),
        ["dhat"]
    );
    // Files are bash's own.
    assert_eq!(bash_offers(&["heapprof", "top", ""]), [""]);
}

#[test]
fn bash_completes_moments_and_runs_nothing_in_their_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut log = LogBuilder::new(1);
    let stack = log.stack(&[0x10]);
    log.alloc(stack, 100);
    for name in ["import", "$(touch pwned) `touch pwned`", "peak hour"] {
        log.record(|time_ns| Record::Marker {
            time_ns,
            name: name.into(),
        });
    }
    let log = write(folder.path(), "a.heaplog", &log.end());
    let log = log.to_str().expect("a path");
    let all = bash_offers(&["heapprof", "top", log, "--at", ""]);
    let quoted = r"\$\(touch\ pwned\)\ \`touch\ pwned\`";
    let expected = [
        "start",
        "end",
        "peak",
        r"50%",
        "import",
        quoted,
        r"peak\ hour",
    ];
    assert_eq!(all, expected);
    assert_eq!(
        bash_offers(&["heapprof", "diff", "--at", "1s", "--at", "pea"]),
        ["peak"]
    );
    assert!(!Path::new("pwned").exists());
}

#[test]
fn processes_with_the_library_are_offered() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = write(folder.path(), "libheapprof.so", b"no library, but named so");
    let mut child = Command::new("python3")
        .args(["-c", MAPS, library.to_str().expect("a path")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let mut said = [0];
    let out = child.stdout.as_mut().expect("a pipe");
    std::io::Read::read_exact(out, &mut said).expect("it has mapped the file");
    let pid = child.id().to_string();
    let is_offered = |words: &[&str]| bash_offers(words).contains(&pid);
    assert!(is_offered(&["heapprof", "ctl", ""]));
    assert!(is_offered(&["heapprof", "watch", ""]));
    assert!(is_offered(&["heapprof", "attach", ""]));
    assert!(!is_offered(&["heapprof", "top", ""]));
    assert!(!is_offered(&["heapprof", "ctl", &pid, ""]));
    let own = std::process::id().to_string();
    assert!(!bash_offers(&["heapprof", "ctl", ""]).contains(&own));
    assert!(bash_offers(&["heapprof", "attach", ""]).contains(&own));
    drop(child.stdin.take());
    child.wait().expect("it ends");
}

/// Maps the file that is named, says so, and waits for the end of its input.
const MAPS: &str = "\
import mmap, sys
file = open(sys.argv[1], 'rb')
kept = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
sys.stdout.write('.')
sys.stdout.flush()
sys.stdin.read()
";

#[test]
fn every_page_has_examples_other_pages_and_the_values_of_options() {
    let mut pages = vec![ran(&["man"]), ran(&["man", "libheapprof"])];
    pages.extend(commands().iter().map(|(command, _)| ran(&["man", command])));
    for page in &pages {
        let head = page.lines().find(|line| line.starts_with(".TH"));
        for section in [".SH EXAMPLES\n", ".SH \"SEE ALSO\"\n"] {
            assert_eq!(page.matches(section).count(), 1, "{head:?}: {section}");
        }
    }
    let top = ran(&["man", "top"]);
    let synopsis = top.split(".SH ").find(|part| part.starts_with("SYNOPSIS"));
    let synopsis = synopsis.expect("a synopsis");
    for part in [
        r"\fB\-n\fR|\fB\-\-number\fR \fIN\fR]",
        r"\fB\-\-at\fR \fIMOMENT\fR]",
        r"[\fB\-\-cum\fR]",
        r"\fIFILE\fR",
    ] {
        assert!(synopsis.contains(part), "{part}: {synopsis}");
    }
}

#[test]
fn a_page_that_another_names_can_be_asked_for() {
    for page in [ran(&["man"]), ran(&["man", "ctl"])] {
        let words = words(&page);
        let pages = words.iter().filter(|word| word.starts_with("heapprof-"));
        for name in pages {
            let command: Vec<&str> = name.split('-').skip(1).collect();
            let page = ran(&[&["man"], &command[..]].concat());
            assert!(page.contains(&format!(".TH {name} ")), "{name}");
        }
    }
}
