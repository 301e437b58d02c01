//! Labels of the program: groups and filters, and labels in exported files.

use std::collections::BTreeMap;

use crate::common::processes::{begin, load, put};
use crate::common::{LogBuilder, heapprof, json, ok, stderr};
use heapprof_format::{ANY_LABEL, FOLDED_LABEL, Record};
use heapprof_symbolizer::export::otlp::proto::{ProfilesData, Value};
use prost::Message;

const TRACE: &str = "0102030405060708090a0b0c0d0e0f10";
const SPAN: &str = "a0a1a2a3a4a5a6a7";

/// Two stacks, each under labels and without; the second allocates in a span as well. The log of
/// another process differs in sizes alone.
fn log(pid: u32, unit: u64) -> Vec<u8> {
    let mut log = LogBuilder::new(1);
    log.begins(begin(pid, 1));
    load(&mut log, 0, 0x10000 * u64::from(pid));
    let at = |offset: u64| 0x10000 * u64::from(pid) + offset;
    let frames = |offset| [at(0x10), at(offset), at(0x900)];
    let acme = [("path", "/"), ("tenant", "acme")];
    let spanned = [("span_id", SPAN), ("tenant", "bolt"), ("trace_id", TRACE)];
    for (offset, size) in [(0x100, unit), (0x200, 2 * unit)] {
        let plain = log.stack(&frames(offset));
        let under = log.labelled(&frames(offset), &acme);
        log.alloc(plain, size);
        log.alloc(under, 10 * size);
        let freed = log.alloc(under, 100 * size);
        log.free(freed);
    }
    let under = log.labelled(&frames(0x200), &spanned);
    log.alloc(under, 1000 * unit);
    let folded = log.labelled(
        &frames(0x200),
        &[("tenant", "acme"), (ANY_LABEL, FOLDED_LABEL)],
    );
    log.alloc(folded, 10_000 * unit);
    log.record(|time_ns| Record::Resource {
        time_ns,
        attributes: vec![("service.name".into(), "shop".into())],
    });
    log.end()
}

/// Bytes by value of a label, as `top` says.
fn by_label(args: &[&str]) -> BTreeMap<String, u64> {
    let document = json(&[&["top", "--json", "-n", "0"], args].concat());
    let lines = document["groups"]
        .as_array()
        .or(document["sites"].as_array());
    let lines = lines.unwrap().iter();
    let bytes = |line: &serde_json::Value| {
        let name = line["group"].as_str().or(line["name"].as_str());
        (
            name.unwrap_or_default().to_owned(),
            line["self"]["in-use-bytes"].as_u64().unwrap(),
        )
    };
    lines.map(bytes).collect()
}

fn map(expected: &[(&str, u64)]) -> BTreeMap<String, u64> {
    expected.iter().map(|&(name, n)| (name.into(), n)).collect()
}

#[test]
fn numbers_are_grouped_and_filtered_by_labels() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(folder.path(), "a.heaplog", &log(1, 1));
    let tenants = [("(none)", 3), ("acme", 10_030), ("bolt", 1000)];
    assert_eq!(by_label(&["--by", "label:tenant", &file]), map(&tenants));
    let paths = [("(none)", 1003), ("/", 30), (FOLDED_LABEL, 10_000)];
    assert_eq!(by_label(&["--by", "label:path", &file]), map(&paths));
    let acme = ["--by", "label:path", "--where", "tenant=acme", &file];
    assert_eq!(by_label(&acme), map(&[("/", 30), (FOLDED_LABEL, 10_000)]));
    let both = [
        "--by",
        "label:path",
        "--where",
        "tenant=acme",
        "--where",
        "path=/",
        &file,
    ];
    assert_eq!(by_label(&both), map(&[("/", 30)]));
    let none = ["--by", "label:tenant", "--where", "tenant=(none)", &file];
    assert_eq!(by_label(&none), map(&[("(none)", 3)]));
    // The filter is stated, and what is not of its form is refused.
    let text = ok(&["top", "--where", "tenant=bolt", &file]);
    assert!(text.contains("filtered (where tenant=bolt)"), "{text}");
    for wrong in [["--where", "tenant"], ["--where", "=x"], ["--by", "label:"]] {
        let refused = heapprof(&[&["top"], &wrong[..], &[&file]].concat());
        assert!(!refused.status.success(), "{wrong:?}");
        assert!(stderr(&refused).contains(wrong[0]), "{}", stderr(&refused));
    }
    let tree = ok(&["tree", "--by", "label:tenant", "--where", "path=/", &file]);
    assert!(tree.contains("acme") && !tree.contains("bolt"), "{tree}");
    let info = ok(&["info", &file]);
    for line in [
        "label         path, 1 value",
        "label         tenant, 2 values",
        "service.name=shop",
    ] {
        assert!(info.contains(line), "{line}: {info}");
    }
    let info = json(&["info", "--json", &file]);
    assert_eq!(info["run"]["labels"]["tenant"], 2);
    assert_eq!(info["run"]["resource"]["service.name"], "shop");
}

/// Curves of the parts under each label add up to the curve of all.
#[test]
fn curves_and_pages_are_of_a_label() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(folder.path(), "a.heaplog", &log(1, 1));
    let steps = |args: &[&str]| -> Vec<(u64, u64)> {
        let document = json(&[&["timeline", "--json", "--steps", "7", &file], args].concat());
        let of = |step: &serde_json::Value, name: &str| step[name].as_f64().unwrap() as u64;
        let steps = document["steps"].as_array().unwrap().iter();
        steps
            .map(|step| (of(step, "in_use_bytes"), of(step, "allocated_bytes")))
            .collect()
    };
    let mut sums = vec![(0, 0); 7];
    for tenant in ["tenant=acme", "tenant=bolt", "tenant=(none)"] {
        for (sum, step) in sums.iter_mut().zip(steps(&["--where", tenant])) {
            *sum = (sum.0 + step.0, sum.1 + step.1);
        }
    }
    assert_eq!(sums, steps(&[]));
    assert_eq!(steps(&["--where", "tenant=bolt"])[6].0, 1000);
    let text = ok(&["timeline", "--top", "2", "--where", "tenant=acme", &file]);
    assert!(text.contains("filtered (where tenant=acme)"), "{text}");
    assert!(
        text.contains("peak at ") && !text.contains("--at peak"),
        "{text}"
    );
    let page = folder.path().join("page.html");
    let page = page.to_str().unwrap();
    ok(&["report", "--where", "tenant=bolt", &file, "-o", page]);
    let text = std::fs::read_to_string(page).unwrap();
    assert!(text.contains("filtered (where tenant=bolt)") && !text.contains("acme"));
}

/// A filter that leaves nothing says why, whatever shows it.
#[test]
fn a_filter_says_what_labels_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(folder.path(), "a.heaplog", &log(1, 1));
    let mut plain = LogBuilder::new(1);
    plain.stack(&[0x1010, 0x1020]);
    plain.alloc(0, 100);
    let plain = put(folder.path(), "b.heaplog", &plain.end());
    let page = folder.path().join("page.html");
    let page = page.to_str().unwrap();
    let folded = ["export", "-f", "folded"];
    for command in [
        &["top"][..],
        &["tree"],
        &folded,
        &["timeline"],
        &["report", "-o", page],
        &["diff", "--force", &plain],
    ] {
        let said = |file: &str, label: &str| {
            let out = heapprof(&[command, &["--where", label, file]].concat());
            stderr(&out)
        };
        let text = said(&plain, "tenant=acme");
        assert!(text.contains("nothing has a label"), "{command:?}: {text}");
        if command[0] == "diff" {
            continue;
        }
        let text = said(&file, "tenant=other");
        assert!(text.contains("leaves nothing"), "{command:?}: {text}");
        // A key of which values were folded may be any.
        let text = said(&file, "tenat=acme");
        assert!(text.contains("leaves nothing"), "{command:?}: {text}");
    }
    let mut few = LogBuilder::new(1);
    let under = few.labelled(&[0x1010, 0x1020], &[("path", "/"), ("tenant", "acme")]);
    few.alloc(under, 100);
    let few = put(folder.path(), "c.heaplog", &few.end());
    let text = stderr(&heapprof(&["top", "--where", "tenat=acme", &few]));
    assert!(
        text.contains("no label has the key tenat; there are: path, tenant"),
        "{text}"
    );
}

#[test]
fn differences_are_by_label_or_of_a_label() {
    let folder = tempfile::tempdir().unwrap();
    let a = put(folder.path(), "a.heaplog", &log(1, 1));
    let b = put(folder.path(), "b.heaplog", &log(2, 3));
    let differences = |args: &[&str]| -> BTreeMap<String, f64> {
        let document = json(&[&["diff", "--json", "-n", "0", "--force", &a, &b], args].concat());
        let sites = document["sites"].as_array().unwrap().iter();
        let site = |site: &serde_json::Value| {
            (
                site["function"].as_str().unwrap().to_owned(),
                site["difference"].as_f64().unwrap(),
            )
        };
        let total = document["total"]["difference"].as_f64().unwrap();
        sites
            .map(site)
            .chain([("total".to_owned(), total)])
            .collect()
    };
    let of = |expected: &[(&str, f64)]| -> BTreeMap<String, f64> {
        expected.iter().map(|&(name, n)| (name.into(), n)).collect()
    };
    assert_eq!(
        differences(&["--by", "label:tenant"]),
        of(&[
            ("(none)", 6.0),
            ("acme", 20_060.0),
            ("bolt", 2000.0),
            ("total", 22_066.0)
        ])
    );
    let site = differences(&["--where", "tenant=bolt"]);
    assert_eq!(site["total"], 2000.0, "{site:?}");
    assert_eq!(site.len(), 2, "{site:?}");
    // Two moments of one log.
    let document = json(&[
        "diff",
        "--json",
        "--at",
        "start",
        "--at",
        "end",
        "--by",
        "label:tenant",
        &a,
    ]);
    assert_eq!(document["total"]["difference"], 11_033.0);
    assert_eq!(document["sites"].as_array().unwrap().len(), 3);
}

#[test]
fn labels_survive_a_merge_a_join_and_pprof() {
    let folder = tempfile::tempdir().unwrap();
    let a = put(folder.path(), "a.heaplog", &log(1, 1));
    let b = put(folder.path(), "b.heaplog", &log(2, 3));
    let sums = map(&[("(none)", 12), ("acme", 40_120), ("bolt", 4000)]);
    assert_eq!(by_label(&["--by", "label:tenant", &a, &b]), sums);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let joined = path("joined.heaplog");
    ok(&["join", "-o", &joined, &a, &b]);
    // The blocks of the process that ends first end with it.
    let last = by_label(&["--by", "label:tenant", &b]);
    assert_eq!(by_label(&["--by", "label:tenant", &joined]), last);
    let pprof = path("a.pb.gz");
    ok(&["export", "-f", "pprof", "-o", &pprof, &a]);
    for key in ["tenant", "path", "span_id"] {
        let by = format!("label:{key}");
        let of = |file: &String| by_label(&["--by", &by, file]);
        assert_eq!(of(&pprof), of(&a), "{key}");
    }
}

#[test]
fn otlp_has_spans_as_links_and_other_labels_as_attributes() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(folder.path(), "a.heaplog", &log(1, 1));
    let out = folder.path().join("a.otlp");
    ok(&["export", "-f", "otlp", "-o", out.to_str().unwrap(), &file]);
    let data = ProfilesData::decode(&std::fs::read(out).unwrap()[..]).unwrap();
    let dictionary = data.dictionary.unwrap();
    let resource = &data.resource_profiles[0];
    let service = &resource.resource.as_ref().unwrap().attributes;
    let service = service.iter().find(|it| it.key == "service.name").unwrap();
    let name = service.value.as_ref().unwrap().value.clone();
    assert_eq!(name, Some(Value::StringValue("shop".into())));
    let profile = &resource.scope_profiles[0].profiles;
    let in_use = &profile[3]; // in Go's order
    let mut seen = BTreeMap::new();
    for sample in &in_use.samples {
        let mut labels: Vec<String> = Vec::new();
        for &index in &sample.attribute_indices {
            let attribute = &dictionary.attribute_table[index as usize];
            if let Some(Value::StringValue(value)) = attribute.value.clone().unwrap().value {
                let key = &dictionary.string_table[attribute.key_strindex as usize];
                labels.push(format!("{key}={value}"));
            }
        }
        let link = &dictionary.link_table[sample.link_index as usize];
        let hex = |id: &[u8]| {
            id.iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        let link = (hex(&link.trace_id), hex(&link.span_id));
        *seen.entry((labels.join(" "), link)).or_insert(0) += sample.values[0];
    }
    let none = || (String::new(), String::new());
    let expected = [
        ((String::new(), none()), 3),
        (("path=/ tenant=acme".to_owned(), none()), 30),
        (
            ("tenant=bolt".to_owned(), (TRACE.into(), SPAN.into())),
            1000,
        ),
        (("*=(other) tenant=acme".to_owned(), none()), 10_000),
    ];
    assert_eq!(seen, BTreeMap::from(expected));
    assert_eq!(dictionary.link_table.len(), 2);
}
