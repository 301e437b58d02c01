//! Receiver: the store of profiles, at its address, with one HTTP request for a message.

use std::fmt;
use std::time::Duration;

use prost::Message as _;
use ureq::http::{HeaderName, HeaderValue, Uri};
use ureq::tls::{RootCerts, TlsConfig};

use crate::push::message::{Message, Protocol};

/// The longest that a connection may take to be made.
const LONGEST_CONNECT: Duration = Duration::from_secs(10);
/// The most that is read of an answer.
const MOST_ANSWER: u64 = 64 << 10;
/// The most of an answer that is shown.
const MOST_SHOWN: usize = 200;

/// See the module's text.
pub struct Receiver {
    agent: ureq::Agent,
    address: String,
    protocol: Protocol,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The longest that one request may take.
    timeout: Duration,
    is_secret_in_the_clear: bool,
}

/// Headers with which a receiver knows who sends.
#[derive(Clone, Default)]
pub struct Credentials {
    /// `user:password` for basic authentication.
    pub basic: Option<String>,
    /// Further headers, by name.
    pub headers: Vec<(String, String)>,
}

/// Why there is no such receiver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReceiverError {
    /// The address is none.
    #[error("{0} is no address of a store; http://HOST:PORT or https://HOST is")]
    Address(String),
    /// Every user of the machine sees the command line.
    #[error(
        "the address holds a password, which every user of this machine sees; give it in a file"
    )]
    PasswordInAddress,
    /// The header cannot be sent.
    #[error("{0:?} is no header that can be sent")]
    Header(String),
}

/// The receiver's answer to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Taken,
    /// Taken, but for some profiles.
    PartlyRejected(String),
    /// Not HTTP's fault, and no answer of the protocol.
    NotUnderstood(String),
    /// A repetition may help, not before that time if the receiver says one.
    Later(String, Option<Duration>),
    /// A repetition would not help.
    Refused(String),
}

impl fmt::Debug for Credentials {
    /// Says how many there are, and no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("basic", &self.basic.is_some())
            .field("headers", &self.headers.len())
            .finish()
    }
}

impl Receiver {
    /// A receiver at an address, to which the path of the protocol is added if it is not there.
    ///
    /// # Errors
    /// When the address or a header cannot be used.
    pub fn of(
        address: &str,
        protocol: Protocol,
        credentials: &Credentials,
        timeout: Duration,
    ) -> Result<Receiver, ReceiverError> {
        let no_address = || ReceiverError::Address(address.into());
        let uri: Uri = address.parse().map_err(|_| no_address())?;
        let authority = uri.authority().ok_or_else(no_address)?;
        if authority.as_str().contains('@') {
            return Err(ReceiverError::PasswordInAddress);
        }
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.query().is_some() {
            return Err(no_address());
        }
        let base = address.trim_end_matches('/');
        let base = base.strip_suffix(protocol.path()).unwrap_or(base);
        let mut headers = Vec::new();
        let basic = (credentials.basic.iter()).map(|basic| {
            (
                "Authorization".into(),
                format!("Basic {}", base64(basic.as_bytes())),
            )
        });
        for (name, value) in basic.chain(credentials.headers.iter().cloned()) {
            let header = || ReceiverError::Header(name.clone());
            let mut value = HeaderValue::try_from(&value).map_err(|_| header())?;
            value.set_sensitive(true);
            headers.push((HeaderName::try_from(&name).map_err(|_| header())?, value));
        }
        let host = authority.host().trim_matches(['[', ']']);
        let is_here = host == "localhost"
            || (host.parse()).is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
        let is_secure = uri.scheme_str() == Some("https");
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier);
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            // A POST that is led elsewhere becomes a GET, or hands the credentials to another.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .https_only(is_secure)
            .user_agent(concat!("heapprof/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls.build())
            .build();
        Ok(Receiver {
            agent: config.into(),
            address: format!("{base}{}", protocol.path()),
            protocol,
            is_secret_in_the_clear: !headers.is_empty() && !is_secure && !is_here,
            headers,
            timeout,
        })
    }

    /// The address that messages are sent to.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether headers go over a network unencrypted.
    pub fn is_secret_in_the_clear(&self) -> bool {
        self.is_secret_in_the_clear
    }

    /// Sends a message once, within that time at the longest.
    pub(super) fn send(&self, message: &Message, within: Duration) -> Answer {
        let within = self.timeout.min(within);
        let address = format!("{}{}", self.address, message.query);
        let mut request = (self.agent.post(&address))
            .header("Content-Type", message.content_type)
            .config()
            .timeout_global(Some(within))
            .timeout_connect(Some(within.min(LONGEST_CONNECT)))
            .build();
        if message.is_gzip {
            request = request.header("Content-Encoding", "gzip");
        }
        if self.protocol == Protocol::Push {
            request = request.header("Connect-Protocol-Version", "1");
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let mut response = match request.send(&message.body[..]) {
            Ok(response) => response,
            Err(error) => return Answer::Later(error.to_string(), None),
        };
        let status = response.status().as_u16();
        let after = (response.headers().get("retry-after"))
            .and_then(|value| value.to_str().ok()?.trim().parse().ok())
            .map(Duration::from_secs);
        let body = (response.body_mut().with_config().limit(MOST_ANSWER)).read_to_vec();
        self.judge(status, after, body.map_err(|error| error.to_string()))
    }

    /// The meaning of an answer.
    fn judge(&self, status: u16, after: Option<Duration>, body: Result<Vec<u8>, String>) -> Answer {
        let why = || {
            let text = body.as_deref().unwrap_or_default();
            let text = String::from_utf8_lossy(&text[..text.len().min(MOST_SHOWN)]);
            match text.trim() {
                "" => format!("status {status}"),
                text => format!("status {status}: {text}"),
            }
        };
        match status {
            200..300 => {}
            408 | 429 | 502 | 503 | 504 => return Answer::Later(why(), after),
            // OTLP forbids to repeat what was answered so; Pyroscope answers so while it starts.
            500 if self.protocol != Protocol::Otlp => return Answer::Later(why(), after),
            _ => return Answer::Refused(why()),
        }
        let Ok(body) = &body else {
            return Answer::NotUnderstood(why());
        };
        match self.protocol {
            Protocol::Ingest => Answer::Taken,
            Protocol::Push => match Nothing::decode(&body[..]) {
                Ok(_) => Answer::Taken,
                // A proxy that speaks JSON for the store.
                Err(_) if body.trim_ascii() == b"{}" => Answer::Taken,
                Err(_) => Answer::NotUnderstood(why()),
            },
            Protocol::Otlp => match ExportResponse::decode(&body[..]) {
                Ok(ExportResponse {
                    partial_success: Some(part),
                }) if part.rejected_profiles > 0 => Answer::PartlyRejected(format!(
                    "{} profiles rejected: {}",
                    part.rejected_profiles, part.error_message
                )),
                Ok(_) => Answer::Taken,
                Err(_) => Answer::NotUnderstood(why()),
            },
        }
    }
}

/// The answer of the push service.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Nothing {}

/// The answer of OpenTelemetry's `ProfilesService/Export`.
#[derive(Clone, PartialEq, prost::Message)]
struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_profiles: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// Bytes in the base-64 alphabet of RFC 4648, padded.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let three = [0, 1, 2].map(|at| u32::from(chunk.get(at).copied().unwrap_or(0)));
        let bits = three[0] << 16 | three[1] << 8 | three[2];
        for digit in 0..4 {
            match digit <= chunk.len() {
                true => text.push(char::from(
                    ALPHABET[(bits >> (18 - 6 * digit)) as usize & 63],
                )),
                false => text.push('='),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(address: &str, protocol: Protocol) -> Result<Receiver, ReceiverError> {
        let credentials = Credentials {
            basic: Some("u:p".into()),
            headers: Vec::new(),
        };
        Receiver::of(address, protocol, &credentials, Duration::from_secs(1))
    }

    #[test]
    fn the_path_is_added_once() {
        for (address, protocol, full) in [
            (
                "http://h:4318",
                Protocol::Otlp,
                "http://h:4318/v1development/profiles",
            ),
            (
                "http://h/v1development/profiles",
                Protocol::Otlp,
                "http://h/v1development/profiles",
            ),
            (
                "https://h/tenant/",
                Protocol::Ingest,
                "https://h/tenant/ingest",
            ),
            (
                "http://[::1]:1",
                Protocol::Push,
                "http://[::1]:1/push.v1.PusherService/Push",
            ),
        ] {
            assert_eq!(receiver(address, protocol).expect(address).address(), full);
        }
    }

    #[test]
    fn what_is_no_address_or_shows_a_password_is_refused() {
        for wrong in ["", "h:1", "ftp://h", "/x", "http://", "http://h/?x=1"] {
            assert!(
                matches!(
                    receiver(wrong, Protocol::Otlp),
                    Err(ReceiverError::Address(_))
                ),
                "{wrong}"
            );
        }
        let error = receiver("https://u:secret@h", Protocol::Otlp).err();
        assert_eq!(error, Some(ReceiverError::PasswordInAddress));
        let header = Credentials {
            basic: None,
            headers: vec![("X-Key".into(), "a\nb".into())],
        };
        let made = Receiver::of("http://h", Protocol::Otlp, &header, Duration::ZERO);
        assert_eq!(made.err(), Some(ReceiverError::Header("X-Key".into())));
    }

    #[test]
    fn a_secret_is_in_the_clear_on_a_network_without_tls_only() {
        for (address, is_clear) in [
            ("http://store:4040", true),
            ("http://10.0.0.1", true),
            ("https://store", false),
            ("http://127.0.0.1:1", false),
            ("http://[::1]:1", false),
            ("http://localhost", false),
        ] {
            let made = receiver(address, Protocol::Ingest).expect(address);
            assert_eq!(made.is_secret_in_the_clear(), is_clear, "{address}");
        }
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (text, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
            ("\u{ff}?>", "w78/Pg=="),
        ] {
            assert_eq!(base64(text.as_bytes()), encoded);
        }
    }

    #[test]
    fn answers_are_judged_by_their_protocol() {
        let otlp = receiver("http://h", Protocol::Otlp).expect("one");
        let push = receiver("http://h", Protocol::Push).expect("one");
        let judge = |receiver: &Receiver, status, body: &[u8]| {
            receiver.judge(status, None, Ok(body.to_vec()))
        };
        let rejected = ExportResponse {
            partial_success: Some(PartialSuccess {
                rejected_profiles: 2,
                error_message: "no".into(),
            }),
        };
        assert_eq!(judge(&otlp, 200, b""), Answer::Taken);
        let text = "2 profiles rejected: no".to_owned();
        assert_eq!(
            judge(&otlp, 200, &rejected.encode_to_vec()),
            Answer::PartlyRejected(text)
        );
        assert!(matches!(
            judge(&otlp, 200, b"<html>"),
            Answer::NotUnderstood(_)
        ));
        assert!(matches!(
            judge(&push, 200, b"<html>"),
            Answer::NotUnderstood(_)
        ));
        assert_eq!(judge(&push, 200, b"{}"), Answer::Taken);
        assert!(matches!(judge(&otlp, 500, b""), Answer::Refused(_)));
        assert!(matches!(judge(&push, 500, b""), Answer::Later(_, None)));
        for status in [429, 502, 503, 504] {
            assert!(matches!(judge(&otlp, status, b""), Answer::Later(_, None)));
        }
        for status in [301, 400, 401, 404, 413, 422] {
            assert!(matches!(judge(&push, status, b""), Answer::Refused(_)));
        }
    }
}
