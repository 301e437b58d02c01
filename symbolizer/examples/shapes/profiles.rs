//! Profiles of pprof's.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use heapprof_symbolizer::export::pprof::proto;
use prost::Message;

use crate::builder::write;

type Files = io::Result<Vec<PathBuf>>;

/// A profile of bytes in use and what is put in.
fn profile(folder: &Path, fill: impl FnOnce(&mut proto::Profile)) -> Files {
    let words = ["", "inuse_objects", "count", "inuse_space", "bytes"];
    let mut message = proto::Profile {
        string_table: words.map(String::from).into(),
        sample_type: vec![
            proto::ValueType { r#type: 1, unit: 2 },
            proto::ValueType { r#type: 3, unit: 4 },
        ],
        ..proto::Profile::default()
    };
    fill(&mut message);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&message.encode_to_vec())?;
    Ok(vec![write(folder, "input.pb.gz", &packed.finish()?)?])
}

/// The next string's number.
fn string(message: &mut proto::Profile, text: String) -> i64 {
    message.string_table.push(text);
    message.string_table.len() as i64 - 1
}

fn location(message: &mut proto::Profile, id: u64, address: u64) {
    message.location.push(proto::Location {
        id,
        address,
        ..proto::Location::default()
    });
}

fn sample(message: &mut proto::Profile, location_id: Vec<u64>) {
    message.sample.push(proto::Sample {
        location_id,
        value: vec![1, 100],
        label: Vec::new(),
    });
}

pub(crate) fn samples(count: u64, folder: &Path) -> Files {
    profile(folder, |message| {
        for id in 1..=1000 {
            location(message, id, 0x1000 * id);
        }
        for i in 0..count {
            sample(
                message,
                (0..5).map(|frame| 1 + (i >> (frame * 2)) % 1000).collect(),
            );
        }
    })
}

pub(crate) fn locations(count: u64, folder: &Path) -> Files {
    profile(folder, |message| {
        for id in 1..=count {
            let name = string(message, format!("function_{id}"));
            let filename = string(message, format!("/src/file_{id}.c"));
            message.function.push(proto::Function {
                id,
                name,
                system_name: name,
                filename,
                start_line: 1,
            });
            location(message, id, 0x1000 * id);
            if let Some(last) = message.location.last_mut() {
                last.line = vec![proto::Line {
                    function_id: id,
                    line: 7,
                    column: 0,
                }];
            }
            sample(message, vec![id, 1 + id / 2]);
        }
    })
}

pub(crate) fn mappings(count: u64, folder: &Path) -> Files {
    profile(folder, |message| {
        for id in 1..=count {
            let filename = string(message, format!("/srv/lib{id}.so"));
            message.mapping.push(proto::Mapping {
                id,
                memory_start: 0x1_0000,
                memory_limit: 0x200_0000 + id * 0x1000,
                filename,
                ..proto::Mapping::default()
            });
            location(message, id, 0x100_0000 + id * 16);
            sample(message, vec![id]);
        }
    })
}

pub(crate) fn labels(count: u64, folder: &Path) -> Files {
    profile(folder, |message| {
        location(message, 1, 0x1000);
        sample(message, vec![1]);
        let label = proto::Label {
            key: 2,
            ..proto::Label::default()
        };
        if let Some(last) = message.sample.last_mut() {
            last.label = vec![label; count as usize];
        }
    })
}
