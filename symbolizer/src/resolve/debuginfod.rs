//! debuginfod client: debug information by build-id from servers, only for a user who asks for it.
//!
//! ```text
//!  build-id ─> cache ─┬─ has it, and it is that build ──────────────────────────────┐
//!                     ├─ knows that no server has it ─> nothing                     ├─> ElfFile
//!                     └─ else each server in turn ─┬─ 200 ─> part file ─> verified ─┘
//!                                                  ├─ 404 from all ─> remembered in the cache
//!                                                  └─ anything else ─> nothing, and why
//! ```
//!
//! No server is trusted. A reply goes into a part file of bounded length and is opened by the same
//! parsers as any hostile file. It gets its name in the cache only if it states the requested
//! build-id. All requests of a run share one budget of time, whatever the number of servers and
//! modules. A server that cannot be reached is not asked again in that run.
//!
//! Requests contain the build-id and this program's version, nothing else.

mod cache;

use super::elf::{ElfError, ElfFile};
use super::error_text::with_causes;
use super::report::{BuildId, Outcome, Role};
use cache::{Cache, Cached};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use ureq::tls::{RootCerts, TlsConfig};

/// No connection that will ever be made takes longer; one dead server must not use up the others'
/// time.
const LONGEST_CONNECT: Duration = Duration::from_secs(10);

/// A chain of mirrors has two or three.
const MOST_REDIRECTS: u32 = 5;

const CHUNK: usize = 64 << 10;

/// The servers to ask, and the bounds on requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebuginfodSettings {
    /// Addresses, `http://` or `https://`, asked in this order.
    pub urls: Vec<String>,
    /// The time that all requests together may take.
    pub limit: Duration,
    /// The folder of the cache, in the layout of elfutils' client; made when needed.
    pub cache: PathBuf,
    /// The largest file that is taken, in bytes.
    pub largest: u64,
}

impl DebuginfodSettings {
    /// [`limit`](Self::limit) when nobody says otherwise.
    pub const LIMIT: Duration = Duration::from_secs(30);

    /// [`largest`](Self::largest) when nobody says otherwise: above any debug file that is known (a
    /// browser's).
    pub const LARGEST: u64 = 8 << 30;
}

/// A fetch under way, for those who show progress.
#[derive(Debug, Clone, Copy)]
pub struct Fetching<'a> {
    /// The name of the module that the file is for.
    pub name: &'a str,
    /// Bytes that came so far.
    pub bytes: u64,
    /// Bytes that the server promised, if it did.
    pub of: Option<u64>,
}

/// The result of all requests so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FetchAccount {
    /// Files that came and were what was asked for.
    pub fetched: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that the cache had.
    pub from_cache: u64,
    /// Files that no server has, now or as the cache remembers.
    pub not_served: u64,
    /// Files that a server might have, but that did not come: refused, failed, out of time, another
    /// build.
    pub failed: u64,
}

/// The kinds of files that a server can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Debuginfo,
    Executable,
}

impl Kind {
    /// In addresses and in the cache.
    fn name(self) -> &'static str {
        match self {
            Kind::Debuginfo => "debuginfo",
            Kind::Executable => "executable",
        }
    }
}

/// Servers to ask, shared by all modules of a run.
#[derive(Clone)]
pub struct Debuginfod(Arc<Client>);

type Attempts = Vec<(PathBuf, Outcome)>;

struct Client {
    settings: DebuginfodSettings,
    cache: Cache,
    agent: ureq::Agent,
    /// When the first request was made; the budget runs from there.
    began: OnceLock<Instant>,
    state: Mutex<State>,
    progress: Box<dyn Fn(Fetching<'_>) + Send + Sync>,
}

#[derive(Default)]
struct State {
    account: FetchAccount,
    /// Servers that could not be reached, by index.
    dead: HashSet<usize>,
    /// Files that did not come, so that a library that was loaded many times is asked for once.
    failed: HashMap<(BuildId, Kind), Attempts>,
}

impl fmt::Debug for Debuginfod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Debuginfod").field(&self.0.settings).finish()
    }
}

impl PartialEq for Debuginfod {
    /// Returns true if they are the same: two clients with equal settings still have two budgets.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Debuginfod {}

impl Debuginfod {
    /// Asks nobody yet. `progress` is called from any thread, after every 64 KiB.
    pub fn new(
        settings: DebuginfodSettings,
        progress: impl Fn(Fetching<'_>) + Send + Sync + 'static,
    ) -> Debuginfod {
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier);
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(MOST_REDIRECTS)
            .user_agent(concat!("heapprof/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls.build())
            .build();
        Debuginfod(Arc::new(Client {
            cache: Cache::new(&settings.cache),
            agent: config.into(),
            began: OnceLock::new(),
            state: Mutex::default(),
            progress: Box::new(progress),
            settings,
        }))
    }

    /// The result of all requests so far.
    pub fn account(&self) -> FetchAccount {
        self.0.state().account
    }

    /// Returns the file of that build, from the cache or a server. Adds each attempt to `tried`.
    pub(super) fn fetch(
        &self,
        id: &BuildId,
        kind: Kind,
        role: Role,
        name: &str,
        attempts: &mut Attempts,
    ) -> Option<ElfFile> {
        let client = &self.0;
        let known = client.state().failed.get(&(id.clone(), kind)).cloned();
        if let Some(known) = known {
            attempts.extend(known);
            return None;
        }
        let before = attempts.len();
        let file = client.fetch(id, kind, name, attempts);
        match &file {
            Some(file) => attempts.push((file.path.clone(), Outcome::Used(role))),
            None => {
                let attempts = attempts[before..].to_vec();
                let is_not_served =
                    !attempts.is_empty() && attempts.iter().all(|(_, o)| o.is_absence());
                let mut state = client.state();
                // Two threads may have asked at once; one counts.
                if state.failed.insert((id.clone(), kind), attempts).is_none() {
                    match is_not_served {
                        true => state.account.not_served += 1,
                        false => state.account.failed += 1,
                    }
                }
            }
        }
        file
    }
}

impl Client {
    fn state(&self) -> MutexGuard<'_, State> {
        // Counters and sets: there is no half-made state that a panic could leave.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fetch(
        &self,
        id: &BuildId,
        kind: Kind,
        name: &str,
        attempts: &mut Attempts,
    ) -> Option<ElfFile> {
        let path = self.cache.path(id, kind.name());
        match self.cache.look(&path) {
            Cached::File => match verified(ElfFile::open(&path), id) {
                Ok(file) => {
                    self.state().account.from_cache += 1;
                    return Some(file);
                }
                // Any program may have put it there: it is fetched again, and replaced when
                // something better comes.
                Err(outcome) => attempts.push((path.clone(), outcome)),
            },
            Cached::Absent { seconds } => {
                attempts.push((path, Outcome::NotServedBefore { seconds }));
                return None;
            }
            Cached::Nothing => {}
        }

        let mut all_lack_it = !self.settings.urls.is_empty();
        for (server, url) in self.settings.urls.iter().enumerate() {
            let url = format!("{}/buildid/{id}/{}", url.trim_end_matches('/'), kind.name());
            let outcome = match self.fetch_from(server, &url, id, kind, name) {
                Ok((file, bytes)) => {
                    let mut state = self.state();
                    state.account.fetched += 1;
                    state.account.bytes += bytes;
                    drop(state);
                    attempts.push((url.into(), Outcome::Fetched { bytes }));
                    return Some(file);
                }
                Err(outcome) => outcome,
            };
            all_lack_it &= outcome == Outcome::NotServed;
            attempts.push((url.into(), outcome));
        }
        if all_lack_it {
            self.cache.remember_absence(&path);
        }
        None
    }

    fn fetch_from(
        &self,
        server: usize,
        url: &str,
        id: &BuildId,
        kind: Kind,
        name: &str,
    ) -> Result<(ElfFile, u64), Outcome> {
        let failed = |why: String| Outcome::NotFetched(why);
        if self.state().dead.contains(&server) {
            return Err(failed("not asked: the server could not be reached".into()));
        }
        let left = self.time_left();
        if left.is_zero() {
            return Err(failed(format!("not asked: {}", self.out_of_time())));
        }
        (self.progress)(Fetching {
            name,
            bytes: 0,
            of: None,
        });
        let response = self
            .agent
            .get(url)
            .config()
            .https_only(url.starts_with("https://"))
            .timeout_global(Some(left))
            .timeout_connect(Some(left.min(LONGEST_CONNECT)))
            .build()
            .call()
            .map_err(|error| failed(self.explain(server, &error)))?;
        match response.status().as_u16() {
            200 => {}
            404 => return Err(Outcome::NotServed),
            status => return Err(failed(format!("the server answers with status {status}"))),
        }

        let body = response.into_body();
        let promised = body.content_length();
        let mut part = self
            .cache
            .part(id, kind.name())
            .map_err(|error| failed(with_causes(&error)))?;
        let bytes = self.copy(body.into_reader(), promised, name, part.file())?;
        let path = part.path().to_owned();
        verified(ElfFile::open(&path), id)?;
        let path = part
            .keep()
            .map_err(|error| failed(format!("cannot be kept in the cache: {error}")))?;
        Ok((verified(ElfFile::open(&path), id)?, bytes))
    }

    /// Takes a body whose server may never end it. One that ends before its stated length is an
    /// error of the reader's.
    fn copy(
        &self,
        mut body: impl Read,
        promised: Option<u64>,
        name: &str,
        out: &mut impl Write,
    ) -> Result<u64, Outcome> {
        let failed = |why: String| Err(Outcome::NotFetched(why));
        let largest = self.settings.largest;
        let too_large =
            |bytes| failed(format!("{bytes} bytes are more than the {largest} allowed"));
        if let Some(promised) = promised.filter(|&promised| promised > largest) {
            return too_large(promised);
        }
        let mut buffer = vec![0; CHUNK];
        let mut bytes = 0u64;
        loop {
            if self.time_left().is_zero() {
                return failed(self.out_of_time());
            }
            let n = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) if self.time_left().is_zero() => return failed(self.out_of_time()),
                Err(error) => return failed(format!("broken off after {bytes} bytes: {error}")),
            };
            bytes += n as u64;
            if bytes > largest {
                return too_large(bytes);
            }
            if let Err(error) = out.write_all(&buffer[..n]) {
                return failed(format!("cannot write to the cache: {error}"));
            }
            (self.progress)(Fetching {
                name,
                bytes,
                of: promised,
            });
        }
        Ok(bytes)
    }

    fn time_left(&self) -> Duration {
        let began = *self.began.get_or_init(Instant::now);
        self.settings.limit.saturating_sub(began.elapsed())
    }

    fn out_of_time(&self) -> String {
        format!(
            "the {} s for all servers and modules were used up (--debuginfod-timeout)",
            self.settings.limit.as_secs_f64()
        )
    }

    /// A failed request in words. A server that nothing came from is not asked again.
    fn explain(&self, server: usize, error: &ureq::Error) -> String {
        if self.time_left().is_zero() {
            return self.out_of_time();
        }
        let is_unreachable = match error {
            ureq::Error::Io(error) => matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
                    | io::ErrorKind::AddrNotAvailable
            ),
            ureq::Error::Timeout(which) => {
                matches!(which, ureq::Timeout::Connect | ureq::Timeout::Resolve)
            }
            ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => true,
            _ => false,
        };
        if is_unreachable {
            self.state().dead.insert(server);
        }
        with_causes(error)
    }
}

/// The file, if it is that build.
fn verified(opened: Result<ElfFile, ElfError>, id: &BuildId) -> Result<ElfFile, Outcome> {
    let file = opened.map_err(|error| Outcome::Unusable(with_causes(&error)))?;
    match file.build_id() {
        Some(found) if found == *id => Ok(file),
        found => Err(Outcome::BuildIdDiffers { found }),
    }
}
