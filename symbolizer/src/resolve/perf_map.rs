//! Perf map: the names that a program gives to code it makes at run time, in `/tmp/perf-PID.map`.
//!
//! Each line is an entry, `START SIZE NAME`, with hexadecimal numbers and addresses of the process.
//! node, the JVM, .NET, Python and LLVM write such files for perf. The file is appended to and has
//! no times. If code takes the place of other code, the later line counts, and the report says how
//! many addresses that concerns.
//!
//! V8 compiles one function several times: for its interpreter, and by each of its compilers. Each
//! version has an entry, whose name has a tag and a sign of the compiler. All are one function.
//!
//! Anybody may write to `/tmp`, and process ids are reused. A file there is believed only if it is
//! a regular file of root or of the user, and is newer than the start of the profiled process. A
//! file that the user names, or that lies below a sysroot, is believed as it is.

use super::frame::Frame;
use super::locate::{SearchPath, below};
use super::names::Names;
use super::report::{Outcome, Role};
use crate::regular_file::{OpenError, RegularFile};
use crate::resolve::archive;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A map of a service that ran for weeks has some hundred megabytes.
const LARGEST: u64 = 1 << 30;

/// The process that the code belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// Wall clock at its start, nanoseconds since 1970; 0 when unknown.
    pub(crate) start_wall_ns: u64,
}

/// How addresses outside every module were named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PerfMapReport {
    /// Every file tried, and what became of it.
    pub tried: Vec<(PathBuf, Outcome)>,
    /// The files that names were taken from, by the process whose code it is.
    pub used: BTreeMap<u32, PathBuf>,
    /// Different addresses asked for.
    pub asked: u64,
    /// Those that got a name.
    pub named: u64,
    /// The number of these for which an earlier line has another name.
    pub ambiguous: u64,
}

impl fmt::Display for PerfMapReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "outside every module (code made at run time?): {} addresses, {} named by a perf map",
            self.asked, self.named
        )?;
        for (path, outcome) in &self.tried {
            writeln!(f, "  {}: {outcome}", path.display())?;
        }
        if self.ambiguous > 0 {
            writeln!(
                f,
                "  {} addresses had other code before; a perf map has no times, the latest name is shown",
                self.ambiguous
            )?;
        }
        if self.named < self.asked && self.used.is_empty() {
            writeln!(
                f,
                "  let the program write a perf map (node --perf-basic-prof, python -X perf, jcmd PID Compiler.perfmap, \
                 java -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit, erl +JPperf true, mono --jitmap, \
                 DOTNET_PerfMapEnabled=1), or name one with --perf-map"
            )?;
        }
        Ok(())
    }
}

/// Names for addresses of a process, sorted and each once, from the first map that can be believed.
pub(crate) fn resolve(
    avmas: &[u64],
    process: Process,
    search: &SearchPath,
) -> (Vec<(u64, Frame)>, PerfMapReport) {
    let mut report = PerfMapReport {
        asked: avmas.len() as u64,
        ..PerfMapReport::default()
    };
    let Some((path, guard)) = place(process, search) else {
        return (Vec::new(), report);
    };
    let map = match open(&path, guard) {
        Ok(map) => map,
        Err(outcome) => {
            report.tried.push((path, outcome));
            return (Vec::new(), report);
        }
    };
    report.used.insert(process.pid, path.clone());
    report.tried.push((path, Outcome::Used(Role::PerfMap)));
    let found = latest(&map, avmas, &mut report.ambiguous);
    let names = Names::new();
    let frames: Vec<_> = avmas
        .iter()
        .zip(found)
        .filter_map(|(&avma, name)| {
            let frame = Frame {
                function: Some(names.function(&without_tier(name?))),
                file: None,
                line: None,
                column: None,
                inlined: false,
            };
            Some((avma, frame))
        })
        .collect();
    report.named = frames.len() as u64;
    (frames, report)
}

/// The bytes of a map that was used.
pub(crate) fn read_again(path: &Path) -> Result<Vec<u8>, String> {
    open(path, None).map_err(|outcome| outcome.to_string())
}

/// The conditions on a file in `/tmp`.
#[derive(Debug, Clone, Copy)]
struct Guard {
    written_after: SystemTime,
}

/// Where the map is. `None`: the process has no number, as in a dump of another profiler.
fn place(process: Process, search: &SearchPath) -> Option<(PathBuf, Option<Guard>)> {
    if let Some(path) = &search.perf_map {
        return Some((path.clone(), None));
    }
    let path = PathBuf::from(format!("/tmp/perf-{}.map", process.pid));
    match &search.sysroot {
        Some(root) => Some((below(root, &path), None)),
        None if process.pid == 0 => None,
        None => {
            let written_after = UNIX_EPOCH + Duration::from_nanos(process.start_wall_ns);
            Some((path, Some(Guard { written_after })))
        }
    }
}

fn open(path: &Path, guard: Option<Guard>) -> Result<Vec<u8>, Outcome> {
    let unusable = |error: &dyn fmt::Display| Outcome::Unusable(error.to_string());
    // In /tmp, not to where somebody else's link leads.
    let opened = match guard {
        Some(_) => RegularFile::open_itself(path),
        None => RegularFile::open(path),
    };
    let file = match opened {
        Ok(file) => file,
        Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Outcome::Missing);
        }
        Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotADirectory => {
            let (archive, range) = archive::member(path).ok_or(Outcome::Missing)?;
            return Ok(archive.data(&range).to_vec());
        }
        Err(OpenError::NotRegular) if path.is_symlink() => {
            return Err(unusable(&"refused: a symbolic link (--perf-map insists)"));
        }
        Err(OpenError::Folder | OpenError::NotRegular) => {
            return Err(unusable(&"is not a regular file"));
        }
        Err(OpenError::Io(error)) => return Err(unusable(&error)),
    };
    let meta = file.meta();
    if let Some(guard) = guard {
        let own = std::fs::metadata("/proc/self").map(|own| own.uid());
        if meta.uid() != 0 && own.ok() != Some(meta.uid()) {
            return Err(Outcome::Foreign { uid: meta.uid() });
        }
        if meta.modified().is_ok_and(|time| time < guard.written_after) {
            return Err(Outcome::OlderThanRun);
        }
    }
    file.read(LARGEST).map_err(|error| unusable(&error))
}

/// For each address, the name in the last line that covers it. Counts in `ambiguous` those whose
/// last two lines differ.
fn latest<'a>(map: &'a [u8], avmas: &[u64], ambiguous: &mut u64) -> Vec<Option<&'a [u8]>> {
    let mut names: Vec<Option<&[u8]>> = vec![None; avmas.len()];
    let mut open = Open::new(avmas.len());
    // Backwards, so that the last comes first, and each address is looked at twice at most, however
    // many lines cover it. The text behind the last newline is a line that is still being written.
    for line in map.rsplit(|&byte| byte == b'\n').skip(1) {
        let Some((start, end, name)) = entry(line) else {
            continue;
        };
        let mut at = open.from(avmas.partition_point(|&avma| avma < start));
        while avmas.get(at).is_some_and(|&avma| avma < end) {
            match names[at] {
                None => names[at] = Some(name),
                Some(last) => {
                    *ambiguous += u64::from(without_tier(last) != without_tier(name));
                    open.close(at);
                }
            }
            at = open.from(at + 1);
        }
    }
    names
}

/// The name of a function without V8's tier: `JS:f x.js:3:1` of `LazyCompile:~f x.js:3:1`,
/// `Function:*f x.js:3:1` and `JS:^f x.js:3:1`. Other names are as they are.
fn without_tier(name: &[u8]) -> Cow<'_, [u8]> {
    const TAGS: [&[u8]; 5] = [b"JS:", b"LazyCompile:", b"Function:", b"Script:", b"Eval:"];
    // Interpreted, and compiled by Sparkplug, Maglev or TurboProp, and TurboFan.
    const MARKS: &[u8] = b"~^+*";
    let Some(rest) = TAGS.iter().find_map(|tag| name.strip_prefix(*tag)) else {
        return Cow::Borrowed(name);
    };
    match rest.split_first() {
        Some((mark, rest)) if MARKS.contains(mark) => Cow::Owned([TAGS[0], rest].concat()),
        _ => Cow::Borrowed(name),
    }
}

/// `START SIZE NAME`
fn entry(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut parts = line.splitn(3, |&byte| byte == b' ');
    let mut number = || {
        let text = std::str::from_utf8(parts.next()?).ok()?;
        u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    let name = parts.next()?.trim_ascii();
    (!name.is_empty()).then_some((start, start.checked_add(size)?, name))
}

/// Indices, of which some are closed for good; finds the next open one in next to no time.
struct Open(Vec<usize>);

impl Open {
    fn new(len: usize) -> Open {
        Open((0..=len).collect())
    }

    /// The first open one from `index` on; the number of all, if there is none.
    fn from(&mut self, index: usize) -> usize {
        let mut root = index;
        while self.0[root] != root {
            root = self.0[root];
        }
        let mut at = index;
        while self.0[at] != root {
            at = std::mem::replace(&mut self.0[at], root);
        }
        root
    }

    fn close(&mut self, index: usize) {
        self.0[index] = index + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn process(start_wall_ns: u64) -> Process {
        Process {
            pid: u32::MAX,
            start_wall_ns,
        }
    }

    fn names(map: &str, avmas: &[u64]) -> (Vec<Option<String>>, u64) {
        let mut ambiguous = 0;
        let found = latest(map.as_bytes(), avmas, &mut ambiguous);
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let found = found.into_iter().map(|name| name.map(text));
        (found.collect(), ambiguous)
    }

    #[test]
    fn an_address_has_the_name_of_the_last_line_that_covers_it() {
        let map = "1000 100 first\n\
                   1080 10 LazyCompile:~f /app/x.js:3\n\
                   0x2000 0x10 second\r\n\
                   1000 20 later\n\
                   not a line\n\
                   3000 0 empty\n\
                   ffffffffffffffff 2 beyond\n\
                   4000 10 torn";
        let asked = [
            0xfff, 0x1000, 0x101f, 0x1020, 0x1085, 0x1100, 0x200f, 0x2010, 0x3000, 0x4000,
        ];
        let (found, ambiguous) = names(map, &asked);
        let found: Vec<&str> = found.iter().map(|n| n.as_deref().unwrap_or("-")).collect();
        let js = "LazyCompile:~f /app/x.js:3";
        assert_eq!(
            found,
            [
                "-", "later", "later", "first", js, "-", "second", "-", "-", "-"
            ]
        );
        assert_eq!(ambiguous, 3, "1000, 101f and 1085 had other code before");
    }

    #[test]
    fn a_function_is_one_whatever_v8_compiled_it_with() {
        let is = |name: &str| String::from_utf8(without_tier(name.as_bytes()).into()).unwrap();
        for tier in [
            "LazyCompile:~",
            "LazyCompile:*",
            "Function:~",
            "JS:~",
            "JS:^",
            "JS:+",
            "JS:*",
            "Eval:~",
        ] {
            assert_eq!(
                is(&format!("{tier}f /x.js:3:1")),
                "JS:f /x.js:3:1",
                "{tier}"
            );
        }
        // The whole of a script has no name.
        assert_eq!(is("Script:~ /x.js:1:1"), is("JS:^ /x.js:1:1"));
        for other in [
            "Builtin:ArrayPush",
            "Function:f",
            "BytecodeHandler:Star",
            "~f",
            "JS:",
            "RegExp:^a*",
            "void Direct.handle(int)",
        ] {
            assert_eq!(is(other), other);
        }
        let map = "1000 10 JS:^f x.js:1\n1000 10 JS:*f x.js:1\n";
        assert_eq!(names(map, &[0x1001]).1, 0, "no other function was there");
    }

    /// Quadratic work here would be 10^11 steps.
    #[test]
    fn a_hostile_map_of_lines_that_all_cover_everything_takes_no_longer() {
        let line = "0 ffffffffffff x\n";
        let asked: Vec<u64> = (0..300_000).collect();
        let (found, ambiguous) = names(&line.repeat(300_000), &asked);
        assert!(found.iter().all(|name| name.as_deref() == Some("x")));
        assert_eq!(ambiguous, 0);
    }

    #[test]
    fn a_map_in_tmp_must_be_ours_regular_and_of_this_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf-1.map");
        std::fs::write(&path, "1000 10 f\n").unwrap();
        let second = Duration::from_secs(1);
        let after = |written_after| Some(Guard { written_after });
        let past = after(SystemTime::now() - 60 * second);
        assert!(open(&path, past).is_ok());
        assert_eq!(
            open(&path, after(SystemTime::now() + 60 * second)),
            Err(Outcome::OlderThanRun)
        );

        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(matches!(open(&link, past), Err(Outcome::Unusable(_))));
        assert!(open(&link, None).is_ok(), "the user's own word");
        assert!(matches!(
            open(folder.path(), None),
            Err(Outcome::Unusable(_))
        ));
        assert_eq!(
            open(&folder.path().join("none"), None),
            Err(Outcome::Missing)
        );

        // Only root can give a file away.
        if std::os::unix::fs::chown(&path, Some(12_345), None).is_ok() {
            assert_eq!(open(&path, past), Err(Outcome::Foreign { uid: 12_345 }));
            assert!(open(&path, None).is_ok());
        }
    }

    #[test]
    fn the_users_map_comes_first_then_the_sysroots_then_tmp() {
        let mut search = SearchPath::default();
        let name = format!("tmp/perf-{}.map", u32::MAX);
        let found = |search: &SearchPath| {
            let (path, guard) = place(process(0), search).unwrap();
            (path, guard.is_some())
        };
        assert_eq!(found(&search), (Path::new("/").join(&name), true));
        search.sysroot = Some("/root-of-arm".into());
        let in_root = Path::new("/root-of-arm").join(&name);
        assert_eq!(found(&search), (in_root, false));
        search.perf_map = Some("/x.map".into());
        assert_eq!(found(&search), ("/x.map".into(), false));
    }
}
