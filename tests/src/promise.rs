//! Promises: the claims of a fixture, compared with the recording.

use std::collections::BTreeMap;

use crate::account::Account;
use crate::claims::Claims;
use crate::finished::Finished;
use crate::log::Log;

/// Compares the fixture's stacks, counts and threads with the log, and returns the log.
///
/// # Panics
/// If the log differs, with all differences.
#[track_caller]
pub fn assert_claims(ran: &Finished) -> Log {
    let claims = ran.claims();
    assert!(claims.failures.is_empty(), "{:?}", claims.failures);
    assert!(!claims.stacks.is_empty(), "the fixture promises nothing");
    let log = ran.log().whole();
    let blocks = log.blocks();
    let mut wrong = Vec::new();
    for (size, pattern) in &claims.stacks {
        let of_size: Vec<_> = blocks.iter().filter(|block| block.size == *size).collect();
        if of_size.is_empty() {
            wrong.push(format!("no block of {size} bytes"));
        }
        for block in &of_size {
            if !pattern.matches(&log.named().stacks[block.stack]) {
                let shown = log.named().shown(block.stack);
                wrong.push(format!("{size}: {shown}, which is not {pattern:?}"));
            }
        }
        let counted = claims.counts.iter().any(|(counted, ..)| counted == size);
        if !counted && of_size.iter().any(|block| !block.in_use) {
            wrong.push(format!("{size}: freed, which it was not"));
        }
    }
    for &(size, allocated, in_use) in &claims.counts {
        let of_size = blocks.iter().filter(|block| block.size == size);
        let found_in_use = of_size.clone().filter(|block| block.in_use).count() as u64;
        let found = (of_size.count() as u64, found_in_use);
        if found != (allocated, in_use) {
            wrong.push(format!(
                "{size}: {found:?} blocks, not {allocated} {in_use}"
            ));
        }
    }
    for (size, name) in &claims.threads {
        for block in blocks.iter().filter(|block| block.size == *size) {
            if log.thread_name(block.thread) != name {
                let found = log.thread_name(block.thread);
                wrong.push(format!("{size}: by thread {found:?}, not {name:?}"));
            }
        }
    }
    for stack in 0..log.named().stacks.len() {
        let functions = &log.named().stacks[stack];
        if functions.iter().any(|f| claims.never.contains(&f.plain)) {
            let shown = log.named().shown(stack);
            wrong.push(format!("{:?} on {shown}", claims.never));
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    log
}

/// Compares every site's four numbers with those that the fixture `truth` printed.
///
/// # Panics
/// If a number differs, with all differences.
#[track_caller]
pub fn assert_truth(what: &str, sites: &BTreeMap<String, Account>, claims: &Claims) {
    let mut wrong = Vec::new();
    for (site, truth) in &claims.truth {
        let found = sites.get(site).copied().unwrap_or_default();
        if found != *truth {
            wrong.push(format!("{site}: {found:?}, not {truth:?}"));
        }
    }
    for (site, least) in &claims.untruthed {
        let found = sites.get(site).copied().unwrap_or_default();
        let holds = found.in_use_objects == least.in_use_objects
            && found.in_use_bytes >= least.in_use_bytes
            && found.allocated_objects >= least.allocated_objects
            && found.allocated_bytes >= least.allocated_bytes;
        if !holds {
            wrong.push(format!("{site}: {found:?}, which is less than {least:?}"));
        }
    }
    let unknown =
        |site: &&String| !claims.truth.contains_key(*site) && !claims.untruthed.contains_key(*site);
    for site in sites.keys().filter(unknown) {
        wrong.push(format!("{site}: of which the program says nothing"));
    }
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
    assert!(claims.truth.len() >= 69 && claims.untruthed.len() >= 3);
}
