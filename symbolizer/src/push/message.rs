//! Message: one increment of one process as the body of a request, for one protocol.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;
use sha2::{Digest, Sha256};

use crate::export::{Increment, otlp, pprof};
use crate::model::profile::Profile;
use crate::naming::symbols::Symbols;
use crate::push::account::MessageTotals;

/// A protocol by which stores take profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Pyroscope's `/ingest`: a form with a pprof profile.
    Ingest,
    /// Pyroscope's `push.v1.PusherService/Push`, by Connect.
    Push,
    /// OTLP over HTTP.
    Otlp,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 3] = [Protocol::Ingest, Protocol::Push, Protocol::Otlp];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Ingest => "pyroscope",
            Protocol::Push => "pyroscope-push",
            Protocol::Otlp => "otlp",
        }
    }

    /// The path of the endpoint, below the address of the store.
    pub fn path(self) -> &'static str {
        match self {
            Protocol::Ingest => "/ingest",
            Protocol::Push => "/push.v1.PusherService/Push",
            Protocol::Otlp => "/v1development/profiles",
        }
    }
}

/// Names for a process, beside those in its log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// Name of the service; empty for the name of the program.
    pub service: String,
    /// Labels, by key.
    pub labels: Vec<(String, String)>,
}

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Query of the address, with its `?`; empty for none.
    pub(super) query: String,
    pub(super) content_type: &'static str,
    pub(super) is_gzip: bool,
    pub(super) body: Vec<u8>,
    pub(super) totals: MessageTotals,
}

/// Separates the parts of a form; a profile is compressed and does not hold it.
const BOUNDARY: &str = "heapprof-b0c2f7a95e1d4c86";
const FORM: &str = "multipart/form-data; boundary=heapprof-b0c2f7a95e1d4c86";

/// Pyroscope's view of the sample types: what is allocated adds up, what is in use does not.
const SAMPLE_TYPES: &str = concat!(
    r#"{"alloc_objects":{"units":"objects","aggregation":"sum","display-name":"alloc_objects","sampled":false},"#,
    r#""alloc_space":{"units":"bytes","aggregation":"sum","display-name":"alloc_space","sampled":false},"#,
    r#""inuse_objects":{"units":"objects","aggregation":"average","display-name":"inuse_objects","sampled":false},"#,
    r#""inuse_space":{"units":"bytes","aggregation":"average","display-name":"inuse_space","sampled":false}}"#,
);

/// Makes the message of an increment.
///
/// # Errors
/// Those of a compressor that writes to memory: none.
pub fn message_of(
    protocol: Protocol,
    profile: &Profile,
    symbols: &Symbols,
    increment: &Increment,
    subject: &Subject,
) -> io::Result<Message> {
    let numbers = increment.numbers();
    let totals = MessageTotals {
        messages: 1,
        allocated_objects: numbers.allocated_objects,
        allocated_bytes: numbers.allocated_bytes,
    };
    let mut message = Message {
        query: String::new(),
        content_type: "application/x-protobuf",
        is_gzip: true,
        body: Vec::new(),
        totals,
    };
    if protocol == Protocol::Otlp {
        let resource = otlp::Resource {
            service: subject.service.clone(),
            attributes: subject.labels.clone(),
        };
        let data = otlp::increment(profile, symbols, increment, &resource);
        message.body = gzip(&data.encode_to_vec())?;
        return Ok(message);
    }
    let mut pprof = Vec::new();
    pprof::write_increment(profile, symbols, increment, &mut pprof)?;
    let run = &profile.run;
    let service = match (subject.service.as_str(), run.name()) {
        ("", "") => "unknown_service",
        ("", name) => name,
        (service, _) => service,
    };
    let mut labels = subject.labels.clone();
    if run.pid != 0 && !labels.iter().any(|(key, _)| key == "pid") {
        labels.push(("pid".into(), run.pid.to_string()));
    }
    match protocol {
        Protocol::Ingest => {
            let wall = |ns: u64| run.start_wall_ns.saturating_add(ns) / 1_000_000_000;
            let from = wall(increment.from_ns);
            // An empty time is none.
            let until = wall(increment.to_ns).max(from + 1);
            message.query = format!(
                "?name={}&from={from}&until={until}&format=pprof&spyName=heapprof",
                escaped(&with_labels(service, &labels)),
            );
            message.content_type = FORM;
            message.is_gzip = false; // the profile is compressed
            message.body = form(&pprof)?;
        }
        Protocol::Push | Protocol::Otlp => {
            message.content_type = "application/proto";
            let id = uuid(&pprof, service, &labels);
            let own = [
                ("__name__", "memory"),
                // The allocated numbers are differences already.
                ("__delta__", "false"),
                ("service_name", service),
            ];
            let mut labels: Vec<connect::LabelPair> = (labels.iter())
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .chain(own)
                .map(|(name, value)| connect::LabelPair {
                    name: name.into(),
                    value: value.into(),
                })
                .collect();
            labels.sort_by(|a, b| a.name.cmp(&b.name));
            let request = connect::PushRequest {
                series: vec![connect::RawProfileSeries {
                    labels,
                    samples: vec![connect::RawSample {
                        raw_profile: pprof,
                        id,
                    }],
                }],
            };
            message.body = gzip(&request.encode_to_vec())?;
        }
    }
    Ok(message)
}

/// Messages of Pyroscope's package `push.v1`, by their field numbers.
pub(super) mod connect {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct PushRequest {
        #[prost(message, repeated, tag = "1")]
        pub(crate) series: Vec<RawProfileSeries>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct RawProfileSeries {
        #[prost(message, repeated, tag = "1")]
        pub(crate) labels: Vec<LabelPair>,
        #[prost(message, repeated, tag = "2")]
        pub(crate) samples: Vec<RawSample>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct LabelPair {
        #[prost(string, tag = "1")]
        pub(crate) name: String,
        #[prost(string, tag = "2")]
        pub(crate) value: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct RawSample {
        #[prost(bytes = "vec", tag = "1")]
        pub(crate) raw_profile: Vec<u8>,
        #[prost(string, tag = "2")]
        pub(crate) id: String,
    }
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(bytes)?;
    gzip.finish()
}

fn form(pprof: &[u8]) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    for (name, content) in [
        ("profile", pprof),
        ("sample_type_config", SAMPLE_TYPES.as_bytes()),
    ] {
        write!(
            body,
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        )?;
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    write!(body, "--{BOUNDARY}--\r\n")?;
    Ok(body)
}

/// `service{key=value,…}`, with what would end a part of it replaced.
fn with_labels(service: &str, labels: &[(String, String)]) -> String {
    let plain = |text: &str| text.replace(['{', '}', ',', '='], "_");
    let labels: Vec<String> = (labels.iter())
        .map(|(key, value)| format!("{}={}", plain(key), plain(value)))
        .collect();
    format!("{}{{{}}}", plain(service), labels.join(","))
}

/// As a value of a query.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            _ => {
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

/// The id of a profile: the same for the same content, so that a receiver knows a repetition. In
/// the form of a UUID of version 8.
fn uuid(pprof: &[u8], service: &str, labels: &[(String, String)]) -> String {
    let mut hash = Sha256::new();
    hash.update(with_labels(service, labels));
    hash.update([0]);
    hash.update(pprof);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_cannot_end_the_list_of_labels() {
        let labels = [("zone".into(), "a,b=c}&d".into())];
        assert_eq!(with_labels("sh{op", &labels), "sh_op{zone=a_b_c_&d}");
        assert_eq!(escaped("a b&c=ä"), "a%20b%26c%3D%C3%A4");
    }

    #[test]
    fn ids_are_uuids_and_differ_with_content() {
        let one = uuid(b"x", "s", &[]);
        assert_eq!(one, uuid(b"x", "s", &[]));
        assert_ne!(one, uuid(b"y", "s", &[]));
        assert_ne!(one, uuid(b"x", "t", &[]));
        assert_eq!((one.len(), &one[14..15]), (36, "8"));
    }

    #[test]
    fn the_sample_types_are_json() {
        let json: serde_json::Value = serde_json::from_str(SAMPLE_TYPES).expect("JSON");
        assert_eq!(json["inuse_space"]["aggregation"], "average");
        assert_eq!(json["alloc_space"]["aggregation"], "sum");
        assert!(FORM.ends_with(BOUNDARY));
    }
}
