//! Process context: what OpenTelemetry says of a process, in the protobuf message that a program
//! publishes in its own memory (OTEP 4719).
//!
//! ```text
//! ProcessContext  1: Resource    1: KeyValue *       service.name, …
//!                 2: KeyValue *                      threadlocal.attribute_key_map, …
//! KeyValue        1: key   2: AnyValue
//! AnyValue        1: text   2: bool   3: integer   5: ArrayValue 1: AnyValue *
//! ```
//!
//! The bytes come from the program's memory and may be anything: what makes no sense is left out.

use crate::varint::take;

/// Name of the attribute that has the names of thread contexts' attributes.
const KEY_MAP: &str = "threadlocal.attribute_key_map";
/// Most attributes, and most names, that are kept.
const MOST: usize = 256;
/// Longest text that is kept, in bytes.
const LONGEST: usize = 1024;

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessContext {
    /// Attributes of the resource that are texts, numbers or truths.
    pub resource: Vec<(String, String)>,
    /// Names of the attributes of thread contexts, by their index.
    pub thread_keys: Vec<String>,
}

impl ProcessContext {
    /// Reads a message. Returns `None` if its fields are cut or of no known shape.
    pub fn read(message: &[u8]) -> Option<ProcessContext> {
        let mut context = ProcessContext::default();
        for field in fields(message) {
            match field? {
                (1, Value::Bytes(resource)) => {
                    for field in fields(resource) {
                        if let (1, Value::Bytes(attribute)) = field?
                            && let (key, Some(value)) = key_value(attribute)?
                            && let Some(value) = text_of(value)
                            && context.resource.len() < MOST
                        {
                            context.resource.push((key, value));
                        }
                    }
                }
                (2, Value::Bytes(attribute)) => {
                    if let (key, Some(value)) = key_value(attribute)?
                        && key == KEY_MAP
                    {
                        context.thread_keys = texts_of(value)?;
                    }
                }
                _ => {}
            }
        }
        Some(context)
    }
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A value that no field here has.
    Other,
}

/// Yields the fields of a message by their numbers; `None` for one that is cut, which is the last.
fn fields(mut message: &[u8]) -> impl Iterator<Item = Option<(u64, Value<'_>)>> {
    std::iter::from_fn(move || {
        if message.is_empty() {
            return None;
        }
        let field = field(&mut message);
        if field.is_none() {
            message = &[];
        }
        Some(field)
    })
}

fn field<'a>(message: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let tag = take(message)?;
    let mut bytes = |len: u64| {
        let (taken, rest) = message.split_at_checked(usize::try_from(len).ok()?)?;
        *message = rest;
        Some(taken)
    };
    let value = match tag & 7 {
        0 => Value::Number(take(message)?),
        1 => bytes(8).map(|_| Value::Other)?,
        2 => {
            let len = take(message)?;
            let (taken, rest) = message.split_at_checked(usize::try_from(len).ok()?)?;
            *message = rest;
            Value::Bytes(taken)
        }
        5 => bytes(4).map(|_| Value::Other)?,
        _ => return None,
    };
    Some((tag >> 3, value))
}

/// Returns the key and the value of an attribute.
fn key_value(attribute: &[u8]) -> Option<(String, Option<&[u8]>)> {
    let (mut key, mut value) = (String::new(), None);
    for field in fields(attribute) {
        match field? {
            (1, Value::Bytes(bytes)) => key = text(bytes),
            (2, Value::Bytes(bytes)) => value = Some(bytes),
            _ => {}
        }
    }
    Some((key, value))
}

fn text_of(value: &[u8]) -> Option<String> {
    fields(value).find_map(|field| match field? {
        (1, Value::Bytes(bytes)) => Some(text(bytes)),
        (2, Value::Number(truth)) => Some((truth != 0).to_string()),
        (3, Value::Number(number)) => Some(number.cast_signed().to_string()),
        _ => None,
    })
}

fn texts_of(value: &[u8]) -> Option<Vec<String>> {
    let mut texts = Vec::new();
    for field in fields(value) {
        if let (5, Value::Bytes(array)) = field? {
            for field in fields(array) {
                if let (1, Value::Bytes(value)) = field?
                    && texts.len() < MOST
                {
                    texts.push(text_of(value).unwrap_or_default());
                }
            }
        }
    }
    Some(texts)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::varint::put;
    use proptest::prelude::*;

    fn bytes(number: u64, content: &[u8]) -> Vec<u8> {
        let mut field = Vec::new();
        put(&mut field, number << 3 | 2);
        put(&mut field, content.len() as u64);
        [&field, content].concat()
    }

    fn attribute(key: &str, value: &[u8]) -> Vec<u8> {
        [bytes(1, key.as_bytes()), bytes(2, value)].concat()
    }

    fn message() -> Vec<u8> {
        let text = |text: &str| bytes(1, text.as_bytes());
        let resource = [
            bytes(1, &attribute("service.name", &text("shop"))),
            bytes(1, &attribute("replica", &[3 << 3, 7])),
            bytes(
                1,
                &attribute("ratio", &[&[4 << 3 | 1][..], &[0; 8]].concat()),
            ),
            vec![2 << 3, 1], // dropped_attributes_count
        ];
        let names = [bytes(1, &text("http_route")), bytes(1, &text("user"))].concat();
        [
            bytes(1, &resource.concat()),
            bytes(2, &attribute("threadlocal.schema_version", &text("tls_v1"))),
            bytes(2, &attribute(KEY_MAP, &bytes(5, &names))),
        ]
        .concat()
    }

    #[test]
    fn a_context_has_the_service_and_the_names_of_thread_attributes() {
        let context = ProcessContext::read(&message()).unwrap();
        let expected = [("service.name", "shop"), ("replica", "7")];
        assert_eq!(
            context.resource,
            expected.map(|(k, v)| (k.into(), v.into()))
        );
        assert_eq!(context.thread_keys, ["http_route", "user"]);
        assert_eq!(ProcessContext::read(&[]), Some(ProcessContext::default()));
    }

    #[test]
    fn a_message_that_is_cut_is_refused_or_lacks_its_last_fields() {
        let message = message();
        let whole = ProcessContext::read(&message).unwrap();
        let first = 2 + usize::from(message[1]);
        for end in 0..message.len() {
            if let Some(context) = ProcessContext::read(&message[..end]) {
                assert!(
                    end == 0 || end >= first && context.resource == whole.resource,
                    "{end}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = ProcessContext::read(&bytes);
        }

        #[test]
        fn no_damage_panics(at in 0usize..120, value in any::<u8>()) {
            let mut message = message();
            let at = at % message.len();
            message[at] = value;
            let _ = ProcessContext::read(&message);
        }
    }
}
