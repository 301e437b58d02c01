//! Module symbols: the names of addresses of one module.

use super::frame::Frame;
use super::report::{ModuleReport, Quality};

/// The names of the addresses asked of one module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleSymbols {
    /// The files that the names are from, the quality of the names, and why some are missing.
    pub report: ModuleReport,
    /// The addresses asked, sorted, each once.
    pub(super) svmas: Vec<u64>,
    /// For each address, where its frames begin in `frames`; one more entry for the end of the
    /// last.
    pub(super) begins: Vec<u32>,
    pub(super) frames: Vec<Frame>,
}

impl ModuleSymbols {
    /// The frames of an address, innermost inlined function first, the physical function last.
    /// Empty when nothing is known about it or it was not asked for.
    pub fn frames_of(&self, svma: u64) -> &[Frame] {
        let Ok(i) = self.svmas.binary_search(&svma) else {
            return &[];
        };
        &self.frames[self.begins[i] as usize..self.begins[i + 1] as usize]
    }

    /// Each address asked, in order, with its frames.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[Frame])> {
        self.svmas
            .iter()
            .zip(self.begins.windows(2))
            .map(|(&svma, span)| (svma, &self.frames[span[0] as usize..span[1] as usize]))
    }

    /// Returns true if that address was asked.
    pub(super) fn has(&self, svma: u64) -> bool {
        self.svmas.binary_search(&svma).is_ok()
    }

    /// The answer for some of the addresses.
    pub(super) fn only(&self, svmas: &[u64]) -> ModuleSymbols {
        let mut svmas = svmas.to_vec();
        svmas.sort_unstable();
        svmas.dedup();
        let answers = svmas.iter().map(|&svma| (svma, self.frames_of(svma)));
        ModuleSymbols::of(self.report.clone(), answers)
    }

    /// This answer, and that for further addresses of the module.
    pub(super) fn with(&self, further: ModuleSymbols) -> ModuleSymbols {
        let mut answers: Vec<(u64, &[Frame])> = self.iter().chain(further.iter()).collect();
        answers.sort_unstable_by_key(|(svma, _)| *svma);
        ModuleSymbols::of(further.report.clone(), answers.into_iter())
    }

    /// Frames of addresses, which ascend.
    fn of<'a>(
        mut report: ModuleReport,
        answers: impl Iterator<Item = (u64, &'a [Frame])>,
    ) -> ModuleSymbols {
        report.quality = Quality::default();
        let (mut svmas, mut begins, mut frames) = (Vec::new(), vec![0], Vec::new());
        for (svma, its) in answers {
            report.quality.count(its);
            svmas.push(svma);
            if u32::try_from(frames.len() + its.len()).is_ok() {
                frames.extend_from_slice(its);
            }
            begins.push(frames.len() as u32);
        }
        ModuleSymbols {
            report,
            svmas,
            begins,
            frames,
        }
    }

    /// Gives addresses the frames that `other` returns for them and for what they have; `None`:
    /// they stay. Returns true if any address has others.
    pub(super) fn replace_frames<'a>(
        &mut self,
        other: impl Fn(u64, &[Frame]) -> Option<&'a [Frame]>,
    ) -> bool {
        let mut frames: Vec<Frame> = Vec::with_capacity(self.frames.len());
        let mut begins = vec![0];
        let mut quality = self.report.quality;
        let mut is_any = false;
        for (svma, own) in self.iter() {
            let found = other(svma, own).unwrap_or(own);
            if found != own {
                is_any = true;
                quality.replace(own, found);
            }
            if u32::try_from(frames.len() + found.len()).is_ok() {
                frames.extend_from_slice(found);
            }
            begins.push(frames.len() as u32);
        }
        if is_any {
            (self.frames, self.begins) = (frames, begins);
            self.report.quality = quality;
        }
        is_any
    }
}
