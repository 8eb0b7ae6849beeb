// SPDX-License-Identifier: Apache-2.0
//! Random draws: one ChaCha8 stream per workload. Logarithms and powers are computed by the Rust crate `libm` and not
//! by the host's C library, so that a seed gives the same flows on every machine.

use crate::plan::workload::{Interarrival, Pairs, Size, Time};
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub struct Draws(ChaCha8Rng);

impl Draws {
    /// The stream of a workload: the key is (seed, workload id), little-endian, padded with zeros.
    pub fn new(seed: u64, workload: u32) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&u64::from(workload).to_le_bytes());
        Self(ChaCha8Rng::from_seed(key))
    }

    /// The stream of one client of a workload: its draws do not depend on the other clients.
    pub fn for_client(seed: u64, workload: u32, client: u32) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&u64::from(workload).to_le_bytes());
        key[16..24].copy_from_slice(&(u64::from(client) + 1).to_le_bytes());
        Self(ChaCha8Rng::from_seed(key))
    }

    /// Uniform in [0, 1), 53 bits.
    fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in [0, n) without bias (Lemire, "Fast random integer generation in an interval", 2019).
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "the range is empty");
        let reject_below = n.wrapping_neg() % n;
        loop {
            let product = u128::from(self.0.next_u64()) * u128::from(n);
            if product as u64 >= reject_below {
                return (product >> 64) as u64;
            }
        }
    }

    /// Time to the next arrival, at min 1 ns so that arrivals are ordered.
    pub fn gap_ns(&mut self, interarrival: Interarrival) -> u64 {
        match interarrival {
            Interarrival::Fixed(gap) => gap,
            Interarrival::Exponential(mean) => {
                ((-mean * libm::log(1.0 - self.uniform())).round() as u64).max(1)
            }
        }
    }

    /// A flow's size, at min 1 byte.
    pub fn size_bytes(&mut self, size: &Size) -> u64 {
        match size {
            Size::Fixed(bytes) => *bytes,
            Size::Uniform(low, high) => low + self.below(high - low + 1),
            Size::Pareto { mean_bytes, shape, max_bytes } => {
                let scale = mean_bytes * (shape - 1.0) / shape;
                // Truncated distribution: equals rejection of all draws above the bound.
                let mass = max_bytes.map_or(1.0, |max| 1.0 - libm::pow(scale / max, *shape));
                let draw = scale * libm::pow(1.0 - mass * self.uniform(), -1.0 / shape);
                (draw.round() as u64).max(1)
            }
            Size::Cdf(points) => (quantile(points, self.uniform()).round() as u64).max(1),
        }
    }

    /// A time, which may be 0.
    pub fn time_ns(&mut self, time: &Time) -> u64 {
        match time {
            Time::Fixed(ns) => *ns,
            Time::Exponential(mean) => (-mean * libm::log(1.0 - self.uniform())).round() as u64,
            Time::Uniform(low, high) => low + self.below(high - low + 1),
            Time::Pareto { mean_ns, shape } => {
                let scale = mean_ns * (shape - 1.0) / shape;
                (scale * libm::pow(1.0 - self.uniform(), -1.0 / shape)).round() as u64
            }
        }
    }

    /// Moves `count` items, drawn without replacement, to the front. If that is all of them, keeps their order.
    pub fn partial_shuffle<T>(&mut self, count: usize, items: &mut [T]) {
        if count < items.len() {
            for index in 0..count {
                let drawn = index + self.below((items.len() - index) as u64) as usize;
                items.swap(index, drawn);
            }
        }
    }

    pub fn pair(&mut self, pairs: &Pairs) -> [usize; 2] {
        match pairs {
            Pairs::Listed(pairs) => pairs[self.below(pairs.len() as u64) as usize],
            Pairs::Product { sources, destinations } => loop {
                let src = sources[self.below(sources.len() as u64) as usize];
                let dst = destinations[self.below(destinations.len() as u64) as usize];
                if src != dst {
                    return [src, dst];
                }
            },
        }
    }
}

/// The inverse of a piecewise linear distribution function. The first point is an atom with its probability.
fn quantile(points: &[(f64, f64)], probability: f64) -> f64 {
    let above = points.partition_point(|point| point.1 <= probability);
    match (above.checked_sub(1).map(|i| points[i]), points.get(above)) {
        (None, Some(first)) => first.0,
        (Some(last), None) => last.0,
        (Some(low), Some(high)) => low.0 + (high.0 - low.0) * (probability - low.1) / (high.1 - low.1),
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mean(n: u32, mut draw: impl FnMut() -> f64) -> f64 {
        (0..n).map(|_| draw()).sum::<f64>() / f64::from(n)
    }

    #[test]
    fn equal_keys_give_equal_draws_and_different_keys_do_not() {
        let row = |seed, workload| {
            let mut draws = Draws::new(seed, workload);
            (0..8).map(|_| draws.below(1 << 40)).collect::<Vec<_>>()
        };
        assert_eq!(row(1, 0), row(1, 0));
        assert_ne!(row(1, 0), row(2, 0));
        assert_ne!(row(1, 0), row(1, 1));
    }

    #[test]
    fn gaps_have_the_configured_mean() {
        let mut draws = Draws::new(7, 0);
        let mean = mean(200_000, || draws.gap_ns(Interarrival::Exponential(300_000.0)) as f64);
        assert!((mean / 300_000.0 - 1.0).abs() < 0.01, "{mean}");
    }

    #[test]
    fn pareto_has_the_configured_mean() {
        let size = Size::Pareto { mean_bytes: 50_000.0, shape: 3.0, max_bytes: None };
        let mut draws = Draws::new(7, 0);
        let mean = mean(200_000, || draws.size_bytes(&size) as f64);
        assert!((mean / 50_000.0 - 1.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn a_bounded_pareto_is_a_truncated_pareto() {
        let unbounded = Size::Pareto { mean_bytes: 50_000.0, shape: 1.2, max_bytes: None };
        let bounded = Size::Pareto { mean_bytes: 50_000.0, shape: 1.2, max_bytes: Some(100_000.0) };
        let sizes = |size: &Size, seed| {
            let mut draws = Draws::new(seed, 0);
            let mut sizes: Vec<_> =
                (0..100_000).map(|_| draws.size_bytes(size)).filter(|bytes| *bytes <= 100_000).collect();
            sizes.sort_unstable();
            sizes
        };
        let (filtered, drawn) = (sizes(&unbounded, 7), sizes(&bounded, 8));
        assert_eq!(drawn.len(), 100_000);
        for share in [0.1, 0.5, 0.9, 0.99] {
            let at = |sizes: &[u64]| sizes[(share * sizes.len() as f64) as usize] as f64;
            assert!(
                (at(&drawn) / at(&filtered) - 1.0).abs() < 0.03,
                "{share}: {} {}",
                at(&drawn),
                at(&filtered)
            );
        }
    }

    #[test]
    fn a_cdf_is_interpolated_linearly_and_starts_with_an_atom() {
        let points = [(100.0, 0.2), (200.0, 0.6), (1000.0, 1.0)];
        assert_eq!(quantile(&points, 0.0), 100.0);
        assert_eq!(quantile(&points, 0.19), 100.0);
        assert!((quantile(&points, 0.4) - 150.0).abs() < 1e-9);
        assert!((quantile(&points, 0.8) - 600.0).abs() < 1e-9);
        assert_eq!(quantile(&points, 1.0), 1000.0);
    }

    proptest! {
        #[test]
        fn draws_below_n_are_below_n(seed: u64, n in 1u64..) {
            let mut draws = Draws::new(seed, 0);
            prop_assert!((0..16).all(|_| draws.below(n) < n));
        }

        #[test]
        fn uniform_sizes_stay_within_their_bounds(seed: u64, low in 1u64..1 << 40, span in 0u64..1 << 40) {
            let mut draws = Draws::new(seed, 0);
            let size = Size::Uniform(low, low + span);
            prop_assert!((0..16).all(|_| (low..=low + span).contains(&draws.size_bytes(&size))));
        }

        #[test]
        fn pareto_sizes_are_between_the_scale_and_the_bound(
            seed: u64, mean in 10.0f64..1e9, shape in 1.01f64..10.0, bound in 1.001f64..1000.0
        ) {
            let mut draws = Draws::new(seed, 0);
            let scale = mean * (shape - 1.0) / shape;
            let min = scale.round().max(1.0) as u64;
            let unbounded = Size::Pareto { mean_bytes: mean, shape, max_bytes: None };
            prop_assert!((0..16).all(|_| draws.size_bytes(&unbounded) >= min));
            let max = (bound * scale).round().max(1.0) as u64;
            let bounded = Size::Pareto { mean_bytes: mean, shape, max_bytes: Some(bound * scale) };
            prop_assert!((0..16).all(|_| (min..=max).contains(&draws.size_bytes(&bounded))));
        }

        #[test]
        fn quantiles_are_monotonic(mut sizes in prop::collection::vec(1.0f64..1e9, 2..8), a in 0.0f64..1.0, b in 0.0f64..1.0) {
            sizes.sort_by(f64::total_cmp);
            let last = sizes.len() as f64;
            let points: Vec<_> = sizes.iter().enumerate().map(|(i, s)| (*s, (i + 1) as f64 / last)).collect();
            prop_assert!(quantile(&points, a.min(b)) <= quantile(&points, a.max(b)));
        }

        #[test]
        fn a_drawn_pair_has_two_different_nodes(seed: u64, nodes in 2usize..10) {
            let all: Vec<usize> = (0..nodes).collect();
            let pairs = Pairs::Product { sources: all.clone(), destinations: all };
            let mut draws = Draws::new(seed, 3);
            prop_assert!((0..32).map(|_| draws.pair(&pairs)).all(|[src, dst]| src != dst));
        }
    }
}
