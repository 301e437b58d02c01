//! JSON, as `heapprof top --json` and `heapprof export --format json` write it.

use heapprof_symbolizer::Metric;
use serde_json::Value;

use crate::account::Account;

/// A document.
#[derive(Debug)]
pub struct Json(pub Value);

impl Json {
    /// Parses a document.
    ///
    /// # Panics
    /// If the text is no JSON.
    #[track_caller]
    pub fn parse(text: &str) -> Json {
        match serde_json::from_str(text) {
            Ok(value) => Json(value),
            Err(error) => panic!("no JSON: {error}: {text:.200}"),
        }
    }

    /// Returns the four totals.
    pub fn totals(&self) -> Account {
        Json::account(&self.0["totals"])
    }

    /// Returns the four numbers of an object.
    ///
    /// # Panics
    /// If one is missing.
    pub fn account(value: &Value) -> Account {
        let mut account = Account::default();
        for metric in Metric::ALL {
            let number = value[metric.name()].as_u64();
            *account.get_mut(metric) = number.expect("a number for each metric");
        }
        account
    }
}
