//! Peak: the moment of a run at which the most bytes were in use. A point of the curve of bytes in
//! use is a moment, too.

use heapprof_core::Fixed;

use crate::history::spikes::Point;
use crate::model::span::Cut;

/// When the most bytes were in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peak {
    /// Number of the record that led there, from 1; 0 when nothing was ever in use.
    pub record: u64,
    /// Its time.
    pub time_ns: u64,
    /// How many they were.
    pub bytes: Fixed,
    /// The variance of this number; `None`: it is not known.
    pub bytes_variance: Option<Fixed>,
    /// True if it was before what is kept of a log that rotates: which blocks these were, nobody
    /// knows any more.
    pub is_gone: bool,
}

impl Peak {
    /// Returns the standard error of the bytes; `None`: it is not known.
    pub fn error(&self) -> Option<f64> {
        Some(self.bytes_variance?.to_f64().max(0.0).sqrt())
    }

    /// As a cut.
    pub fn cut(&self) -> Cut {
        Cut::Record {
            number: self.record,
            time_ns: self.time_ns,
        }
    }
}

impl Point {
    /// As a cut.
    pub fn cut(&self) -> Cut {
        match self.record {
            0 => Cut::Nothing,
            number => Cut::Record {
                number,
                time_ns: self.time_ns,
            },
        }
    }
}
