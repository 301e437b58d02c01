//! HTTP: one request from a connection, and one response to it, within bounds of size and time.
//!
//! `httparse` reads the head. The rest is here, because a server on a port that anybody can reach
//! needs a bound for each thing that a client decides: the length of the head and of the body, and
//! the time until they are there.

use super::work_slots::WorkSlot;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Bytes of a request's first line and headers.
const MOST_HEAD: usize = 16 << 10;
/// Headers of a request.
const MOST_HEADERS: usize = 64;
/// Bytes of a request's body.
const MOST_BODY: usize = 64 << 10;
/// Headers that decide who asks. One that comes twice has no one value, and is not as if missing.
const ONCE: [&str; 5] = [
    "host",
    "origin",
    "authorization",
    "sec-fetch-mode",
    "sec-fetch-site",
];
/// The time for a whole request, from its first byte.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// The time for which a connection may be idle between two requests.
const IDLE_TIME: Duration = Duration::from_secs(30);
/// The time for one write to make progress.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// The time for a whole response: a client that reads slowly does not keep it in memory for ever.
const RESPONSE_TIME: Duration = Duration::from_secs(120);
/// Bytes of a response between two looks at the time.
const WRITE_CHUNK: usize = 64 << 10;

/// The methods that are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Head,
    Post,
    /// Any other one.
    Other,
}

/// A request, as far as it matters here.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) method: Method,
    /// Decoded; begins with a slash.
    pub(super) path: String,
    /// As it came, without the question mark.
    pub(super) raw_query: String,
    pub(super) body: Vec<u8>,
    pub(super) keeps_alive: bool,
    /// Names in lower case.
    headers: Vec<(String, String)>,
}

impl Request {
    /// The value of a header; its name in lower case. `None` if it is missing or comes twice.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(key, _)| key == name);
        let (_, value) = found.next()?;
        found.next().is_none().then_some(value)
    }

    /// The value of a parameter of the query.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        value_of(&self.raw_query, name)
    }

    /// For `/pid/N/REST` and `/log/ID/REST`: the request for `/REST` of that process, whatever the
    /// query says. Programs that make an address from another one keep its path, and drop its
    /// query.
    pub(super) fn narrowed(&self) -> Option<Request> {
        let mut parts = self.path.splitn(4, '/').skip(1);
        let (key, value, rest) = (parts.next()?, parts.next()?, parts.next()?);
        let is_word = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_key = |key: &str| matches!(key, "pid" | "log");
        if !is_key(key) || !is_word {
            return None;
        }
        let mut raw_query = format!("{key}={value}");
        for pair in self.raw_query.split('&') {
            let name = pair.split('=').next().unwrap_or_default();
            if !is_key(&decoded(name, true)) {
                raw_query.push('&');
                raw_query.push_str(pair);
            }
        }
        Some(Request {
            path: format!("/{rest}"),
            raw_query,
            ..self.clone()
        })
    }

    /// The value of a field of the form in the body.
    pub(super) fn field(&self, name: &str) -> Option<String> {
        value_of(std::str::from_utf8(&self.body).ok()?, name)
    }
}

/// The value of a key in `key=value&…`.
fn value_of(pairs: &str, name: &str) -> Option<String> {
    let mut pairs = pairs
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let (_, value) = pairs.find(|(key, _)| decoded(key, true) == name)?;
    Some(decoded(value, true))
}

/// Text with its `%XX` replaced.
fn decoded(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits = bytes
            .get(at + 1..at + 3)
            .and_then(|two| std::str::from_utf8(two).ok());
        let code = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        match (byte, code) {
            (b'%', Some(code)) => {
                out.push(code);
                at += 2;
            }
            (b'+', _) if plus_is_space => out.push(b' '),
            _ => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Why there is no request.
#[derive(Debug)]
pub(super) enum NoRequest {
    /// The connection is over: closed, idle for too long, or broken.
    Over,
    /// The client is told this, and the connection ends.
    Refused(Response),
}

impl From<io::Error> for NoRequest {
    fn from(_: io::Error) -> NoRequest {
        NoRequest::Over
    }
}

/// A connection with the bytes that came ahead of what was asked for.
pub(super) struct Connection {
    stream: TcpStream,
    ahead: Vec<u8>,
}

impl Connection {
    pub(super) fn of(stream: TcpStream) -> io::Result<Connection> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_TIME))?;
        Ok(Connection {
            stream,
            ahead: Vec::new(),
        })
    }

    /// Reads the next request. `is_over` is asked while the connection is idle.
    pub(super) fn request(&mut self, is_over: impl Fn() -> bool) -> Result<Request, NoRequest> {
        let idle_until = Instant::now() + IDLE_TIME;
        let mut deadline = None;
        loop {
            if let Some(found) = self.parsed()? {
                return Ok(found);
            }
            let now = Instant::now();
            let until = *match self.ahead.is_empty() {
                true => &idle_until,
                false => deadline.get_or_insert(now + REQUEST_TIME),
            };
            if now >= until {
                return Err(match self.ahead.is_empty() {
                    true => NoRequest::Over,
                    false => refused(408, "the request did not come in time"),
                });
            }
            if self.ahead.is_empty() && is_over() {
                return Err(NoRequest::Over);
            }
            self.more((until - now).min(Duration::from_millis(500)))?;
        }
    }

    /// Waits for more bytes, for so long.
    fn more(&mut self, most: Duration) -> Result<(), NoRequest> {
        let mut chunk = [0; 4096];
        self.stream
            .set_read_timeout(Some(most.max(Duration::from_millis(1))))?;
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(NoRequest::Over),
            Ok(read) => {
                self.ahead.extend_from_slice(&chunk[..read]);
                Ok(())
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => Ok(()),
                _ => Err(NoRequest::Over),
            },
        }
    }

    /// The request at the front of what came, once all of it is there.
    fn parsed(&mut self) -> Result<Option<Request>, NoRequest> {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut head = httparse::Request::new(&mut headers);
        let length = match head.parse(&self.ahead) {
            Ok(httparse::Status::Complete(length)) if length <= MOST_HEAD => length,
            Ok(httparse::Status::Partial) if self.ahead.len() <= MOST_HEAD => return Ok(None),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => {
                return Err(refused(431, "the request has too many or too long headers"));
            }
            Err(error) => return Err(refused(400, &format!("this is no HTTP request: {error}"))),
        };
        let method = match head.method {
            Some("GET") => Method::Get,
            Some("HEAD") => Method::Head,
            Some("POST") => Method::Post,
            _ => Method::Other,
        };
        let headers: Vec<(String, String)> = (head.headers.iter())
            .map(|header| {
                let value = String::from_utf8_lossy(header.value).trim().to_owned();
                (header.name.to_ascii_lowercase(), value)
            })
            .collect();
        let target = head.path.unwrap_or("/");
        // A proxy's form of a request: http://host/path.
        let target = match target.strip_prefix("http://") {
            Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
            None => target,
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut request = Request {
            method,
            path: decoded(path, false),
            raw_query: query.to_owned(),
            body: Vec::new(),
            keeps_alive: head.version == Some(1),
            headers,
        };
        if let Some(wish) = request.header("connection") {
            let wish = wish.to_ascii_lowercase();
            request.keeps_alive = match request.keeps_alive {
                true => !wish.contains("close"),
                false => wish.contains("keep-alive"),
            };
        }
        let names = |wanted: &str| {
            request
                .headers
                .iter()
                .filter(|(key, _)| key == wanted)
                .count()
        };
        if let Some(name) = ONCE.iter().find(|name| names(name) > 1) {
            return Err(refused(400, &format!("the header {name} comes twice")));
        }
        if names("transfer-encoding") > 0 {
            return Err(refused(411, "a body needs a Content-Length here"));
        }
        let body = match (names("content-length"), request.header("content-length")) {
            (0, _) => 0,
            (1, Some(text)) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                text.parse().unwrap_or(usize::MAX)
            }
            _ => return Err(refused(400, "the Content-Length is no number")),
        };
        if body > MOST_BODY {
            return Err(refused(413, "the body is too long"));
        }
        if self.ahead.len() < length + body {
            return Ok(None);
        }
        request.body = self.ahead[length..length + body].to_vec();
        self.ahead.drain(..length + body);
        Ok(Some(request))
    }

    /// Sends a response. `with_body`: false for HEAD.
    pub(super) fn send(
        &mut self,
        response: &Response,
        with_body: bool,
        keeps_alive: bool,
    ) -> io::Result<()> {
        let mut head = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: {}\r\n",
            response.status,
            reason(response.status),
            response.content_type,
            response.body.len(),
            if keeps_alive { "keep-alive" } else { "close" }
        );
        head.push_str(
            "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             X-Frame-Options: SAMEORIGIN\r\nCross-Origin-Resource-Policy: same-origin\r\n",
        );
        for (name, value) in &response.headers {
            // A value that is built from names must not begin a header of its own.
            let value: String = value.chars().filter(|c| !c.is_control()).collect();
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.stream.write_all(head.as_bytes())?;
        let until = Instant::now() + RESPONSE_TIME;
        for chunk in response.body.chunks(WRITE_CHUNK).filter(|_| with_body) {
            if Instant::now() >= until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.write_all(chunk)?;
        }
        self.stream.flush()
    }
}

fn refused(status: u16, why: &str) -> NoRequest {
    NoRequest::Refused(Response::error(status, why))
}

/// A response.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
    /// Held until the response is sent: large bodies are few.
    slot: Option<WorkSlot>,
}

impl Response {
    pub(super) fn of(content_type: &'static str, body: impl Into<Vec<u8>>) -> Response {
        Response {
            status: 200,
            content_type,
            headers: Vec::new(),
            body: body.into(),
            slot: None,
        }
    }

    /// Holds a slot until it is sent.
    pub(super) fn until_sent(mut self, slot: WorkSlot) -> Response {
        self.slot = Some(slot);
        self
    }

    pub(super) fn text(body: impl Into<Vec<u8>>) -> Response {
        Response::of("text/plain; charset=utf-8", body)
    }

    /// The answer is at another address, which may count from that of the request.
    pub(super) fn moved(address: &str) -> Response {
        Response {
            status: 301,
            ..Response::text("moved\n")
        }
        .with("Location", address)
    }

    /// An error in words. Go's clients know by the header that the text is for people.
    pub(super) fn error(status: u16, why: &str) -> Response {
        Response {
            status,
            ..Response::text(format!("{why}\n"))
        }
        .with("X-Go-Pprof", "1")
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Response {
        self.headers.push((name, value.into()));
        self
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        301 => "Moved Permanently",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        assert_eq!(value_of("a=1&b=x%20y+z&b=2", "b").as_deref(), Some("x y z"));
        assert_eq!(value_of("debug", "debug").as_deref(), Some(""));
        assert_eq!(value_of("a=%zz%4", "a").as_deref(), Some("%zz%4"));
        assert_eq!(value_of("a=1", "b"), None);
    }
}
