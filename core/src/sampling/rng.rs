//! Random numbers of one thread, uniform and exponentially distributed. The sampler draws
//! exponential ones, as distances to the next mark.

/// Random numbers of one thread: splitmix64 (Steele, Lea, Flood 2014), with one word of state and
/// any seed.
#[derive(Debug, Clone, Default)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Returns a generator. Different seeds give different streams.
    pub const fn new(seed: u64) -> Self {
        Rng { state: seed }
    }

    /// Returns the next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a uniform number in [0, 1), a multiple of 2^-53.
    fn unit(bits: u64) -> f64 {
        // The conversion is one instruction for a signed number, and several for an unsigned one.
        (bits >> 11) as i64 as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns an exponentially distributed number with that mean, rounded down.
    ///
    /// Rounding down is exact here, not an approximation: for a whole number of bytes `s`,
    /// `floor(x) < s` if and only if `x < s`.
    ///
    /// The method is the ziggurat (Marsaglia and Tsang 2000). Layers of equal area cover the area
    /// below the density. One layer is chosen, and a point in it; 96 points in a hundred lie below
    /// the density for certain. Without the ziggurat, the logarithm takes longer than the rest of a
    /// draw. A choice by random comparisons is one that no processor predicts.
    pub(crate) fn exponential(&mut self, mean: u64) -> i64 {
        let (widths, densities) = (&ZIGGURAT.0, &ZIGGURAT.1);
        let mut before = 0.0;
        loop {
            let bits = self.next_u64();
            // The lowest bits choose the layer, the highest 53 the point.
            let layer = bits as usize % LAYERS;
            let x = Rng::unit(bits) * widths[layer];
            let is_taken = x < widths[layer + 1] || layer > 0 && self.is_below(x, layer, densities);
            if is_taken {
                // No product is too large: a mean is below 2^57, and a point is beyond six tails
                // once in 2^59.
                return ((before + x) * mean as i64 as f64) as i64;
            }
            if layer == 0 {
                // the distance behind the tail's start has the distribution of the whole
                before += TAIL;
            }
        }
    }

    /// Returns true if a point is below the density. `x` lies between the layer's inner and outer
    /// width; the height is drawn here.
    #[cold]
    fn is_below(&mut self, x: f64, layer: usize, densities: &[f64; LAYERS + 1]) -> bool {
        let (low, high) = (densities[layer], densities[layer + 1]);
        low + Rng::unit(self.next_u64()) * (high - low) < libm::exp(-x)
    }
}

/// Layers of the ziggurat: see [`Rng::exponential`].
const LAYERS: usize = 128;
/// Start of the lowest layer's tail, at which all layers have the same area. It is solved for in
/// fifty digits. A test checks that the highest layer ends at density 1.
const TAIL: f64 = 6.898_315_116_615_643;

/// Width of each layer, lowest first, and the density `exp(-x)` at that width. The lowest width is
/// that of a rectangle of the layer's area, and has no density.
const ZIGGURAT: ([f64; LAYERS + 1], [f64; LAYERS + 1]) = {
    let (mut widths, mut densities) = ([0.0; LAYERS + 1], [1.0; LAYERS + 1]);
    let lowest = exp(-TAIL);
    let area = (TAIL + 1.0) * lowest;
    (widths[0], densities[0]) = (area / lowest, 0.0);
    (widths[1], densities[1]) = (TAIL, lowest);
    let mut i = 2;
    while i < LAYERS {
        densities[i] = densities[i - 1] + area / widths[i - 1];
        widths[i] = -ln(densities[i], -widths[i - 1]);
        i += 1;
    }
    (widths, densities)
};

/// Returns `exp(x)` in constants: by its series for a small part of `x`, to a few units in the last
/// place.
const fn exp(x: f64) -> f64 {
    if x < 0.0 {
        return 1.0 / exp(-x);
    }
    const HALVINGS: u32 = 8;
    let part = x / (1u64 << HALVINGS) as f64;
    // exp(part) - 1, which loses less in squaring.
    let (mut term, mut less_one, mut n) = (1.0, 0.0, 1);
    while n < 16 {
        term *= part / n as f64;
        less_one += term;
        n += 1;
    }
    let mut halvings = 0;
    while halvings < HALVINGS {
        less_one *= 2.0 + less_one;
        halvings += 1;
    }
    1.0 + less_one
}

/// Returns the logarithm in constants: by Newton's method from `near`.
const fn ln(y: f64, near: f64) -> f64 {
    let (mut x, mut steps) = (near, 0);
    while steps < 40 {
        x += y * exp(-x) - 1.0;
        steps += 1;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the published generator (Vigna's splitmix64.c) from the state 1234567.
    #[test]
    fn the_random_numbers_are_those_of_splitmix64() {
        let mut rng = Rng::new(1_234_567);
        let drawn: Vec<u64> = (0..5).map(|_| rng.next_u64()).collect();
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(drawn, published);
    }

    #[test]
    fn the_ziggurat_closes() {
        let (widths, densities) = &ZIGGURAT;
        let area = (TAIL + 1.0) * libm::exp(-TAIL);
        for i in 1..LAYERS {
            assert!((densities[i] / libm::exp(-widths[i]) - 1.0).abs() < 1e-13);
            assert!(widths[i] < widths[i - 1]);
            let layer = (densities[i + 1] - densities[i]) * widths[i];
            assert!((layer / area - 1.0).abs() < 1e-10, "{i}: {layer}");
        }
        assert_eq!((widths[LAYERS], densities[LAYERS]), (0.0, 1.0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many steps for an interpreter")]
    fn draws_are_exponential() {
        // A thousand ranges of equal probability, and twenty of the last one, which is the tail.
        const RANGES: usize = 1000;
        const DRAWS: usize = 4_000_000;
        let (mut rng, mean) = (Rng::new(20), 1u64 << 40);
        let mut drawn = vec![0u64; RANGES];
        let mut tail = vec![0u64; 20];
        for _ in 0..DRAWS {
            let x = rng.exponential(mean) as f64 / mean as f64;
            let above = libm::exp(-x);
            let range = (above * RANGES as f64) as usize;
            drawn[range.min(RANGES - 1)] += 1;
            if range == 0 {
                tail[((above * RANGES as f64 * 20.0) as usize).min(19)] += 1;
            }
        }
        // For so many ranges chi-square is normal, with twice their number as variance: five
        // standard errors.
        for counts in [&drawn, &tail] {
            let (n, ranges) = (counts.iter().sum::<u64>() as f64, counts.len() as f64);
            let expected = n / ranges;
            let off = |&count: &u64| (count as f64 - expected).powi(2) / expected;
            let chi: f64 = counts.iter().map(off).sum();
            assert!(
                (chi - ranges).abs() < 5.0 * (2.0 * ranges).sqrt(),
                "{chi} of {ranges}"
            );
        }
    }

    #[test]
    fn the_largest_draw_is_finite() {
        let mut rng = Rng::new(0);
        for _ in 0..1000 {
            let x = rng.exponential(1 << 50);
            assert!((0..i64::MAX).contains(&x));
        }
    }
}
