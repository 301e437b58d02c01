//! Pace: a unit of time that speeds are told in.

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    name: &'static str,
    seconds: f64,
}

impl Pace {
    const ALL: [Pace; 4] = [
        Pace::SECOND,
        Pace {
            name: "min",
            seconds: 60.0,
        },
        Pace {
            name: "h",
            seconds: 3600.0,
        },
        Pace {
            name: "day",
            seconds: 86_400.0,
        },
    ];

    pub(crate) const SECOND: Pace = Pace {
        name: "s",
        seconds: 1.0,
    };

    /// The shortest in which that much a second is at least 100.
    pub fn of(per_second: f64) -> Pace {
        let is_enough = |pace: &Pace| per_second.abs() * pace.seconds >= 100.0;
        Pace::ALL
            .into_iter()
            .find(is_enough)
            .unwrap_or(Pace::ALL[3])
    }

    /// The unit in short.
    pub(crate) fn name(self) -> &'static str {
        self.name
    }

    /// Its length.
    pub(crate) fn seconds(self) -> f64 {
        self.seconds
    }

    pub(crate) fn parts(self) -> (&'static str, f64) {
        (self.name, self.seconds)
    }
}
