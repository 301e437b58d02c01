//! Credentials: headers and passwords for the receiver, from files, the environment and options.

use std::fs;
use std::path::PathBuf;

use heapprof_symbolizer::push::Credentials;

use crate::cli::output::failure::Failure;

/// `user:password`.
const BASIC_AUTH: &str = "HEAPPROF_PUSH_BASIC_AUTH";
/// Lines of `Name: value`.
const HEADERS: &str = "HEAPPROF_PUSH_HEADERS";

#[derive(Debug, clap::Args)]
pub(super) struct CredentialArgs {
    /// A header for each request, such as "X-Scope-OrgID: team"; may be repeated. Every user of
    /// this machine sees it: for secrets there is --header-file
    #[arg(long, value_name = "NAME: VALUE", help_heading = "Who sends")]
    header: Vec<String>,

    /// A file with further headers, one on each line, or HEAPPROF_PUSH_HEADERS in the environment
    #[arg(long, value_name = "FILE", help_heading = "Who sends")]
    header_file: Option<PathBuf>,

    /// A file with USER:PASSWORD for basic authentication, or HEAPPROF_PUSH_BASIC_AUTH in the
    /// environment
    #[arg(long, value_name = "FILE", help_heading = "Who sends")]
    basic_auth_file: Option<PathBuf>,
}

impl CredentialArgs {
    pub(super) fn read(&self) -> Result<Credentials, Failure> {
        let mut headers = Vec::new();
        let env = std::env::var(HEADERS).unwrap_or_default();
        let file = read("--header-file", self.header_file.as_ref())?.unwrap_or_default();
        let given = self.header.iter().map(String::as_str);
        for line in env.lines().chain(file.lines()).chain(given) {
            if line.trim().is_empty() {
                continue;
            }
            // The text may be a secret: no message repeats it.
            let (name, value) = line.split_once(':').ok_or_else(|| {
                Failure::Senseless("a header has the form NAME: VALUE, and one has no colon".into())
            })?;
            headers.push((name.trim().to_owned(), value.trim().to_owned()));
        }
        let of_file = read("--basic-auth-file", self.basic_auth_file.as_ref())?;
        let basic = of_file.or_else(|| std::env::var(BASIC_AUTH).ok());
        let basic = basic.map(|text| text.trim_end_matches(['\r', '\n']).to_owned());
        if basic.as_ref().is_some_and(|text| !text.contains(':')) {
            return Err(Failure::Senseless(
                "basic authentication has the form USER:PASSWORD, and there is no colon".into(),
            ));
        }
        Ok(Credentials { basic, headers })
    }
}

fn read(option: &str, path: Option<&PathBuf>) -> Result<Option<String>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::Unfulfilled(format!("{option} {}: {error}", path.display())))?;
    Ok(Some(text))
}
