//! The Firefox profiler's format, by the rules of version 55 of its processed profile: the keys
//! with their types, the rows that they name, and their order. The views of native allocations show
//! the right numbers.

use std::collections::BTreeMap;

use crate::common::totals::export;
use crate::common::{SERVER_TRUTH, server_profile, server_symbols};
use heapprof_symbolizer::Metric;
use heapprof_symbolizer::export::Format;
use serde_json::{Value, json};

/// A rule for each value of a column.
#[derive(Clone, Copy)]
enum Is {
    /// An index of a table of that many rows.
    Row(usize),
    /// One or `null`.
    MaybeRow(usize),
    /// One or -1.
    RowOrMinus(usize),
    /// A row of its own table that stands before it, or `null`.
    Before,
    Integer,
    /// An address, or -1.
    Address,
    MaybeInteger,
    Bool,
    Null,
    /// A number from 0 on.
    NotNegative,
    /// A number, never less than the one before.
    Ascending,
}

impl Is {
    fn holds(self, value: &Value, at: usize, before: Option<&Value>) -> bool {
        let row = |rows: usize| value.as_u64().is_some_and(|row| row < rows as u64);
        match self {
            Is::Row(rows) => row(rows),
            Is::MaybeRow(rows) => value.is_null() || row(rows),
            Is::RowOrMinus(rows) => value.as_i64() == Some(-1) || row(rows),
            Is::Before => value.is_null() || row(at),
            Is::Integer => value.is_i64() || value.is_u64(),
            Is::Address => value.is_u64() || value.as_i64() == Some(-1),
            Is::MaybeInteger => value.is_null() || value.is_u64(),
            Is::Bool => value.is_boolean(),
            Is::Null => value.is_null(),
            Is::NotNegative => value.as_f64().is_some_and(|number| number >= 0.0),
            Is::Ascending => value.as_f64().is_some_and(|number| {
                number >= before.and_then(Value::as_f64).unwrap_or(f64::NEG_INFINITY)
            }),
        }
    }
}

/// Exactly these columns, all of them as long as `length` says, each value by its rule.
fn table(table: &Value, name: &str, columns: &[(&str, Is)], more: &[&str]) -> Result<(), String> {
    let object = table.as_object().ok_or(format!("{name} is no object"))?;
    let length = table["length"].as_u64().ok_or(format!("{name}.length"))? as usize;
    for key in object.keys() {
        let known = key == "length"
            || more.contains(&key.as_str())
            || columns.iter().any(|(column, _)| column == key);
        known
            .then_some(())
            .ok_or(format!("{name}.{key}: no such key"))?;
    }
    for (column, is) in columns {
        let values = table[column]
            .as_array()
            .ok_or(format!("{name}.{column} is no list"))?;
        if values.len() != length {
            return Err(format!("{name}.{column}: {} of {length}", values.len()));
        }
        for (at, value) in values.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| &values[at]);
            if !is.holds(value, at, before) {
                return Err(format!("{name}.{column}[{at}]: {value}"));
            }
        }
    }
    Ok(())
}

fn rows(table: &Value) -> usize {
    table["length"].as_u64().unwrap_or(0) as usize
}

/// A key and what its value must be.
type Key<'a> = (&'a str, fn(&Value) -> bool);

fn has(object: &Value, name: &str, keys: &[Key<'_>]) -> Result<(), String> {
    for (key, is) in keys {
        let value = object.get(key).unwrap_or(&Value::Null);
        is(value)
            .then_some(())
            .ok_or(format!("{name}.{key}: {value}"))?;
    }
    Ok(())
}

fn processed_profile(file: &Value) -> Result<(), String> {
    let meta = &file["meta"];
    has(
        meta,
        "meta",
        &[
            ("version", Value::is_u64),
            ("preprocessedProfileVersion", |v| *v == json!(55)),
            ("interval", Value::is_number),
            ("startTime", Value::is_number),
            ("processType", Value::is_u64),
            ("product", Value::is_string),
            ("symbolicated", |v| *v == json!(true)),
            ("markerSchema", Value::is_array),
            ("extensions", Value::is_object),
        ],
    )?;
    let categories = meta["categories"].as_array().ok_or("meta.categories")?;
    let grey = categories.iter().filter(|one| one["color"] == "grey");
    (grey.count() == 1)
        .then_some(())
        .ok_or("one category must be grey")?;
    for category in categories {
        let of = &category["subcategories"];
        (category["name"].is_string() && of[0] == "Other")
            .then_some(())
            .ok_or("a category")?;
    }
    let libs = file["libs"].as_array().ok_or("libs")?;
    for lib in libs {
        has(
            lib,
            "lib",
            &[
                ("arch", Value::is_string),
                ("name", Value::is_string),
                ("path", Value::is_string),
                ("debugName", Value::is_string),
                ("debugPath", Value::is_string),
                ("breakpadId", |v| {
                    v.as_str().is_some_and(|id| id.len() >= 33)
                }),
                ("codeId", |v| v.is_null() || v.is_string()),
            ],
        )?;
    }
    let threads = file["threads"].as_array().ok_or("threads")?;
    (!threads.is_empty()).then_some(()).ok_or("no thread")?;
    for shown in ["initialVisibleThreads", "initialSelectedThreads"] {
        let list = meta[shown].as_array().ok_or(shown)?;
        let is = |i: &Value| Is::Row(threads.len()).holds(i, 0, None);
        list.iter().all(is).then_some(()).ok_or(shown)?;
    }
    threads
        .iter()
        .try_for_each(|one| thread(one, libs.len(), categories.len()))
}

fn thread(thread: &Value, libs: usize, categories: usize) -> Result<(), String> {
    has(
        thread,
        "thread",
        &[
            ("name", Value::is_string),
            ("processType", Value::is_string),
            ("isMainThread", Value::is_boolean),
            ("pid", Value::is_string),
            ("tid", |v| v.is_string() || v.is_u64()),
            ("processStartupTime", Value::is_number),
            ("registerTime", Value::is_number),
            ("pausedRanges", Value::is_array),
        ],
    )?;
    let strings = thread["stringArray"].as_array().ok_or("stringArray")?;
    strings
        .iter()
        .all(Value::is_string)
        .then_some(())
        .ok_or("a string")?;
    let strings = strings.len();
    let of = |name: &str| rows(&thread[name]);
    let stacks = of("stackTable");
    table(
        &thread["stackTable"],
        "stackTable",
        &[("prefix", Is::Before), ("frame", Is::Row(of("frameTable")))],
        &[],
    )?;
    table(
        &thread["frameTable"],
        "frameTable",
        &[
            ("address", Is::Address),
            ("inlineDepth", Is::Integer),
            ("category", Is::MaybeRow(categories)),
            ("subcategory", Is::MaybeInteger),
            ("func", Is::Row(of("funcTable"))),
            ("nativeSymbol", Is::MaybeRow(of("nativeSymbols"))),
            ("innerWindowID", Is::MaybeInteger),
            ("line", Is::MaybeInteger),
            ("column", Is::MaybeInteger),
        ],
        &[],
    )?;
    table(
        &thread["funcTable"],
        "funcTable",
        &[
            ("name", Is::Row(strings)),
            ("isJS", Is::Bool),
            ("relevantForJS", Is::Bool),
            ("resource", Is::RowOrMinus(of("resourceTable"))),
            ("fileName", Is::MaybeRow(strings)),
            ("lineNumber", Is::MaybeInteger),
            ("columnNumber", Is::MaybeInteger),
        ],
        &[],
    )?;
    table(
        &thread["resourceTable"],
        "resourceTable",
        &[
            ("lib", Is::MaybeRow(libs)),
            ("name", Is::Row(strings)),
            ("host", Is::MaybeRow(strings)),
            // 0 to 6; a library is 1.
            ("type", Is::Row(7)),
        ],
        &[],
    )?;
    table(
        &thread["nativeSymbols"],
        "nativeSymbols",
        &[
            ("libIndex", Is::Row(libs)),
            ("address", Is::Address),
            ("name", Is::Row(strings)),
            ("functionSize", Is::MaybeInteger),
        ],
        &[],
    )?;
    table(
        &thread["nativeAllocations"],
        "nativeAllocations",
        &[
            ("time", Is::Ascending),
            ("weight", Is::Integer),
            ("stack", Is::MaybeRow(stacks)),
            // With these two it is a table of which frees are known to be of which allocations, and
            // retained memory is shown.
            ("memoryAddress", Is::Integer),
            ("threadId", Is::Integer),
        ],
        &["weightType"],
    )?;
    (thread["nativeAllocations"]["weightType"] == "bytes")
        .then_some(())
        .ok_or("nativeAllocations.weightType")?;
    let no = Is::Null;
    table(
        &thread["markers"],
        "markers",
        &["category", "data", "name", "phase", "startTime", "endTime"].map(|key| (key, no)),
        &[],
    )?;
    let samples = &thread["samples"];
    let columns = [
        ("stack", Is::MaybeRow(stacks)),
        ("timeDeltas", Is::NotNegative),
        ("weight", Is::Integer),
        ("threadCPUDelta", Is::MaybeInteger),
    ];
    table(samples, "samples", &columns, &["weightType"])
}

/// By stack, as the viewer's four lists of native allocations add up: what is retained at the end,
/// allocated, freed by the stack of the allocation, and the running sum of its track, which never
/// falls below 0.
struct Views {
    retained: BTreeMap<Option<u64>, i64>,
    allocated: i64,
    freed: i64,
    highest: i64,
}

impl Views {
    fn of(file: &Value) -> Views {
        let table = &file["threads"][0]["nativeAllocations"];
        let column = |name: &str| table[name].as_array().expect("a column").iter();
        let mut views = Views {
            retained: BTreeMap::new(),
            allocated: 0,
            freed: 0,
            highest: 0,
        };
        let (mut live, mut running) = (BTreeMap::new(), 0);
        let rows = column("memoryAddress")
            .zip(column("weight"))
            .zip(column("stack"));
        for ((address, weight), stack) in rows {
            let (address, weight) = (address.as_u64(), weight.as_i64().expect("bytes"));
            running += weight;
            assert!(running >= 0, "more was freed than there was");
            views.highest = views.highest.max(running);
            if weight >= 0 {
                views.allocated += weight;
                assert_eq!(live.insert(address, (weight, stack)), None, "twice there");
            } else {
                views.freed -= weight;
                let (came, from) = live.remove(&address).expect("a free of what is there");
                assert_eq!(
                    (came, from),
                    (-weight, stack),
                    "the free of that allocation"
                );
            }
        }
        for (weight, stack) in live.into_values() {
            *views.retained.entry(stack.as_u64()).or_default() += weight;
        }
        views
    }
}

fn firefox(interval: u64) -> Value {
    let profile = server_profile(interval);
    let symbols = server_symbols(&profile);
    let text = export(Format::Firefox, &profile, &symbols, Metric::InUseBytes);
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn the_processed_profiles_rules_are_kept() {
    for interval in [1, 4096] {
        let file = firefox(interval);
        processed_profile(&file).unwrap_or_else(|what| panic!("{what}"));
    }
}

/// The check is one: each of these makes the viewer fail, or show something else.
#[test]
fn a_broken_one_is_told() {
    let file = firefox(1);
    for (path, bad) in [
        ("/meta/preprocessedProfileVersion", json!("55")),
        ("/meta/categories/0/color", json!("red")),
        ("/meta/initialSelectedThreads/0", json!(1)),
        ("/libs/0/breakpadId", json!("")),
        ("/threads/0/pid", json!(77)),
        ("/threads/0/stackTable/prefix/0", json!(0)),
        ("/threads/0/stackTable/frame/0", json!(9999)),
        ("/threads/0/frameTable/func/0", Value::Null),
        ("/threads/0/frameTable/nativeSymbol/0", json!(-1)),
        ("/threads/0/funcTable/name/0", json!("main")),
        ("/threads/0/funcTable/resource/0", json!(9999)),
        ("/threads/0/resourceTable/lib/0", json!(9999)),
        ("/threads/0/nativeSymbols/libIndex/0", json!(9999)),
        ("/threads/0/nativeAllocations/time/1", json!(-1.0)),
        ("/threads/0/nativeAllocations/weight/0", json!(0.5)),
        ("/threads/0/nativeAllocations/stack/0", json!(9999)),
        ("/threads/0/nativeAllocations/memoryAddress", json!([1])),
        ("/threads/0/nativeAllocations/threadId", Value::Null),
        ("/threads/0/nativeAllocations/length", json!(1)),
        ("/threads/0/nativeAllocations/weightType", json!("samples")),
        ("/threads/0/samples/timeDeltas", json!([0])),
        ("/threads/0/markers/length", json!(1)),
    ] {
        let mut broken = file.clone();
        *broken
            .pointer_mut(path)
            .unwrap_or_else(|| panic!("no {path}")) = bad;
        assert!(processed_profile(&broken).is_err(), "{path}");
    }
}

#[test]
fn retained_allocated_and_freed_bytes_are_those_of_the_server() {
    let [_, in_use, _, allocated] = SERVER_TRUTH.map(|n| n as i64);
    let views = Views::of(&firefox(1));
    assert_eq!(views.retained.values().sum::<i64>(), in_use);
    assert_eq!(views.allocated, allocated);
    assert_eq!(views.freed, allocated - in_use);
    // 8 MiB, three requests of 1000 at once, then one of them freed.
    assert_eq!(views.highest, (8 << 20) + 3000);
    // By stack: init, two requests, the handler; nothing of the buffers, which were freed.
    let mut retained: Vec<i64> = views.retained.into_values().collect();
    retained.sort_unstable();
    assert_eq!(retained, [128, 2000, 8 << 20]);
}
