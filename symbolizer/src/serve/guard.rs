//! Guard: which requests are answered.
//!
//! ```text
//!   address      token in the request    GET, HEAD, symbol     control
//!   loopback     none                    yes, if Host is an    no
//!                                        address or localhost
//!   any other    none                    no                    no
//!   any          the right one           yes                   yes
//!   any          a wrong one             no                    no
//! ```
//!
//! A page of another site can make a browser send requests here. Its requests carry its Origin, or
//! say that they are cross-site. If it gave its own name this machine's address (DNS rebinding),
//! its requests have its name as Host. No such request carries the token.

use sha2::{Digest, Sha256};

use super::http::{Method, Request, Response};

/// See the module's text.
#[derive(Debug)]
pub(super) struct Guard {
    token: String,
    /// Whether reading needs the token: not on a loopback address alone.
    reading_needs_token: bool,
}

/// The rights of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    Read,
    Control,
}

impl Guard {
    pub(super) fn of(token: &str, reading_needs_token: bool) -> Guard {
        Guard {
            token: token.to_owned(),
            reading_needs_token,
        }
    }

    /// Refuses a request that lacks the right. `Ok`: whether the token was given.
    pub(super) fn check(&self, request: &Request, needed: Right) -> Result<bool, Response> {
        let refuse = |status, why: &str| Err(Response::error(status, why));
        let host = request.header("host").unwrap_or_default();
        if let Some(origin) = request.header("origin")
            && origin != format!("http://{host}")
            && origin != format!("https://{host}")
        {
            return refuse(403, "the request comes from another site's page (Origin)");
        }
        let is_visit =
            request.header("sec-fetch-mode") == Some("navigate") && request.method == Method::Get;
        if request.header("sec-fetch-site") == Some("cross-site") && !is_visit {
            return refuse(
                403,
                "the request comes from another site's page (Sec-Fetch-Site)",
            );
        }
        match self.given(request) {
            Some(true) => return Ok(true),
            Some(false) => return refuse(401, "the token is wrong"),
            None => {}
        }
        if needed == Right::Control {
            let why = "this needs the token: Authorization: Bearer TOKEN; heapprof serve prints it, or has it from --token-file";
            return refuse(401, why);
        }
        if self.reading_needs_token {
            let why = "the token is missing: Authorization: Bearer TOKEN, or ?token=TOKEN";
            return Err(Response::error(401, why).with("WWW-Authenticate", "Bearer"));
        }
        if !is_address(host) {
            let why = "the Host of the request is a name that this server does not know: use 127.0.0.1 or localhost, or give the token";
            return refuse(403, why);
        }
        Ok(false)
    }

    /// Whether the token in the request is the right one; `None` if there is none.
    fn given(&self, request: &Request) -> Option<bool> {
        let by_header = request.header("authorization").map(|value| {
            let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
            match scheme.eq_ignore_ascii_case("bearer") {
                true => token.trim().to_owned(),
                false => String::new(),
            }
        });
        let given = by_header.or_else(|| request.parameter("token"))?;
        // Equal hashes are equal texts, and the time of a comparison tells nothing of the token.
        Some(Sha256::digest(given) == Sha256::digest(&self.token) && !self.token.is_empty())
    }
}

/// Whether a Host is an address or `localhost`, which no other site can have as its name.
fn is_address(host: &str) -> bool {
    if host.is_empty() {
        return true; // no browser
    }
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_address;

    #[test]
    fn addresses_are_told_from_names() {
        for host in [
            "",
            "127.0.0.1:8080",
            "localhost",
            "LocalHost:1",
            "[::1]:80",
            "10.1.2.3",
        ] {
            assert!(is_address(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "127.0.0.1.evil.example",
            "localhost.evil:1",
        ] {
            assert!(!is_address(host), "{host}");
        }
    }
}
