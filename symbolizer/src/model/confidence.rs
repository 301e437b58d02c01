//! Confidence: how often an interval contains the true value, and how many standard errors wide the
//! interval is for that.

/// A probability in percent, more than 0 and less than 100.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Confidence(f64);

impl Default for Confidence {
    fn default() -> Self {
        Confidence(95.0)
    }
}

/// A number that rests on fewer samples says little more than an order of magnitude: at 10 equal
/// samples the standard error is a third of the number.
pub const FEW_SAMPLES: u64 = 10;

impl Confidence {
    /// `None` for what is no probability.
    pub fn of_percent(percent: f64) -> Option<Confidence> {
        (percent > 0.0 && percent < 100.0).then_some(Confidence(percent))
    }

    /// In percent.
    pub fn percent(self) -> f64 {
        self.0
    }

    /// Half the width of the interval in standard errors: 1.96 at 95 %.
    pub fn standard_errors(self) -> f64 {
        normal_quantile(0.5 + self.0 / 200.0)
    }

    /// Returns the most that a site without a sample could hold, with this confidence, in sampling
    /// intervals. `S` bytes in small blocks stay without a sample with probability `exp(-S / R)`,
    /// which is `1 - confidence` at `S = -ln(1 - confidence) R`: 3.0 R at 95 %. One block of `S`
    /// bytes, or any mixture, has the same probability.
    pub fn unseen_intervals(self) -> f64 {
        -(1.0 - self.0 / 100.0).ln()
    }
}

/// The quantile of the standard normal distribution for `p` of at least one half: Acklam's rational
/// approximation (2003), relative error below 1.2e-9.
fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 6] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 5] = [
        7.784_695_709_041_462e-3,
        3.224_671_290_700_398e-1,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
        1.0,
    ];
    let at = |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    if p <= 0.97575 {
        let q = p - 0.5;
        let r = q * q;
        return q * at(&A, r) / at(&B, r);
    }
    let q = (-2.0 * (1.0 - p).ln()).sqrt();
    -at(&C, q) / at(&D, q)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_as_wide_as_tables_say() {
        for (percent, errors) in [
            (50.0, 0.674_49),
            (68.268_95, 1.0),
            (90.0, 1.644_85),
            (95.0, 1.959_96),
            (99.0, 2.575_83),
            (99.9, 3.290_53),
        ] {
            let got = Confidence::of_percent(percent).unwrap().standard_errors();
            assert!((got - errors).abs() < 2e-5, "{percent}: {got}");
        }
        assert_eq!(Confidence::of_percent(100.0), None);
    }

    #[test]
    fn what_was_not_seen_is_less_than_three_intervals() {
        let bound = Confidence::default().unseen_intervals();
        assert!((bound - 2.9957).abs() < 1e-4, "{bound}");
    }
}
