//! Completion: the names of a module that are missing in its files, from those that are kept.

use super::frame::Frame;
use super::kept::{KeptFile, ModuleKey};
use super::module_symbols::ModuleSymbols;
use super::report::{Identity, NamedParts, Outcome, Reason, Role};

impl KeptFile {
    /// Gives the addresses of a module the names that are kept, where its files say less. `is_it`
    /// is false if these files may be others than those that ran: then they say nothing. Returns
    /// true if the module has kept names.
    pub(crate) fn complete(
        &self,
        key: &ModuleKey,
        is_it: bool,
        symbols: &mut ModuleSymbols,
    ) -> bool {
        if let Some(why) = &self.refused {
            if symbols.report.quality.unresolved > 0 {
                let outcome = Outcome::Unusable(format!("refused: {why}"));
                symbols.report.tried.push((self.path.clone(), outcome));
            }
            return false;
        }
        if !self.names.have(key) {
            return false;
        }
        let better = |svma, frames: &[Frame]| {
            let kept = self.names.frames_of(key, svma);
            match is_it {
                true => kept.filter(|kept| NamedParts::of(kept) > NamedParts::of(frames)),
                false => Some(kept.unwrap_or(&[])),
            }
        };
        if !symbols.replace_frames(better) && is_it {
            return true;
        }
        let outcome = Outcome::Used(Role::KeptNames);
        let report = &mut symbols.report;
        report.tried.push((self.path.clone(), outcome));
        report.identity = Identity::Verified;
        let quality = report.quality;
        let (is_named, has_lines) = (quality.unresolved == 0, quality.asked == quality.by_dwarf);
        report.reasons.retain(|reason| match reason {
            Reason::Unverified { .. } => false,
            Reason::BinaryMissing { .. } | Reason::BinaryReplaced { .. } | Reason::Vdso => {
                !is_named
            }
            Reason::NoDebugInfo { .. } => !has_lines,
            _ => true,
        });
        true
    }
}
