//! The files, links, settings, exports and commands that documents name exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use heapprof_tests::{Build, repository};

/// Returns the contents of all files of the folder with this ending.
fn text_of(folder: &str, ending: &str) -> String {
    let entries = fs::read_dir(repository().join(folder)).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == ending))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect()
}

/// Returns true if there is a fixture, a test, a file of tests or any other file of that name.
fn exists(name: &str, tests: &str) -> bool {
    let root = repository();
    let is_fixture = ["c", "cpp"]
        .iter()
        .any(|end| root.join(format!("c-fixtures/{name}.{end}")).exists());
    is_fixture
        || tests.contains(&format!("fn {name}()"))
        || root.join("tests/tests").join(name).exists()
        || root.join(name).exists()
}

/// Returns the names of the tests that a page of traps states: of each table row the last column,
/// and of each section the paragraph that begins with `Shown by:`.
///
/// # Panics
/// If a row has another number of columns, or a section has no such paragraph.
fn shown_by(page: &str) -> Vec<String> {
    let mut shown = Vec::new();
    let mut lines = page.lines().peekable();
    let mut section = None;
    let mut is_below_head = false;
    while let Some(line) = lines.next() {
        if line.starts_with('#') {
            assert_eq!(section, None, "a section without `Shown by:`");
            section = line.strip_prefix("### ");
        } else if line.starts_with("Shown by:") {
            assert!(section.take().is_some(), "no section of a trap: {line}");
            let mut paragraph = line.to_owned();
            while let Some(more) = lines.next_if(|line| !line.is_empty()) {
                paragraph = format!("{paragraph} {more}");
            }
            shown.push(paragraph);
        }
        let is_row = line.starts_with("| ");
        if is_row && is_below_head {
            let columns: Vec<&str> = line.trim_matches('|').split(" | ").collect();
            assert_eq!(columns.len(), 3, "{line}");
            shown.push(columns[2].trim().to_owned());
        }
        is_below_head = is_row && (is_below_head || line.starts_with("| ---"));
    }
    assert_eq!(section, None, "a section without `Shown by:`");
    shown
}

/// The tests that docs/hosts.md names for its traps exist.
#[test]
fn what_shows_how_traps_are_met_is_there() {
    let tests = text_of("tests/tests", "rs");
    let hosts = fs::read_to_string(repository().join("docs/hosts.md")).unwrap();
    let mut names = 0;
    let mut missing = Vec::new();
    for shown in shown_by(&hosts) {
        for quoted in shown.split('`').skip(1).step_by(2) {
            // `file.rs: test`, `fixture argument`.
            let words = quoted
                .split([' ', ':', ','])
                .filter(|word| !word.is_empty());
            let mut words = words.take_while(|word| !word.starts_with('…'));
            let Some(first) = words.next() else { continue };
            names += 1;
            if !exists(first, &tests) {
                missing.push(first.to_owned());
            }
            if let Some((file, test)) = quoted.split_once(": ") {
                let path = repository().join("tests/tests").join(file);
                let holds = fs::read_to_string(path).unwrap_or_default();
                if !holds.contains(&format!("fn {test}()")) {
                    missing.push(quoted.to_owned());
                }
            }
        }
    }
    assert!(names > 80, "{names}");
    assert_eq!(missing, [""; 0]);
}

/// Rows of a table and a section's last paragraph count; heads of tables, and lists, name nothing.
#[test]
fn a_page_of_traps_is_read() {
    let page = "# Title\n\n| trap | what we do | shown by |\n| --- | --- | --- |\n| `a` | b | `c`, `d.rs: e` |\n| f | g | |\n\n\
                ### h\n\n* `i`\n\nShown by: `j`,\n`k.rs: l`\n\n## m\n";
    assert_eq!(
        shown_by(page),
        ["`c`, `d.rs: e`", "", "Shown by: `j`, `k.rs: l`"]
    );
    let has_panicked = |page: &str| std::panic::catch_unwind(|| shown_by(page)).is_err();
    assert!(has_panicked("### h\n\nwords\n\n### n\n\nShown by: `o`\n"));
    assert!(has_panicked("### h\n\nwords\n"));
    assert!(has_panicked(
        "| a | b | c |\n| --- | --- | --- |\n| a | b |\n"
    ));
}

/// The names of settings that stand as texts in a source.
fn quoted_settings(source: &str) -> BTreeSet<&str> {
    let is_name = |text: &&str| {
        let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
        text.starts_with("HEAP") && !text.ends_with('_') && text.chars().all(is_part)
    };
    source.split('"').filter(is_name).collect()
}

/// Returns the source without the names that are no settings: those that lie near, and gperftools'.
fn without_foreign(settings: &str) -> String {
    let (before, rest) = settings.split_once("const NEAR").unwrap();
    let (_, rest) = rest.split_once("const OF_GPERFTOOLS").unwrap();
    let (_, behind) = rest.split_once("];").unwrap();
    format!("{before}{behind}")
}

/// Returns what `heapprof COMMAND --help` prints; `None`: there is no such command.
fn help_of(command: &str) -> Option<String> {
    let help = Command::new(&Build::get().heapprof)
        .args([command, "--help"])
        .output()
        .expect("heapprof runs");
    let text = || String::from_utf8_lossy(&help.stdout).into_owned();
    help.status.success().then(text)
}

/// The sources in a folder and those below, as one text.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &sources(&path);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let source = fs::read_to_string(path).unwrap();
            // Tests have wrong names, too.
            text += source.split("#[cfg(test)]").next().unwrap_or_default();
        }
    }
    text
}

/// The library takes no variable of `heapprof` for a misspelled setting.
#[test]
fn the_library_knows_the_variables_of_the_reader() {
    let library = fs::read_to_string(repository().join("preload/src/state/settings.rs")).unwrap();
    let reader = sources(&repository().join("symbolizer/src"));
    let (known, read) = (quoted_settings(&library), quoted_settings(&reader));
    let unknown: Vec<_> = read.difference(&known).collect();
    assert!(
        unknown.is_empty(),
        "not in preload/src/state/settings.rs: {unknown:?}"
    );
    let others = library.split("const OTHERS").nth(1).unwrap();
    let others = quoted_settings(others.split("];").next().unwrap());
    let unread: Vec<_> = others.difference(&read).collect();
    assert!(
        others.len() > 2 && unread.is_empty(),
        "no variables of heapprof: {unread:?}"
    );
}

/// Every variable that the library reads is documented in both places.
#[test]
fn every_setting_is_in_the_settings_page_and_in_the_help() {
    let read = |path: &str| fs::read_to_string(repository().join(path)).unwrap();
    let page = read("docs/settings.md");
    let help = help_of("run").expect("there is such a command");
    let source = without_foreign(&read("preload/src/state/settings.rs"));
    let names = quoted_settings(&source);
    assert!(names.len() >= 15, "{names:?}");
    for name in names {
        assert!(
            page.contains(&format!("| `{name}` |")),
            "docs/settings.md: {name}"
        );
        assert!(
            help.contains(&format!("\n  {name} ")),
            "heapprof run --help: {name}"
        );
    }
}

/// Every exported name, but for C++'s operators, is in docs/exports.md.
#[test]
fn every_export_is_listed() {
    let listed = fs::read_to_string(repository().join("docs/exports.md")).unwrap();
    let names = Command::new("nm")
        .args(["--dynamic", "--defined-only", "--format=posix"])
        .arg(Build::get().library())
        .output()
        .expect("nm runs (scripts/install-deps installs it)");
    let names = String::from_utf8(names.stdout).unwrap();
    let names = names
        .lines()
        .filter_map(|line| line.split([' ', '@']).next())
        .filter(|name| !name.starts_with("_Z"));
    let missing: Vec<&str> = names
        .filter(|name| !listed.contains(&format!("`{name}`")))
        .collect();
    assert_eq!(missing, [""; 0]);
}

/// README.md, CHANGELOG.md, docs/*.md and docs/lab-notes/*.md.
fn documents() -> Vec<PathBuf> {
    let root = repository();
    let folders = ["docs", "docs/lab-notes"].map(|name| root.join(name));
    let in_folders = folders.iter().flat_map(|folder| {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path())
    });
    let named = ["README.md", "CHANGELOG.md"].map(|name| root.join(name));
    named
        .into_iter()
        .chain(in_folders.filter(|path| path.extension().is_some_and(|found| found == "md")))
        .collect()
}

/// Returns the anchors of a page's headings, as GitHub makes them.
fn anchors(page: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(page).unwrap_or_default();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            let kept = words
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.collect::<String>().replace(' ', "-")
        })
        .collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut links = 0;
    let mut missing = Vec::new();
    for page in documents() {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap();
            if link.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            links += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let is_there =
                target.exists() && (heading.is_empty() || anchors(&target).contains(heading));
            if !is_there {
                missing.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(links > 60, "{links}");
    assert_eq!(missing, [""; 0]);
}

/// Every source that a page on the present state names exists: below the root, or below the `src`
/// of a crate.
#[test]
fn every_source_that_is_named_is_there() {
    let root = repository();
    let pages = [
        "README.md",
        "docs/architecture.md",
        "docs/exports.md",
        "docs/format.md",
        "docs/formats.md",
        "docs/glossary.md",
        "docs/hosts.md",
        "docs/names.md",
    ];
    let below = [
        "",
        "preload/src",
        "symbolizer/src",
        "core/src",
        "symbolizer/tests",
    ];
    let mut named = 0;
    let mut missing = Vec::new();
    for page in pages {
        let text = fs::read_to_string(root.join(page)).unwrap();
        let spans = text.split('`').skip(1).step_by(2);
        let sources = spans.filter(|span| {
            let is_path = |c: char| c.is_ascii_alphanumeric() || "/_-.".contains(c);
            span.ends_with(".rs") && span.contains('/') && span.chars().all(is_path)
        });
        for source in sources {
            named += 1;
            if !below
                .iter()
                .any(|folder| root.join(folder).join(source).exists())
            {
                missing.push(format!("{page}: {source}"));
            }
        }
    }
    assert!(named > 60, "{named}");
    assert_eq!(missing, [""; 0]);
}

/// Every command in a document has the options that the document uses.
#[test]
fn every_command_is_understood() {
    let mut commands = 0;
    let mut wrong = Vec::new();
    let mut helps = std::collections::HashMap::new();
    for page in documents() {
        let text = fs::read_to_string(&page).unwrap();
        // Lines of a block, and code between backticks in the text.
        let spans = text.lines().flat_map(|line| line.split('`'));
        let shown = spans.filter_map(|span| {
            let span = span.trim_start().trim_start_matches("$ ");
            let (before, rest) = span.split_once("heapprof ")?;
            // Variables may stand before it.
            let is_command = before.split_whitespace().all(|word| word.contains('='));
            is_command.then_some(rest)
        });
        for command in shown {
            let mut words = command
                .split_whitespace()
                .take_while(|word| !["|", "#", "&&", "--", ";"].contains(word));
            let name = words.next().unwrap_or_default();
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_lowercase()) {
                continue;
            }
            let help = helps
                .entry(name.to_owned())
                .or_insert_with(|| help_of(name));
            // `heapprof reads …` is a sentence.
            let Some(help) = help else { continue };
            commands += 1;
            for word in words.filter(|word| word.starts_with('-') && word.len() > 1) {
                let option = word.split(['=', ',', ';', ')']).next().unwrap();
                let listed = help
                    .split([' ', ',', '[', '\n'])
                    .any(|listed| listed == option);
                if !listed {
                    wrong.push(format!("{}: heapprof {command}", page.display()));
                }
            }
        }
    }
    assert!(commands > 100, "{commands}");
    assert_eq!(wrong, [""; 0]);
}

/// Each script of the shell prints what it is for, and does nothing else.
#[test]
fn scripts_say_what_they_are_for() {
    let is_of_shell = |path: &Path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().next() == Some("#!/usr/bin/env bash")
    };
    let mut tried = 0;
    for folder in ["scripts", "scripts/packages"] {
        let entries = fs::read_dir(repository().join(folder)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        for path in paths.filter(|path| path.is_file() && is_of_shell(path)) {
            let name = path.file_name().unwrap().to_str().unwrap();
            // Without it, the script would begin its work.
            let source = fs::read_to_string(&path).unwrap();
            assert!(source.contains("-h | --help)"), "{name}");
            let said = Command::new(&path).arg("--help").output().unwrap();
            let text = String::from_utf8(said.stdout).unwrap();
            assert!(said.status.success() && said.stderr.is_empty(), "{name}");
            assert!(text.contains(&format!("{folder}/{name}")), "{name}: {text}");
            assert!(text.lines().count() > 2, "{name}: {text}");
            tried += 1;
        }
    }
    assert!(tried > 15, "{tried}");
}
