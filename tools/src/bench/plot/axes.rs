//! The two axes of the latency chart.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::duration;

/// Share of the way from the first to the second pixel, rounded.
fn pixel(share: f64, (first, second): (i32, i32)) -> i32 {
    first + (f64::from(second - first) * share).round() as i32
}

/// A number with its unit, without decimals that are all zero.
pub(super) fn mark(text: &str) -> String {
    let Some((whole, rest)) = text.split_once('.') else { return text.to_owned() };
    let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let zeros = rest[..rest.len() - unit.len()].bytes().all(|digit| digit == b'0');
    if zeros { format!("{whole}{unit}") } else { text.to_owned() }
}

/// Percentiles as nines: 0 is 0%, 1 is 90%, 2 is 99%, and so on to `end`, which is above 0.
pub(super) struct Nines {
    pub(super) end: f64,
}

impl Ranged for Nines {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        pixel(value / self.end, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        // 0% and the median, and each nine.
        let median = 2_f64.log10();
        let nines = (1..=9).map(f64::from);
        [0.0, median].into_iter().chain(nines).filter(|&n| n <= self.end).collect()
    }

    fn range(&self) -> Range<f64> {
        0.0..self.end
    }
}

impl ValueFormatter<f64> for Nines {
    fn format_ext(&self, nines: &f64) -> String {
        // As many digits as there are nines: 99.9 is three of them.
        let decimals = (nines.ceil() as usize).saturating_sub(2);
        format!("{:.decimals$}", 100.0 * (1.0 - 10_f64.powf(-nines)))
    }
}

/// Nanoseconds on a logarithmic scale.
pub(super) struct Decades {
    first: f64,
    last: f64,
}

impl Decades {
    /// A scale that holds both and begins and ends at 1, 2 or 5 times a power of ten.
    pub(super) fn around(fastest: u64, slowest: u64) -> Self {
        let (fastest, slowest) = (fastest.max(1) as f64, slowest.max(2) as f64);
        let marks: Vec<f64> = marks(&[1.0, 2.0, 5.0]).collect();
        let first = marks.iter().copied().rfind(|&m| m <= fastest).unwrap_or(1.0);
        let last = marks.into_iter().find(|&m| m >= slowest && m > first);
        Self { first, last: last.unwrap_or(slowest) }
    }
}

/// Up to 5 x 10^19, more than 64 bits hold.
fn marks(steps: &[f64]) -> impl Iterator<Item = f64> {
    (0..=19).flat_map(|exponent| steps.iter().map(move |step| step * 10_f64.powi(exponent)))
}

impl Ranged for Decades {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        pixel((value / self.first).ln() / (self.last / self.first).ln(), limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let inside = |steps: &[f64]| -> Vec<f64> {
            marks(steps).filter(|m| self.range().contains(m) || *m == self.last).collect()
        };
        let fine = inside(&[1.0, 2.0, 5.0]);
        if fine.len() <= hint.max_num_points().min(12) { fine } else { inside(&[1.0]) }
    }

    fn range(&self) -> Range<f64> {
        self.first..self.last
    }
}

impl ValueFormatter<f64> for Decades {
    fn format_ext(&self, nanos: &f64) -> String {
        mark(&duration(*nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_lose_decimals_that_are_zero() {
        assert_eq!(mark("5.00k"), "5k");
        assert_eq!(mark("10.0 ms"), "10 ms");
        assert_eq!(mark("2.50M"), "2.50M");
        assert_eq!(mark("100"), "100");
    }

    #[test]
    fn nines_are_written_as_percent() {
        let axis = Nines { end: 5.0 };
        let rows = [
            (0.0, "0"),
            (2_f64.log10(), "50"),
            (1.0, "90"),
            (2.0, "99"),
            (3.0, "99.9"),
            (5.0, "99.999"),
        ];
        for (nines, text) in rows {
            assert_eq!(axis.format_ext(&nines), text);
        }
    }

    #[test]
    fn a_latency_scale_begins_and_ends_at_round_marks() {
        let axis = Decades::around(16_000, 3_300_000);
        assert_eq!(axis.range(), 10_000.0..5_000_000.0);
        assert_eq!(axis.map(&10_000.0, (500, 0)), 500);
        assert_eq!(axis.map(&5_000_000.0, (500, 0)), 0);
        assert_eq!(axis.format_ext(&10_000.0), "10 us");
        assert_eq!(axis.format_ext(&5_000_000.0), "5 ms");
        assert_eq!(Decades::around(1, 1).range(), 1.0..2.0);
        assert!(Decades::around(u64::MAX, u64::MAX).range().end > 1e19);
    }
}
