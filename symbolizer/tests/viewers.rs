//! Viewers with a picture, as far as they can be asked without one: valgrind's own DHAT viewer, run
//! in node; and the rules that speedscope's schema states.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::common::totals::export;
use crate::common::{SERVER_TRUTH, server_profile, server_symbols, stderr, stdout, write};
use heapprof_symbolizer::Metric;
use heapprof_symbolizer::export::Format;
use serde_json::Value;

/// Returns what the page shows after the file is loaded.
fn dhat_view(file: &Path) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers/dhat_view.js");
    let output = Command::new("node")
        .arg(script)
        .arg("/usr/libexec/valgrind/dh_view.js")
        .arg(file)
        .output()
        .unwrap_or_else(|error| panic!("node: {error}; run scripts/install-deps"));
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

#[test]
fn valgrinds_viewer_shows_our_dhat_form_with_the_same_totals() {
    let folder = tempfile::tempdir().expect("a folder");
    let [in_use_blocks, in_use, allocated_blocks, allocated] = SERVER_TRUTH;
    let profile = server_profile(1);
    let symbols = server_symbols(&profile);
    let json = export(Format::Dhat, &profile, &symbols, Metric::InUseBytes);
    let shown = dhat_view(&write(folder.path(), "dhat.out.json", &json));
    let plain = shown.replace(',', "");
    let root: String = plain
        .lines()
        .skip_while(|l| !l.contains("PP 1/1"))
        .take(4)
        .collect();
    for (what, bytes, blocks) in [
        ("Total:", allocated, allocated_blocks),
        ("At t-end:", in_use, in_use_blocks),
    ] {
        let after = root
            .split(what)
            .nth(1)
            .unwrap_or_else(|| panic!("no {what} in {shown}"));
        assert!(
            after
                .trim_start()
                .starts_with(&format!("{bytes} bytes (100%")),
            "{what} {after}"
        );
        assert!(
            after.contains(&format!("in {blocks} blocks (100%")),
            "{what} {after}"
        );
    }
    for frame in [
        "grow_buffer (src/buffer.c:5)",
        "demo::init(int) (src/init.cc:40)",
        "in /lib/libc.so.6",
    ] {
        assert!(shown.contains(frame), "{frame} in {shown}");
    }
    // It checks what it reads: a number that is none is refused, and seen by us.
    let broken = String::from_utf8(json)
        .expect("UTF-8")
        .replacen("\"tb\":", "\"bt\":", 1);
    let broken = write(folder.path(), "broken.json", broken.as_bytes());
    let refused = std::panic::catch_unwind(|| dhat_view(&broken));
    assert!(refused.is_err() || refused.is_ok_and(|shown| !shown.contains("PP 1/1")));
}

/// A file of sampled profiles fits <https://www.speedscope.app/file-format-schema.json>.
#[test]
fn speedscopes_schema_is_kept() {
    for interval in [1, 4096] {
        let profile = server_profile(interval);
        let symbols = server_symbols(&profile);
        let json = export(
            Format::Speedscope,
            &profile,
            &symbols,
            Metric::AllocatedBytes,
        );
        let file: Value = serde_json::from_slice(&json).expect("JSON");
        speedscope(&file).unwrap_or_else(|what| panic!("{what}"));
        // The check is one.
        for (path, bad) in [
            ("/$schema", Value::from("http://example.org")),
            ("/profiles/0/unit", Value::from("MiB")),
            ("/profiles/0/weights", Value::from(vec![1])),
            ("/profiles/0/samples/0/0", Value::from(9999)),
            ("/shared/frames/0/name", Value::Null),
            ("/profiles/0/endValue", Value::from("much")),
        ] {
            let mut broken = file.clone();
            *broken
                .pointer_mut(path)
                .unwrap_or_else(|| panic!("no {path}")) = bad;
            assert!(speedscope(&broken).is_err(), "{path}");
        }
    }
}

fn speedscope(file: &Value) -> Result<(), String> {
    let is = |condition: bool, what: &str| condition.then_some(()).ok_or(what.to_owned());
    let schema = "https://www.speedscope.app/file-format-schema.json";
    is(file["$schema"] == schema, "$schema")?;
    let known = |object: &Value, allowed: &[&str]| -> bool {
        let object = object.as_object().expect("an object");
        object.keys().all(|key| allowed.contains(&key.as_str()))
    };
    is(
        known(
            file,
            &[
                "$schema",
                "shared",
                "profiles",
                "name",
                "activeProfileIndex",
                "exporter",
            ],
        ),
        "keys of the file",
    )?;
    let frames = file["shared"]["frames"].as_array().ok_or("frames")?;
    for frame in frames {
        is(
            known(frame, &["name", "file", "line", "col"]),
            "keys of a frame",
        )?;
        is(frame["name"].is_string(), "a frame's name")?;
        is(
            frame.get("file").is_none_or(Value::is_string),
            "a frame's file",
        )?;
        for number in ["line", "col"] {
            is(
                frame.get(number).is_none_or(Value::is_number),
                "a frame's line",
            )?;
        }
    }
    let profiles = file["profiles"].as_array().ok_or("profiles")?;
    is(!profiles.is_empty(), "no profile")?;
    if let Some(active) = file.get("activeProfileIndex") {
        is(
            active.as_u64().is_some_and(|i| i < profiles.len() as u64),
            "activeProfileIndex",
        )?;
    }
    let units = BTreeSet::from([
        "none",
        "nanoseconds",
        "microseconds",
        "milliseconds",
        "seconds",
        "bytes",
    ]);
    for profile in profiles {
        let keys = [
            "type",
            "name",
            "unit",
            "startValue",
            "endValue",
            "samples",
            "weights",
        ];
        is(
            known(profile, &keys) && keys.iter().all(|key| profile.get(key).is_some()),
            "keys",
        )?;
        is(profile["type"] == "sampled", "type")?;
        is(profile["name"].is_string(), "name")?;
        is(
            profile["unit"]
                .as_str()
                .is_some_and(|unit| units.contains(unit)),
            "unit",
        )?;
        is(
            profile["startValue"].is_number() && profile["endValue"].is_number(),
            "values",
        )?;
        let samples = profile["samples"].as_array().ok_or("samples")?;
        let weights = profile["weights"].as_array().ok_or("weights")?;
        is(samples.len() == weights.len(), "a weight for each sample")?;
        is(weights.iter().all(Value::is_number), "weights")?;
        for sample in samples {
            let sample = sample.as_array().ok_or("a sample")?;
            let exists = |i: &Value| i.as_u64().is_some_and(|i| i < frames.len() as u64);
            is(sample.iter().all(exists), "an index of a frame")?;
        }
    }
    Ok(())
}
