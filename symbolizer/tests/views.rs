//! Filters, groups and trees: what is shown of a profile, the same in every command and format.

use crate::common::{
    LogBuilder, SERVER_TRUTH, frame, heapprof, named, server_profile, server_symbols, stderr,
    stdout, write,
};
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use heapprof_symbolizer::export::pprof::proto;
use heapprof_symbolizer::export::{Format, Options};
use heapprof_symbolizer::resolve::Frame;
use heapprof_symbolizer::{
    By, Direction, Filter, LibraryFrames, Metric, Node, Profile, Symbols, Tree, groups,
    profile_of_log,
};
use prost::Message;
use serde::Deserialize;
use serde_json::Value;

fn filtered(focus: &str, ignore: &str, hide: &str) -> (Profile, Symbols) {
    let regex = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
    let filter = Filter {
        focus: regex(focus),
        ignore: regex(ignore),
        hide: regex(hide),
        ..Filter::default()
    };
    let mut profile = server_profile(1);
    let mut symbols = server_symbols(&profile);
    filter.apply(&mut profile, &mut symbols);
    (profile, symbols)
}

fn folded((profile, symbols): &(Profile, Symbols)) -> String {
    let options = Options {
        metric: Metric::AllocatedBytes.into(),
        ..Options::default()
    };
    let mut out = Vec::new();
    Format::Folded
        .write(profile, symbols, &options, &mut out)
        .unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines = text.split_inclusive('\n');
    lines.filter(|line| !line.starts_with('#')).collect()
}

/// See `server_log` for the picture of the stacks.
#[test]
fn filters_mean_what_pprofs_mean() {
    const REQUEST: &str = "[libc.so.6+0x100];main;serve;read_request;malloc 3000\n";
    const BUFFER: &str = "[libc.so.6+0x100];main;serve;read_request;grow_buffer;malloc 240\n";
    const INIT: &str = "[libc.so.6+0x100];main;demo::init(int);malloc 8388608\n";
    const HANDLER: &str = "[libc.so.6+0x100];main;serve;handler;malloc 128\n";
    let cases = [
        ("", "", "", vec![INIT, HANDLER, BUFFER, REQUEST]),
        ("read_request", "", "", vec![BUFFER, REQUEST]),
        ("src/signal", "", "", vec![HANDLER]),
        // (`serve` alone would match the program, /bin/server.)
        ("", "^serve$", "", vec![INIT]),
        ("^serve$", "handler|grow", "", vec![REQUEST]),
        // A module's path is a name, too.
        ("libc", "", "", vec![INIT, HANDLER, BUFFER, REQUEST]),
        ("nothing", "", "", vec![]),
    ];
    for (focus, ignore, hide, expected) in cases {
        let mut lines: Vec<String> = expected.iter().map(|l| (*l).to_owned()).collect();
        lines.sort();
        let case = filtered(focus, ignore, hide);
        assert_eq!(folded(&case), lines.concat(), "{focus}, {ignore}, {hide}");
    }
    // Hidden frames go, an inlined one out of its place, and a stack of nothing but them goes
    // whole.
    let hidden = folded(&filtered(
        "",
        "",
        "^serve$|grow_buffer|libc|malloc|main|handler",
    ));
    assert_eq!(hidden, "demo::init(int) 8388608\nread_request 3240\n");
}

/// A frame that is hidden at the inner end was no block's own site. The site stays the next frame,
/// and does not become the profiler's malloc.
#[test]
fn a_site_stays_where_it_was_when_malloc_is_hidden() {
    let sites = |hide: &str| {
        let (profile, symbols) = filtered("", "", hide);
        let mut sites: Vec<(String, u64)> = groups(
            &profile,
            &symbols,
            By::Function,
            Metric::AllocatedBytes,
            false,
        )
        .iter()
        .map(|group| (group.name.clone(), group.own.allocated_bytes))
        .filter(|(_, bytes)| *bytes > 0)
        .collect();
        sites.sort();
        sites
    };
    assert_eq!(sites("^malloc$"), sites(""));
    assert!(sites("").len() > 2);
}

#[test]
fn every_format_honours_the_filter_and_what_went_is_said() {
    let (profile, symbols) = filtered("demo::init", "", "main");
    assert_eq!(profile.numbers().in_use_bytes, 8 << 20);
    assert!(
        profile
            .account
            .remarks
            .iter()
            .any(|r| r.contains("focus demo::init"))
    );
    for format in Format::ALL {
        let mut out = Vec::new();
        format
            .write(&profile, &symbols, &Options::default(), &mut out)
            .unwrap();
        let text = String::from_utf8_lossy(&out);
        assert!(!text.contains("read_request"), "{}", format.name());
        assert!(
            !text.contains("\"main\"") && !text.contains(";main;"),
            "{}",
            format.name()
        );
    }
}

#[test]
fn groups_sum_to_the_whole() {
    let profile = server_profile(1);
    let symbols = server_symbols(&profile);
    for by in By::ALL {
        let groups = groups(&profile, &symbols, by, Metric::InUseBytes, false);
        let sum: u64 = groups.iter().map(|group| group.own.in_use_bytes).sum();
        assert_eq!(sum, SERVER_TRUTH[1], "{by}");
        let own: Vec<u64> = groups.iter().map(|group| group.own.in_use_bytes).collect();
        assert!(own.is_sorted_by(|a, b| a >= b), "{by}: {own:?}");
    }
    let first = |by| {
        groups(&profile, &symbols, by, Metric::InUseBytes, false)[0]
            .name
            .clone()
    };
    assert_eq!(first(By::Function), "demo::init(int)");
    assert_eq!(first(By::Line), "demo::init(int) src/init.cc:40");
    assert_eq!(first(By::File), "src/init.cc");
    assert_eq!(first(By::Module), "/bin/server");
    assert_eq!(first(By::Thread), "server (tid 77)");
    assert_eq!(first(By::Size), "up to 8.0 MiB");
    let cumulative = groups(&profile, &symbols, By::Function, Metric::InUseBytes, true);
    let main = cumulative
        .iter()
        .find(|group| group.name == "main")
        .unwrap();
    assert_eq!(
        (main.own.in_use_bytes, main.cumulative.in_use_bytes),
        (0, SERVER_TRUTH[1])
    );
}

fn shown(tree: &Tree, node: &Node, out: &mut String) {
    for child in tree.children(node) {
        out.push_str(&format!(
            "{}{} {}\n",
            " ".repeat(child.depth() - 1),
            tree.name(child),
            child.total.allocated_bytes
        ));
        shown(tree, child, out);
    }
}

#[test]
fn trees_go_down_to_callees_and_up_to_callers() {
    let profile = server_profile(1);
    let symbols = server_symbols(&profile);
    let tree = |direction: &Direction| {
        let tree = Tree::of(
            &profile,
            &symbols,
            By::Function,
            direction,
            Metric::AllocatedBytes.into(),
            LibraryFrames::Folded,
        );
        let mut text = String::new();
        shown(&tree, tree.root(), &mut text);
        text
    };
    assert_eq!(
        tree(&Direction::Down),
        "[libc.so.6+0x100] 8391976\n main 8391976\n  demo::init(int) 8388608\n   malloc 8388608\n  \
         serve 3368\n   read_request 3240\n    malloc 3000\n    grow_buffer 240\n     malloc 240\n   \
         handler 128\n    malloc 128\n"
    );
    assert_eq!(
        tree(&Direction::Callees("serve".into())),
        "serve 3368\n read_request 3240\n  malloc 3000\n  grow_buffer 240\n   malloc 240\n \
         handler 128\n  malloc 128\n"
    );
    // By the name without arguments.
    assert_eq!(
        tree(&Direction::Callers("demo::init".into())),
        "demo::init(int) 8388608\n main 8388608\n  [libc.so.6+0x100] 8388608\n"
    );
    assert_eq!(tree(&Direction::Callers("nobody".into())), "");
}

/// A tree shows the function of the standard library that the program calls, and none inside it.
#[test]
fn a_tree_folds_the_frames_of_libraries() {
    let (profile, symbols) = named(&[
        "main",
        "Sessions::open(int)",
        "std::vector<int>::push_back(int const&)",
        "void std::vector<int>::_M_realloc_insert<int const&>(int const&)",
        "std::for_each<int*, Visit>(int*, int*, Visit)",
        "Visit::operator()(int)",
        "std::string::_M_create(unsigned long&, unsigned long)",
        "operator new(unsigned long)",
        "malloc",
    ]);
    let tree = |direction: Direction, library_frames| {
        let metric = Metric::InUseBytes.into();
        let tree = Tree::of(
            &profile,
            &symbols,
            By::Function,
            &direction,
            metric,
            library_frames,
        );
        let names = tree.nodes().iter().skip(1).map(|node| tree.name(node));
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        tree(Direction::Down, LibraryFrames::Folded),
        [
            "main",
            "Sessions::open(int)",
            "std::vector<int>::push_back(int const&)",
            "Visit::operator()(int)",
            "std::string::_M_create(unsigned long&, unsigned long)",
        ]
    );
    assert_eq!(tree(Direction::Down, LibraryFrames::Shown).len(), 9);
    // A function that is asked for is not folded.
    assert_eq!(
        tree(Direction::Callers("malloc".into()), LibraryFrames::Folded)[..3],
        [
            "malloc",
            "std::string::_M_create(unsigned long&, unsigned long)",
            "Visit::operator()(int)",
        ]
    );
}

/// Deeper than a thread's stack has room for a call each: 2,000 frames of 25 functions, 24 of them
/// inlined,.
#[test]
fn a_tree_may_be_deep() {
    const FRAMES: usize = 2000;
    const DEPTH: usize = 25 * FRAMES;
    let mut log = LogBuilder::new(1);
    log.module("/bin/server", 0x1000, 0x100_000);
    let frames: Vec<u64> = (0..FRAMES as u64).map(|i| 0x2001 + 16 * i).collect();
    for from in [0, FRAMES / 2] {
        let stack = log.stack(&frames[from..]);
        log.alloc(stack, 4096);
    }
    let profile = profile_of_log(&log.end(), |_| {}).expect("a good log");
    let inlined: Vec<Frame> = (0..25)
        .map(|i| frame(&format!("f{i}"), "a.c", 1, i < 24))
        .collect();
    let places = profile.places(&profile.stacks[0]);
    let symbols = Symbols::given(&profile, places.map(|place| (place, inlined.clone())));
    for direction in [
        Direction::Down,
        Direction::Callers("f0".into()),
        Direction::Callees("f24".into()),
    ] {
        let metric = Metric::InUseBytes;
        let (by, library_frames) = (By::Function, LibraryFrames::Folded);
        let tree = Tree::of(
            &profile,
            &symbols,
            by,
            &direction,
            metric.into(),
            library_frames,
        );
        assert_eq!(tree.root().total.in_use_bytes, 2 * 4096);
        let deepest = tree.nodes().last().unwrap();
        assert_eq!((deepest.depth(), deepest.own.in_use_bytes), (DEPTH, 4096));
    }
}

/// Calls of a stack that is deeper than any that is recorded: each of its frames has functions
/// inlined into it.
const DEEP: usize = 20_000;
const INLINED: usize = 10;

/// A profile of pprof's of such a stack, and of one that ends half way.
fn deep_profile(folder: &std::path::Path) -> String {
    let words = ["", "inuse_space", "bytes"].map(String::from).into_iter();
    let names = (0..DEEP).map(|i| format!("f{i}"));
    let function = |i: usize| proto::Function {
        id: i as u64 + 1,
        name: i as i64 + 3,
        system_name: i as i64 + 3,
        ..proto::Function::default()
    };
    let line = |i: usize| proto::Line {
        function_id: i as u64 + 1,
        ..proto::Line::default()
    };
    let location = |at: usize| proto::Location {
        id: at as u64 + 1,
        address: 0x1000 + at as u64,
        line: (at * INLINED..(at + 1) * INLINED).map(line).collect(),
        ..proto::Location::default()
    };
    let sample = |from: usize| proto::Sample {
        location_id: (from..DEEP / INLINED).map(|at| at as u64 + 1).collect(),
        value: vec![4096],
        ..proto::Sample::default()
    };
    let message = proto::Profile {
        string_table: words.chain(names).collect(),
        sample_type: vec![proto::ValueType { r#type: 1, unit: 2 }],
        function: (0..DEEP).map(function).collect(),
        location: (0..DEEP / INLINED).map(location).collect(),
        sample: vec![sample(0), sample(DEEP / INLINED / 2)],
        ..proto::Profile::default()
    };
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&message.encode_to_vec()).unwrap();
    let path = write(folder, "deep.pb.gz", &packed.finish().unwrap());
    path.display().to_string()
}

#[test]
fn the_command_writes_deep_trees() {
    let folder = tempfile::tempdir().unwrap();
    let file = deep_profile(folder.path());
    let lines_of = |args: &[&str]| -> Vec<String> {
        let output = heapprof(&[&["tree", &file, "--min", "0"], args].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output).lines().map(str::to_owned).collect()
    };
    let down = lines_of(&[]);
    assert!(down.len() > DEEP, "{}", down.len());
    let up = lines_of(&["--callers", "f0"]);
    assert!(up.len() > DEEP, "{}", up.len());
}

/// A function that the user asks for is shown, however small its part of the whole is.
#[test]
fn the_callers_of_a_small_function_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = LogBuilder::new(1);
    let (large, small) = (log.stack(&[0x2001, 0x3001]), log.stack(&[0x2011, 0x3001]));
    log.alloc(large, 1 << 20);
    log.alloc(small, 100);
    let file = write(folder.path(), "s.heaplog", &log.end());
    let file = file.display().to_string();
    let tree = |args: &[&str]| {
        let output = heapprof(&[&["tree", &file], args].concat());
        stdout(&output)
    };
    let whole = tree(&[]);
    assert!(!whole.contains("[0x2011]"), "{whole}");
    let callers = tree(&["--callers", "[0x2011]"]);
    assert!(callers.contains("100 B   0.0%  [0x2011]"), "{callers}");
    assert!(callers.contains("[0x3000]"), "{callers}");
}

/// Nothing in use is not the same as no such function, and part of a name leads to the whole.
#[test]
fn a_tree_of_nothing_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = LogBuilder::new(1);
    let (kept, freed) = (log.stack(&[0x2001, 0x3001]), log.stack(&[0x2011, 0x3001]));
    log.alloc(kept, 1 << 20);
    let block = log.alloc(freed, 100);
    log.free(block);
    let file = write(folder.path(), "s.heaplog", &log.end());
    let file = file.display().to_string();
    let tree = |args: &[&str]| {
        let output = heapprof(&[&["tree", &file], args].concat());
        stdout(&output).lines().last().unwrap().to_owned()
    };
    assert_eq!(
        tree(&["--callers", "[0x2011]"]),
        "  nothing: in-use-bytes is 0 (-m allocated-bytes shows what was freed, too)"
    );
    assert_eq!(
        tree(&["--callees", "0x20"]),
        "  nothing: no stack has a function '0x20', by its whole name with namespaces and classes; perhaps '[0x2001]' or \
         '[0x2011]' is meant"
    );
    assert_eq!(
        tree(&["--callers", "handle"]),
        "  nothing: no stack has a function 'handle', by its whole name with namespaces and classes"
    );
    assert_eq!(
        tree(&["--focus", "handle"]),
        "  nothing: no stack matches, or in-use-bytes is 0"
    );
}

/// No reader of JSON has to hold 256 brackets and keys at once, as jq 1.6 does not, and all nodes
/// are there.
#[test]
fn json_of_a_deep_tree_goes_on_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = heapprof(&["tree", "--json", &deep_profile(folder.path())]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let (mut depth, mut deepest) = (0, 0);
    for byte in text.bytes() {
        match byte {
            // An object needs two places: one for the object, one for its key.
            b'{' => depth += 2,
            b'}' => depth -= 2,
            b'[' => depth += 1,
            b']' => depth -= 1,
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    assert!((200..256).contains(&deepest), "{deepest}");

    let mut reader = serde_json::Deserializer::from_str(&text);
    reader.disable_recursion_limit();
    let document = Value::deserialize(&mut reader).unwrap();
    let (mut node, mut calls, mut continuations) = (&document["tree"], 0, 0);
    loop {
        if let Some(at) = node["continued"].as_u64() {
            let again = &document["continued"][at as usize];
            assert_eq!(node["children"], serde_json::json!([]));
            assert_eq!(
                (&node["name"], &node["total"]),
                (&again["name"], &again["total"])
            );
            node = again;
            continuations += 1;
        }
        // The deepest stack goes on as long as any other.
        match node["children"].get(0) {
            Some(child) => node = child,
            None => break,
        }
        calls += 1;
    }
    assert_eq!((calls, continuations), (DEEP, (DEEP - 1) / 80));
    assert_eq!(
        document["continued"].as_array().unwrap().len(),
        continuations
    );
}

#[test]
fn a_recursive_function_counts_each_block_once() {
    let (profile, symbols) = named(&["main", "walk", "walk", "leaf", "walk", "malloc"]);
    for direction in [
        Direction::Callers("walk".into()),
        Direction::Callees("walk".into()),
    ] {
        let tree = Tree::of(
            &profile,
            &symbols,
            By::Function,
            &direction,
            Metric::InUseBytes.into(),
            LibraryFrames::Folded,
        );
        assert_eq!(tree.root().total.in_use_bytes, 4096, "{direction:?}");
    }
}
