//! Servers on loopback for the tests of debuginfod and of push. A test writes the answers of a
//! server byte by byte. There are ports where nobody listens, too.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A server that runs until the test program ends.
pub(crate) struct Server {
    /// `http://127.0.0.1:PORT`
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Each request's path is given to `answer`, which writes what it likes; then the connection is
    /// closed.
    pub(crate) fn answering(
        answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, log) = (Arc::new(answer), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                std::thread::spawn(move || {
                    let path = path_of(&head(&mut stream));
                    log.lock().expect("no test panics here").push(path.clone());
                    answer(&path, &mut stream);
                });
            }
        });
        Server { url, asked }
    }

    /// As `answering`, with the whole request.
    pub(crate) fn taking(
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        std::thread::spawn(move || {
            // One after the other, in the order in which they come.
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let head = head(&mut stream);
                let length = Request::header_of(&head, "content-length").unwrap_or_default();
                let mut body = vec![0; length.parse().unwrap_or(0)];
                if stream.read_exact(&mut body).is_ok() {
                    answer(&Request { head, body }, &mut stream);
                }
            }
        });
        Server {
            url,
            asked: Arc::default(),
        }
    }

    /// Serves one body at every path.
    pub(crate) fn of(body: Vec<u8>) -> Server {
        Server::answering(move |_, stream| ok(stream, &body))
    }

    /// The same by path; 404 for every other.
    pub(crate) fn of_files(files: Vec<(String, Vec<u8>)>) -> Server {
        Server::answering(
            move |path, stream| match files.iter().find(|(known, _)| known == path) {
                Some((_, body)) => ok(stream, body),
                None => status(stream, "404 Not Found"),
            },
        )
    }

    /// The paths that were asked for.
    pub(crate) fn requested_paths(&self) -> Vec<String> {
        self.asked.lock().expect("no test panics there").clone()
    }
}

/// A request with its body.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// Path and query.
    pub(crate) fn path(&self) -> String {
        path_of(&self.head)
    }

    /// The value of a header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        Request::header_of(&self.head, name)
    }

    fn header_of(head: &str, name: &str) -> Option<String> {
        head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            (known.to_ascii_lowercase() == name).then(|| value.trim().to_owned())
        })
    }
}

/// Returns the request up to its empty line. Other bytes than HTTP are cut off at 64 KiB or their
/// end.
fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && head.len() < 65_536 {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

fn path_of(head: &str) -> String {
    head.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// A whole answer. The client may be gone, which is its right.
pub(crate) fn ok(stream: &mut TcpStream, body: &[u8]) {
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(body);
}

/// An answer without content.
pub(crate) fn status(stream: &mut TcpStream, status: &str) {
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Whether a GET of a path is answered with status 200.
pub(crate) fn is_served(port: u16, path: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return false;
    };
    let _ = write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    );
    let mut start = [0; 12];
    stream.read_exact(&mut start).is_ok() && &start == b"HTTP/1.1 200"
}
