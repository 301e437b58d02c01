//! Names that last: edit, rebuild, compare, with a real program that is compiled twice.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use heapprof_tests::Run;

/// With `ADDED`, a function in front moves the code of all others, and a block is larger.
const PROGRAM: &str = r#"
#include <stdlib.h>
#ifdef ADDED
__attribute__((noinline)) int added(int x) { __asm__(".rept 300; nop; .endr"); return x; }
#endif
__attribute__((noinline)) void *sessions(int n) { return malloc(1000 * n); }
__attribute__((noinline)) void *cache(int n) { return malloc(SIZE * n); }
int main(int argc, char **argv)
{
    void *volatile kept[2];
    kept[0] = sessions(argc);
    kept[1] = cache(argc);
    return kept[0] == 0 || kept[1] == 0;
}
"#;

fn compile(folder: &Path, flags: &[&str]) {
    fs::write(folder.join("app.c"), PROGRAM).unwrap();
    let status = Command::new("gcc")
        .args(["-g", "-O1", "-Wl,--build-id", "-o", "app", "app.c"])
        .args(flags)
        .current_dir(folder)
        .status()
        .expect("gcc; run scripts/install-deps");
    assert!(status.success());
}

/// Where a function is, as `nm` has it.
fn address_of(folder: &Path, function: &str) -> String {
    let nm = Command::new("nm").arg(folder.join("app")).output().unwrap();
    let table = String::from_utf8(nm.stdout).unwrap();
    let line = table
        .lines()
        .find(|line| line.ends_with(&format!(" {function}")));
    line.expect("a symbol")
        .split(' ')
        .next()
        .unwrap()
        .to_owned()
}

#[test]
fn a_difference_of_two_builds_has_each_site_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let heapprof = |args: &[&str]| Run::heapprof().inside(folder).args(args).run().well();
    let record = |prefix: &str, more: &[&str]| {
        let options = [
            &["run", "-q", "-i", "1", "-o", prefix],
            more,
            &["--", "./app"],
        ];
        heapprof(&options.concat());
    };
    compile(folder, &["-DSIZE=2000"]);
    record("before", &[]);
    record("bare", &["--no-kept-names"]);
    assert!(folder.join("before.heaplog.names").exists());
    assert!(!folder.join("bare.heaplog.names").exists());
    let top = heapprof(&["top", "before.heaplog"]).stdout;
    let address = address_of(folder, "cache");

    compile(folder, &["-DSIZE=2000", "-DADDED"]);
    assert!(address_of(folder, "cache") != address, "the code has moved");
    record("same", &[]);
    compile(folder, &["-DSIZE=5000", "-DADDED"]);
    record("after", &[]);
    assert_eq!(heapprof(&["top", "before.heaplog"]).stdout, top);

    let diff = heapprof(&["diff", "before.heaplog", "same.heaplog"]).stdout;
    assert!(diff.contains("nothing differs in in-use-bytes"), "{diff}");
    let diff = heapprof(&["diff", "before.heaplog", "after.heaplog"]).stdout;
    let line = PROGRAM.lines().position(|line| line.contains("*cache("));
    let place = format!("app.c:{}", line.expect("its line") + 1);
    let of_cache = diff.lines().find(|line| line.contains("  cache  "));
    assert!(
        of_cache.is_some_and(|line| line.ends_with(&place)),
        "{diff}"
    );
    let diff = heapprof(&["diff", "--json", "before.heaplog", "after.heaplog"]).stdout;
    let diff: serde_json::Value = serde_json::from_str(&diff).unwrap();
    let sites = diff["sites"].as_array().unwrap();
    let of_app: BTreeSet<&str> = (sites.iter())
        .filter(|site| site["module"] == "app")
        .map(|site| site["function"].as_str().unwrap())
        .collect();
    assert_eq!(of_app, BTreeSet::from(["cache"]), "{diff}");
    let cache = sites
        .iter()
        .find(|site| site["function"] == "cache")
        .unwrap();
    assert_eq!(cache["before"], 2000.0);
    assert_eq!(cache["after"], 5000.0);
    assert_eq!(cache["verdict"], "exact");

    // Without the names, the old sites are addresses.
    let diff = heapprof(&["diff", "bare.heaplog", "same.heaplog"]).stdout;
    assert!(diff.contains("[app+0x"), "{diff}");
}
