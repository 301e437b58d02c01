//! debuginfod options: whether and where a user asks for debug information, and the one client of a
//! run.

use std::env;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use heapprof_symbolizer::resolve::{Debuginfod, DebuginfodSettings, FetchAccount, Fetching};
use heapprof_symbolizer::{Bytes, duration_ns};

use crate::cli::output::failure::Failure;
use crate::cli::output::progress::Progress;
use crate::cli::output::say;

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Servers {
    /// Ask the servers in DEBUGINFOD_URLS for what is not on this machine; without this option
    /// or the next, nobody is ever asked
    #[arg(long, help_heading = "Where names come from")]
    debuginfod: bool,

    /// Ask this server, in place of those in DEBUGINFOD_URLS; may be repeated
    #[arg(long, value_name = "URL", help_heading = "Where names come from")]
    debuginfod_urls: Vec<String>,

    /// How long all servers together may take, for all modules together [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_limit, allow_hyphen_values = true, help_heading = "Where names come from")]
    debuginfod_timeout: Option<Duration>,

    #[arg(skip)]
    client: OnceLock<Debuginfod>,

    /// Where progress is shown, while there is a place.
    #[arg(skip)]
    shown: Arc<Mutex<Option<Progress>>>,
}

impl Servers {
    /// The client, if anybody asked for one: the same for all questions of a run, so that all have
    /// one budget of time.
    pub(crate) fn client(&self) -> Result<Option<Debuginfod>, Failure> {
        if !self.debuginfod && self.debuginfod_urls.is_empty() {
            return Ok(None);
        }
        if let Some(client) = self.client.get() {
            return Ok(Some(client.clone()));
        }
        let settings = DebuginfodSettings {
            urls: self.urls()?,
            limit: self.debuginfod_timeout.unwrap_or(DebuginfodSettings::LIMIT),
            cache: cache_folder()?,
            largest: largest(),
        };
        let shown = Arc::clone(&self.shown);
        let client = Debuginfod::new(settings, move |fetching| {
            let shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(progress) = &*shown {
                progress.say(in_words(fetching));
            }
        });
        Ok(Some(self.client.get_or_init(|| client).clone()))
    }

    /// Progress is shown there, until it is taken away again.
    pub(crate) fn show(&self, progress: Option<Progress>) -> Option<Progress> {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *shown, progress)
    }

    /// Returns the result of all requests; `None` if no server was to be asked.
    pub(crate) fn account(&self) -> Option<FetchAccount> {
        self.client.get().map(Debuginfod::account)
    }

    /// One line when something might have come and did not; `info` tells the rest.
    pub(crate) fn say_what_failed(&self) {
        if let Some(account) = self.account().filter(|account| account.failed > 0) {
            say::note(&format_args!(
                "note: debuginfod: {}; `heapprof info` with the same options says why",
                summary(&account)
            ));
        }
    }

    fn urls(&self) -> Result<Vec<String>, Failure> {
        let (text, from) = match &self.debuginfod_urls[..] {
            [] => (
                env::var("DEBUGINFOD_URLS").unwrap_or_default(),
                "DEBUGINFOD_URLS",
            ),
            given => (given.join(" "), "--debuginfod-urls"),
        };
        let mut urls = Vec::new();
        for word in text.split_whitespace() {
            if word.starts_with("http://") || word.starts_with("https://") {
                urls.push(word.to_owned());
            } else if !word.starts_with("ima:") {
                // Words on signatures are for elfutils' client; here each file's build-id is
                // verified.
                return Err(Failure::Unfulfilled(format!(
                    "{from}: '{word}' begins neither with http:// nor with https://"
                )));
            }
        }
        if urls.is_empty() {
            return Err(Failure::Unfulfilled(
                "--debuginfod: which server? Name one with --debuginfod-urls, or set DEBUGINFOD_URLS"
                    .into(),
            ));
        }
        Ok(urls)
    }
}

/// Returns the result of all requests, in a line.
pub(crate) fn summary(account: &FetchAccount) -> String {
    format!(
        "{} files fetched ({}), {} from the cache, {} that no server has, {} failed",
        account.fetched,
        Bytes(account.bytes as f64),
        account.from_cache,
        account.not_served,
        account.failed
    )
}

fn in_words(fetching: Fetching<'_>) -> String {
    let Fetching { name, bytes, of } = fetching;
    match of {
        Some(of) => format!(
            "debuginfod: {name}, {} of {}",
            Bytes(bytes as f64),
            Bytes(of as f64)
        ),
        None => format!("debuginfod: {name}, {}", Bytes(bytes as f64)),
    }
}

fn parse_limit(text: &str) -> Result<Duration, String> {
    match duration_ns(text) {
        Some(ns) if ns > 0 => Ok(Duration::from_nanos(ns)),
        _ => Err("a time is wanted, like 30s or 2m".into()),
    }
}

/// elfutils' own rules, so that there is one cache.
fn cache_folder() -> Result<PathBuf, Failure> {
    let of = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = of("DEBUGINFOD_CACHE_PATH") {
        return Ok(path.into());
    }
    let home = of("HOME").map(PathBuf::from);
    let old = home
        .as_ref()
        .map(|home| home.join(".debuginfod_client_cache"));
    if let Some(old) = old.filter(|old| old.is_dir()) {
        return Ok(old);
    }
    let caches = of("XDG_CACHE_HOME").map(PathBuf::from);
    caches
        .or_else(|| Some(home?.join(".cache")))
        .map(|caches| caches.join("debuginfod_client"))
        .ok_or_else(|| {
            Failure::Unfulfilled(
                "--debuginfod: no HOME to cache in; set DEBUGINFOD_CACHE_PATH".into(),
            )
        })
}

fn largest() -> u64 {
    let ours = DebuginfodSettings::LARGEST;
    let Some(stated) = env::var_os("DEBUGINFOD_MAXSIZE").filter(|value| !value.is_empty()) else {
        return ours;
    };
    match stated.to_str().map(|text| text.trim().parse()) {
        // To elfutils, 0 is no limit; ours stays.
        Some(Ok(0)) => ours,
        Some(Ok(bytes)) => bytes,
        _ => {
            let stated = stated.to_string_lossy();
            say::note(&format_args!(
                "DEBUGINFOD_MAXSIZE={stated} is no number of bytes; files of up to {} are fetched",
                Bytes(ours as f64)
            ));
            ours
        }
    }
}
