//! Names where no linkage name is at hand, names with suffixes, and names that no table has.

use crate::resolve_fixture::{Fixture, installed, lines};

/// Static functions, which have no linkage name in gcc's debug information: in an unnamed
/// namespace, a lambda, a local class, a class in a namespace. One is declared in one place and
/// defined in another.
const HIDDEN: &str = "\
extern \"C\" int sink(int);
namespace ns {
namespace {
struct Shape {
    struct Inner { static int twice(int x); };
    template <typename T> inline __attribute__((always_inline)) int scaled(T by) {
        return sink(static_cast<int>(by)) + 1;
    }
};
inline __attribute__((always_inline)) int Shape::Inner::twice(int x) {
    return sink(x * 2) + 1;
}
static inline __attribute__((always_inline)) int plain(int x) {
    return sink(x * 3) + 1;
}
}
extern \"C\" __attribute__((noinline)) int calls_scaled(int x) { return Shape().scaled<long>(x) + 5; }
extern \"C\" __attribute__((noinline)) int calls_twice(int x) { return Shape::Inner::twice(x) + 5; }
extern \"C\" __attribute__((noinline)) int calls_plain(int x) { return plain(x) + 5; }
extern \"C\" __attribute__((noinline)) int calls_lambda(int x) {
    auto lambda = [x](int y) __attribute__((always_inline)) { return sink(x + y) + 1; };
    return lambda(7) + 5;
}
}
extern \"C\" __attribute__((noinline)) int sink(int x) {
    __asm__ volatile(\"\" : \"+r\"(x));
    return x;
}
int main(int argc, char **) {
    using namespace ns;
    return calls_scaled(argc) + calls_twice(argc) + calls_plain(argc) + calls_lambda(argc);
}
";

fn innermost(fixture: &Fixture, caller: &str) -> String {
    let call = fixture.call_site("program", &format!("<{caller}>"), "<sink>");
    let symbols = fixture.resolve(call);
    let found = lines(&symbols, call);
    assert_eq!(found.len(), 2, "{found:?}\n{}", symbols.report);
    assert!(found[1].starts_with(caller), "{found:?}");
    found[0]
        .trim_start_matches("(inlined) ")
        .rsplit_once(' ')
        .expect("name and place")
        .0
        .to_owned()
}

#[track_caller]
fn hidden_functions_have_their_scopes(fixture: &Fixture) {
    let name = |caller| innermost(fixture, caller);
    for (caller, bare) in [
        (
            "calls_scaled",
            "ns::(anonymous namespace)::Shape::scaled<long",
        ),
        (
            "calls_twice",
            "ns::(anonymous namespace)::Shape::Inner::twice",
        ),
        ("calls_plain", "ns::(anonymous namespace)::plain"),
    ] {
        // clang has linkage names for these too, and so return types and arguments.
        let found = name(caller);
        assert!(found.contains(bare), "{found}, not {bare}");
    }
    let lambda = name("calls_lambda");
    assert!(
        lambda.contains("calls_lambda") && lambda.contains("::operator()"),
        "{lambda}"
    );
}

#[test]
fn functions_without_a_linkage_name_have_their_scopes() {
    for flags in [
        &["-gdwarf-2"][..],
        &["-gdwarf-4"],
        &["-gdwarf-5"],
        &["-gdwarf-4", "-fdebug-types-section"],
        &["-gdwarf-5", "-fdebug-types-section"],
        &["-gdwarf-5", "-gsplit-dwarf"],
        &["-gdwarf-4", "-gsplit-dwarf"],
        &["-gdwarf-5", "-flto"],
    ] {
        let fixture = Fixture::new();
        fixture.compile("program.cc", HIDDEN, &[&["-g"], flags].concat());
        hidden_functions_have_their_scopes(&fixture);
    }
}

#[test]
fn clangs_functions_have_their_scopes() {
    if !installed("clang++") {
        return eprintln!("skipped: no clang++");
    }
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let fixture = Fixture::new();
        fixture.write("program.cc", HIDDEN);
        fixture.run(
            "clang++",
            &[
                "-O2",
                "-g",
                version,
                "-Wl,--build-id",
                "-o",
                "program",
                "program.cc",
            ],
        );
        hidden_functions_have_their_scopes(&fixture);
    }
}

#[test]
fn scopes_that_dwz_moved_away_are_followed() {
    if !installed("dwz") {
        return eprintln!("skipped: no dwz");
    }
    let fixture = Fixture::new();
    // Two units of the same text: dwz makes one partial unit of what they share.
    let other = HIDDEN
        .replace("calls_", "other_")
        .replace("main", "other_main");
    fixture.write(
        "other.cc",
        other.replace("int sink(int x) {", "int other_sink(int x) {"),
    );
    fixture.write("program.cc", HIDDEN);
    fixture.run(
        "g++",
        &[
            "-O2",
            "-g",
            "-Wl,--build-id",
            "-o",
            "program",
            "program.cc",
            "other.cc",
        ],
    );
    fixture.run("dwz", &["program"]);
    hidden_functions_have_their_scopes(&fixture);
}

/// gcc marks what it splits off, clones and specialises by a suffix behind a dot.
#[test]
fn parts_and_clones_say_what_they_are_of() {
    let fixture = Fixture::new();
    let text = "\
#include <cstdlib>
#include <cstdio>
namespace ns {
__attribute__((noinline)) static int picky(int x, int mode) {
    if (__builtin_expect(x > 1000, 0)) { std::puts(\"cold\"); std::abort(); }
    return mode == 3 ? x * 7 : x / mode;
}
}
int main(int argc, char **) { return ns::picky(argc, 3); }
";
    fixture.compile("program.cc", text, &["-O2", "-fno-inline"]);
    let table = fixture.run("nm", &["program"]);
    let mut seen = 0;
    for line in table.lines() {
        let mut fields = line.split(' ');
        let (Some(address), Some(_), Some(name)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let Some((_, suffix)) = name
            .strip_prefix("_ZN2nsL5pickyEii")
            .and_then(|s| s.split_once('.'))
        else {
            continue;
        };
        seen += 1;
        let svma = u64::from_str_radix(address, 16).expect("an address");
        let symbols = fixture.resolve(svma);
        let found = lines(&symbols, svma);
        assert!(found[0].starts_with("ns::picky(int, int)"), "{found:?}");
        assert!(
            found[0].contains(suffix),
            "{found:?} says nothing of .{suffix}"
        );
    }
    assert!(seen >= 1, "no clone in {table}");
}

#[test]
fn stubs_say_what_they_lead_to() {
    let text = "\
#include <string>
#include <cstdlib>
extern \"C\" __attribute__((noinline)) void *calls_malloc(std::size_t n) { return std::malloc(n + 1); }
extern \"C\" __attribute__((noinline)) void calls_append(std::string &s) { s.append(\"x\", 1); }
int main(int argc, char **) { std::string s; calls_append(s); return calls_malloc(argc) == nullptr; }
";
    for flags in [
        &["-fcf-protection=full", "-Wl,-z,lazy"][..],
        &["-fcf-protection=none", "-Wl,-z,lazy"],
        &["-fcf-protection=full", "-Wl,-z,now"],
        &["-no-pie", "-Wl,-z,lazy"],
    ] {
        let fixture = Fixture::new();
        fixture.compile("program.cc", text, flags);
        for (caller, expected) in [
            ("calls_malloc", "malloc@plt"),
            ("calls_append", "append(char const*, unsigned long)@plt"),
        ] {
            // Where the call goes, as objdump has it.
            let listing = fixture.run("objdump", &["-d", "--no-show-raw-insn", "program"]);
            let body = listing
                .split(&format!("<{caller}>:\n"))
                .nth(1)
                .expect(caller);
            let jump = body
                .lines()
                .find(|line| line.contains("@plt"))
                .expect("a call");
            let target = jump.split_whitespace().rev().nth(1).expect("an address");
            let svma = u64::from_str_radix(target, 16).expect("hex");
            let symbols = fixture.resolve(svma);
            let found = lines(&symbols, svma);
            assert!(
                found.len() == 1 && found[0].contains(expected),
                "{flags:?} {found:?}"
            );
        }
    }
}

#[test]
fn an_ifunc_has_its_name() {
    let fixture = Fixture::new();
    let text = "\
static int fast(int x) { return x + 1; }
static int (*pick(void))(int) { return fast; }
int picked(int) __attribute__((ifunc(\"pick\")));
int main(int argc, char **argv) { (void)argv; return picked(argc); }
";
    fixture.compile("program.c", text, &[]);
    let table = fixture.run("nm", &["program"]);
    let row = table
        .lines()
        .find(|line| line.contains(" i picked"))
        .expect("an ifunc");
    let svma = u64::from_str_radix(&row[..16], 16).expect("an address");
    let found = lines(&fixture.resolve(svma), svma);
    assert!(
        found[0].starts_with("picked ") || found[0].starts_with("pick "),
        "{found:?}"
    );
}

#[test]
fn a_versioned_symbol_is_called_by_its_name() {
    let fixture = Fixture::new();
    fixture.write(
        "versions",
        "V1 { global: shown; }; V2 { global: shown; local: *; } V1;\n",
    );
    let text = "\
__asm__(\".symver old_shown, shown@V1\");
__asm__(\".symver new_shown, shown@@V2\");
__attribute__((noinline)) int old_shown(int x) { return x + 1; }
__attribute__((noinline)) int new_shown(int x) { return x + 2; }
";
    fixture.compile(
        "program.c",
        text,
        &["-shared", "-fPIC", "-Wl,--version-script=versions", "-s"],
    );
    let table = fixture.run("nm", &["-D", "program"]);
    let rows: Vec<_> = table
        .lines()
        .filter(|line| line.contains(" T shown@"))
        .collect();
    assert_eq!(rows.len(), 2, "{table}");
    for row in rows {
        let svma = u64::from_str_radix(&row[..16], 16).expect("an address");
        assert_eq!(lines(&fixture.resolve(svma), svma), ["shown ?:0"]);
    }
}

/// Names that rustc leaves at each level of debug information, with generics and closures.
#[test]
fn rust_paths_are_whole_at_each_level() {
    let text = "\
mod ns {
    pub trait Area { fn area(&self) -> i32; }
    pub struct Square<T>(pub T);
    impl<T: Copy + Into<i32>> Area for Square<T> {
        #[inline(always)]
        fn area(&self) -> i32 { sink(self.0.into()).wrapping_add(1) }
    }
    #[inline(never)]
    #[unsafe(no_mangle)]
    pub extern \"C\" fn sink(x: i32) -> i32 { std::hint::black_box(x) }
    #[inline(never)]
    #[unsafe(no_mangle)]
    pub extern \"C\" fn calls_area(x: i32) -> i32 { Square(x).area().wrapping_mul(5) }
    #[inline(never)]
    #[unsafe(no_mangle)]
    pub extern \"C\" fn calls_closure(x: i32) -> i32 {
        let closure = |y: i32| sink(x ^ y).wrapping_add(1);
        closure(3).wrapping_mul(5)
    }
}
fn main() {
    let args = std::env::args().count() as i32;
    std::process::exit(ns::calls_area(args) + ns::calls_closure(args));
}
";
    for level in ["2", "1", "line-tables-only"] {
        for scheme in ["legacy", "v0"] {
            let fixture = Fixture::new();
            fixture.compile(
                "program.rs",
                text,
                &[
                    "-O",
                    "-Clink-arg=-Wl,--build-id",
                    "-Zunstable-options",
                    &format!("-Csymbol-mangling-version={scheme}"),
                    &format!("-Cdebuginfo={level}"),
                ],
            );
            let area = innermost(&fixture, "calls_area");
            let closure = innermost(&fixture, "calls_closure");
            let told = format!("{level} {scheme}: {area}, {closure}");
            assert!(
                area.contains("area")
                    && (closure.contains("{closure#0}") || closure.contains("{{closure}}")),
                "{told}"
            );
            // `line-tables-only` has neither linkage names nor namespaces: the bare name is all
            // there is.
            if level != "line-tables-only" {
                assert!(area.contains("ns::Square"), "{told}");
                assert!(closure.contains("ns::calls_closure::"), "{told}");
            }
        }
    }
}

/// Line tables alone have `generic<i32>`, the legacy symbol has `program::ns::generic`: the same
/// function.
#[test]
fn generic_functions_with_line_tables_alone_have_their_paths() {
    let text = "\
mod ns {
    #[inline(never)]
    #[unsafe(no_mangle)]
    pub extern \"C\" fn sink(x: i32) -> i32 { std::hint::black_box(x) }
    #[inline(never)]
    pub fn generic<T: Into<i32>>(x: T) -> i32 { sink(x.into()).wrapping_add(1) }
}
fn main() {
    let args = std::env::args().count() as i32;
    std::process::exit(ns::generic(args));
}
";
    for (scheme, expected) in [
        ("legacy", "program::ns::generic program.rs:6"),
        ("v0", "program::ns::generic::<i32> program.rs:6"),
    ] {
        let fixture = Fixture::new();
        fixture.compile(
            "program.rs",
            text,
            &[
                "-O",
                "-Clink-arg=-Wl,--build-id",
                "-Zunstable-options",
                &format!("-Csymbol-mangling-version={scheme}"),
                "-Cdebuginfo=line-tables-only",
            ],
        );
        let call = fixture.call_site("program", "generic", "<sink>");
        let symbols = fixture.resolve(call);
        assert_eq!(lines(&symbols, call), [expected], "{}", symbols.report);
    }
}
