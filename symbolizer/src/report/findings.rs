//! Findings: what `heapprof explain` says of the run, at the head of a page.

use serde::Serialize;

use super::tables::Tables;
use crate::analysis::explain::Explanation;
use crate::analysis::explain::statement::Statement;
use crate::model::printable::Printable;

/// Most findings that need no looking into.
const MOST_OTHERS: usize = 10;
/// Most findings that are to look into.
const MOST_TROUBLES: usize = 40;

/// See the module's text.
#[derive(Serialize)]
pub(super) struct Findings {
    /// The verdict on the whole run; empty: the findings say it.
    summary: &'static str,
    /// Remark on findings of growth in a short run; empty: the run is longer.
    on_length: &'static str,
    /// The forecast of a limit; empty: there is none.
    forecast: String,
    /// The end of what was judged, if the program frees its memory behind it.
    until_s: Option<f64>,
    /// Those to look into, the most important first, and then the others.
    list: Vec<Finding>,
    /// How many are left out.
    left_out: usize,
}

#[derive(Serialize)]
struct Finding {
    verdict: &'static str,
    is_trouble: bool,
    /// The number of the site's frame.
    site: usize,
    evidence: String,
    command: Option<String>,
    highest_s: Option<f64>,
}

impl Findings {
    /// Those of an explanation, which ends at that time. `log` is the log as a shell takes it.
    pub(super) fn of(
        explanation: &Explanation,
        until_ns: Option<u64>,
        log: &str,
        tables: &mut Tables,
    ) -> Findings {
        let statements = explanation.statements();
        let all = statements.len();
        let (mut troubles, mut others): (Vec<Statement<'_>>, Vec<Statement<'_>>) =
            statements.into_iter().partition(|it| it.is_trouble);
        troubles.truncate(MOST_TROUBLES);
        others.truncate(MOST_OTHERS);
        let list: Vec<Finding> = (troubles.iter().chain(&others))
            .map(|it| Finding {
                verdict: it.verdict,
                is_trouble: it.is_trouble,
                site: tables.site(it.site),
                evidence: it.evidence.clone(),
                command: it.command(log).map(|it| Printable(&it).to_string()),
                highest_s: it.highest_ns.map(|ns| ns as f64 / 1e9),
            })
            .collect();
        let forecast = explanation.forecast.as_ref();
        Findings {
            summary: explanation.summary().unwrap_or_default(),
            on_length: explanation.remark_on_length().unwrap_or_default(),
            forecast: forecast.map(|it| it.in_words()).unwrap_or_default(),
            until_s: until_ns.map(|ns| ns as f64 / 1e9),
            left_out: all - list.len(),
            list,
        }
    }
}
