//! Dump reader: gperftools' text as a profile. Lines become stacks and rows, mappings become
//! modules.
//!
//! A dump does not state errors of its numbers, times, or why walks ended: these stay unknown. If
//! heapprof wrote its `key: value` comments, they give program, process and interval.

use std::collections::HashMap;

use heapprof_core::{Estimate, Row, SizeClass, Totals};
use heapprof_format::{Dump, FileStamp, Mapping, Sampling, Segment};

use crate::model::loaded_module::LoadedModule;
use crate::model::profile::{CallStack, Profile};
use crate::model::run::Ending;
use crate::resolve::shortened;

/// The profile in a dump.
pub fn profile_of_dump(dump: Dump) -> Profile {
    let mut profile = Profile::default();
    profile.run.ending = Ending::Snapshot;
    if let Sampling::Poisson { interval } = dump.sampling {
        profile.run.interval = Some(interval);
        profile.account.remarks.push(format!(
            "numbers were unsampled by the average size of each line (heap_v2/{interval})"
        ));
    }
    for comment in &dump.comments {
        read_comment(comment, &mut profile);
    }
    profile.modules = modules(dump.mappings);
    name_program(
        &mut profile,
        dump.symbols.as_ref().map(|s| s.binary.as_str()),
    );

    let mut stack_of: HashMap<Vec<u64>, u32> = HashMap::new();
    for line in dump.lines {
        let estimate = |objects, bytes| match dump.sampling {
            Sampling::Unsampled => Estimate::given(objects, bytes),
            Sampling::Poisson { interval } => Estimate::of_samples(objects, bytes, interval),
        };
        let totals = Totals {
            in_use: estimate(line.in_use_objects, line.in_use_bytes),
            allocated: estimate(line.allocated_objects, line.allocated_bytes),
        };
        let average = line
            .allocated_bytes
            .checked_div(line.allocated_objects)
            .or(line.in_use_bytes.checked_div(line.in_use_objects));
        let stacks = &mut profile.stacks;
        let stack = *stack_of.entry(line.frames).or_insert_with_key(|frames| {
            stacks.push(CallStack {
                frames: frames.clone(),
                ..CallStack::default()
            });
            stacks.len() as u32 - 1
        });
        let class = SizeClass::of(average.unwrap_or(0));
        profile.rows.push(Row {
            stack,
            class,
            totals,
        });
    }
    profile.account.remarks.extend(dump.remarks);
    profile.names = dump.symbols;
    profile
}

/// Reads a comment that heapprof itself writes; every other comment is kept as a remark.
pub(crate) fn read_comment(comment: &str, profile: &mut Profile) {
    let run = &mut profile.run;
    let Some((key, value)) = comment.split_once(": ") else {
        profile.account.remarks.push(comment.into());
        return;
    };
    let first = value.split_whitespace().next().unwrap_or_default();
    match key {
        "heapprof" => run.library = value.into(),
        "program" => run.program = value.into(),
        "executed as" => run.executed_as = value.into(),
        "allocator" => run.allocator = value.into(),
        "attached" => run.is_attached = true,
        "command" => run.args = value.split(' ').map(String::from).collect(),
        "pid" => run.pid = first.parse().unwrap_or(0),
        "interval" => run.interval = first.parse().ok().or(run.interval),
        "estimator" => {}
        "standard error" => profile.stated_errors = read_errors(value),
        _ => profile.account.remarks.push(comment.into()),
    }
}

/// `in use N objects, N bytes; allocated N objects, N bytes`, in the order of `Metric::ALL`.
fn read_errors(text: &str) -> Option<[f64; 4]> {
    let rest = text.strip_prefix("in use ")?;
    let (in_use, allocated) = rest.split_once("; allocated ")?;
    let pair = |text: &str| -> Option<(f64, f64)> {
        let (objects, bytes) = text.split_once(" objects, ")?;
        Some((
            objects.parse().ok()?,
            bytes.strip_suffix(" bytes")?.parse().ok()?,
        ))
    };
    let ((in_use_objects, in_use_bytes), (objects, bytes)) = (pair(in_use)?, pair(allocated)?);
    Some([objects, bytes, in_use_objects, in_use_bytes])
}

/// Neighbouring mappings of one file are one module: a file mapped at two places is two.
fn modules(mut mappings: Vec<Mapping>) -> Vec<LoadedModule> {
    mappings.sort_by_key(|mapping| mapping.start);
    let mut modules: Vec<LoadedModule> = Vec::new();
    let mut last_offset = 0;
    for mapping in mappings {
        if mapping.path.is_empty() {
            continue;
        }
        let flag = |at: usize, letter: u8, bit: u32| {
            if mapping.perms.as_bytes().get(at) == Some(&letter) {
                bit
            } else {
                0
            }
        };
        let segment = Segment {
            start: mapping.start,
            len: mapping.end - mapping.start,
            file_offset: mapping.offset,
            flags: flag(0, b'r', 4) | flag(1, b'w', 2) | flag(2, b'x', 1),
        };
        match modules.last_mut() {
            Some(module) if module.path == mapping.path && mapping.offset >= last_offset => {
                module.segments.push(segment);
            }
            _ => modules.push(LoadedModule {
                path: shortened(&mapping.path).into_owned(),
                build_id: mapping.build_id,
                stamp: (mapping.inode != 0).then(|| FileStamp {
                    inode: mapping.inode,
                    ..FileStamp::default()
                }),
                segments: vec![segment],
                ..LoadedModule::default()
            }),
        }
        last_offset = mapping.offset;
    }
    modules.retain(|module| module.segments.iter().any(|segment| segment.flags & 1 != 0));
    modules
}

/// The program is the module that comments or symbols name, or else the first that is no library.
fn name_program(profile: &mut Profile, binary: Option<&str>) {
    let run = &mut profile.run;
    if let (true, Some(binary)) = (run.program.is_empty(), binary) {
        run.program = binary.into();
    }
    let is_program = |module: &LoadedModule| match run.program.as_str() {
        "" => !module.name().contains(".so") && !module.path.starts_with('['),
        program => module.path == program,
    };
    if let Some(index) = profile.modules.iter().position(is_program) {
        let module = profile.modules.remove(index);
        if run.program.is_empty() {
            run.program.clone_from(&module.path);
        }
        profile.modules.insert(0, module);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::metric::Numbers;

    fn profile(text: &str) -> Profile {
        profile_of_dump(Dump::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn a_dump_of_ours_tells_what_ran() {
        let profile = profile(
            "heap profile: 1: 2 [3: 4] @ heapprofile\n\
             # program: /bin/server\n# command: server -x\n# pid: 77\n# interval: 524288 bytes\n\
             # standard error: in use 1 objects, 2 bytes; allocated 3 objects, 4 bytes\n\
             1: 2 [3: 4] @ 0x1010 0x2010\n\
             MAPPED_LIBRARIES:\n\
             00001000-00002000 r-xp 00000000 fe:00 7 /lib/libc.so.6\n\
             00002000-00003000 r-xp 00001000 fe:00 8 /bin/server\n\
             00003000-00004000 rw-p 00002000 fe:00 8 /bin/server\n\
             00004000-00005000 rw-p 00000000 00:00 0 [heap]\n",
        );
        assert_eq!((profile.run.pid, profile.run.interval), (77, Some(524_288)));
        assert_eq!(profile.run.args, ["server", "-x"]);
        assert_eq!(profile.stated_errors, Some([3.0, 4.0, 1.0, 2.0]));
        assert_eq!(
            profile.error(crate::model::metric::Metric::InUseBytes),
            Some(2.0)
        );
        let paths: Vec<_> = profile.modules.iter().map(|m| m.path.as_str()).collect();
        assert_eq!(paths, ["/bin/server", "/lib/libc.so.6"]);
        assert_eq!(profile.modules[0].segments.len(), 2);
        assert_eq!(Numbers::of(&profile.rows[0].totals).allocated_bytes, 4);
        assert!(
            profile.account.remarks.is_empty(),
            "{:?}",
            profile.account.remarks
        );
    }

    #[test]
    fn a_sampled_dump_is_unsampled_by_line() {
        let profile = profile(
            "heap profile: 1: 1024 [1: 1024] @ heap_v2/524288\n1: 1024 [1: 1024] @ 0x1\nMAPPED_LIBRARIES:\n",
        );
        // The number that go tool pprof, google-pprof and jeprof give for that line: 1024 / (1 -
        // e^(-1/512)).
        let numbers = Numbers::of(&profile.rows[0].totals);
        assert_eq!(
            (numbers.in_use_objects, numbers.in_use_bytes),
            (513, 524_800)
        );
        assert_eq!(
            profile.precision(),
            crate::model::precision::Precision::Sampled
        );
    }

    #[test]
    fn lines_of_one_stack_share_it() {
        let profile = profile(
            "heap profile: 2: 108 [2: 108] @ heapprofile\n1: 100 [1: 100] @ 0x1 0x2\n1: 8 [1: 8] @ 0x1 0x2\nMAPPED_LIBRARIES:\n",
        );
        assert_eq!((profile.stacks.len(), profile.rows.len()), (1, 2));
    }
}
