//! What shall go wrong, and how often.

use std::fmt;
use std::str::FromStr;

use crate::block::{Lba, Uri, UriError};

/// What shall go wrong. Probabilities run from 0 (never, the default) to 1 (always); at most one
/// of error, medium, lost, torn and misplace befalls a request. The `_at` ones come before the
/// drawn ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultPlan {
    /// Where all draws come from.
    pub seed: u64,
    /// A request fails with a retryable device error, and nothing of it reaches the device.
    pub error: f64,
    /// A request fails at one of its blocks, drawn. The blocks before it are transferred.
    pub medium: f64,
    /// Of a write of two blocks or more only the first few reach the device. It completes `Ok`.
    pub torn: f64,
    /// A write completes `Ok`, and nothing of it reaches the device.
    pub lost: f64,
    /// A write completes `Ok`, and lands at another multiple of its own length.
    pub misplace: f64,
    /// One bit of a read's data is changed on the way up.
    pub flip: f64,
    /// Every request that covers this block fails there, as with `medium`.
    pub medium_at: Option<Lba>,
    /// The channel's first write of two blocks or more that covers this block is cut before it
    /// (after it, if it is the first block), as with `torn`.
    pub torn_at: Option<Lba>,
    /// The channel's first write that covers this block is lost.
    pub lost_at: Option<Lba>,
    /// The channel's first write that covers this block lands elsewhere.
    pub misplace_at: Option<Lba>,
    /// Every read that covers this block has one bit of it changed.
    pub flip_at: Option<Lba>,
    /// A request is held back for a time: before the device sees it or after it is done, equally
    /// often. So the device also does things in another order than it was asked.
    pub delay: f64,
    /// Longest such time, in microseconds; the time is drawn uniformly.
    pub delay_us_max: u64,
    /// After a poll that followed a submit, the channel is full until the next poll. `room` says
    /// so, since whoever asks for room relies on it; never in two polls running.
    pub full: f64,
    /// A completion is held back until another one passes it, or until no other is outstanding.
    pub reorder: f64,
    /// After this many requests *of a channel* the device is gone for that channel: everything
    /// completes `Gone` from then on. Counted a channel, so that a seed replays exactly however
    /// channels interleave.
    pub gone_after: Option<u64>,
}

/// Longest delay if none is given: a slow flash drive's worst read, in microseconds.
const DELAY_US_MAX: u64 = 1000;

impl FaultPlan {
    /// Reads the options of `fault:?...@inner`: the fields' names, and `delay_us` for
    /// `delay_us_max`.
    ///
    /// # Errors
    /// A probability outside 0 to 1, something that is no number, an unknown option.
    pub fn from_uri(uri: &Uri) -> Result<Self, UriError> {
        let block = |key| uri.option::<u64>(key).map(|lba| lba.map(Lba));
        let plan = Self {
            seed: uri.option("seed")?.unwrap_or(0),
            error: probability(uri, "error")?,
            medium: probability(uri, "medium")?,
            torn: probability(uri, "torn")?,
            lost: probability(uri, "lost")?,
            misplace: probability(uri, "misplace")?,
            flip: probability(uri, "flip")?,
            medium_at: block("medium_at")?,
            torn_at: block("torn_at")?,
            lost_at: block("lost_at")?,
            misplace_at: block("misplace_at")?,
            flip_at: block("flip_at")?,
            delay: probability(uri, "delay")?,
            delay_us_max: delay_us(uri)?,
            full: probability(uri, "full")?,
            reorder: probability(uri, "reorder")?,
            gone_after: uri.option("gone_after")?,
        };
        uri.finish()?;
        Ok(plan)
    }
}

fn probability(uri: &Uri, key: &str) -> Result<f64, UriError> {
    let given: Option<Real> = uri.option(key)?;
    let Some(Real(p)) = given else { return Ok(0.0) };
    if (0.0..=1.0).contains(&p) {
        Ok(p)
    } else {
        Err(uri.bad(key, "expected a probability: a number from 0 to 1, such as 0.01"))
    }
}

/// Longest delay: a minute. A longer one is a request that never ends.
const DELAY_US_LIMIT: u64 = 60_000_000;

fn delay_us(uri: &Uri) -> Result<u64, UriError> {
    match uri.option("delay_us")? {
        Some(us) if us > DELAY_US_LIMIT => {
            Err(uri.bad("delay_us", "expected at most 60000000 microseconds, a minute"))
        }
        given => Ok(given.unwrap_or(DELAY_US_MAX)),
    }
}

/// A number whose parse error says what was expected.
struct Real(f64);

impl FromStr for Real {
    type Err = &'static str;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        s.parse()
            .map(Self)
            .map_err(|_| "expected a probability: a number from 0 to 1, such as 0.01")
    }
}

/// The options of the URI that gives this plan.
impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "?seed={}", self.seed)?;
        let drawn = [
            ("error", self.error),
            ("medium", self.medium),
            ("torn", self.torn),
            ("lost", self.lost),
            ("misplace", self.misplace),
            ("flip", self.flip),
            ("delay", self.delay),
            ("full", self.full),
            ("reorder", self.reorder),
        ];
        for (key, p) in drawn.into_iter().filter(|(_, p)| *p > 0.0) {
            write!(f, "&{key}={p}")?;
        }
        let block = |lba: Option<Lba>| lba.map(|lba| lba.0);
        let exact = [
            ("medium_at", block(self.medium_at)),
            ("torn_at", block(self.torn_at)),
            ("lost_at", block(self.lost_at)),
            ("misplace_at", block(self.misplace_at)),
            ("flip_at", block(self.flip_at)),
            ("delay_us", (self.delay > 0.0).then_some(self.delay_us_max)),
            ("gone_after", self.gone_after),
        ];
        for (key, n) in exact {
            if let Some(n) = n {
                write!(f, "&{key}={n}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_reads_from_the_uri_that_it_writes() {
        let text = "fault:?seed=7&error=0.25&flip=1&delay=0.5&medium_at=9&delay_us=40&gone_after=3";
        let plan = FaultPlan::from_uri(&Uri::parse(&format!("{text}@mem:1M")).unwrap()).unwrap();
        let expected = FaultPlan {
            seed: 7,
            error: 0.25,
            flip: 1.0,
            delay: 0.5,
            medium_at: Some(Lba(9)),
            delay_us_max: 40,
            gone_after: Some(3),
            ..FaultPlan::default()
        };
        assert_eq!(plan, expected);
        assert_eq!(format!("fault:{plan}"), text);
    }

    #[test]
    fn what_is_no_probability_is_refused_in_words() {
        for bad in ["1.5", "-0.1", "NaN", "often"] {
            let uri = Uri::parse(&format!("fault:?torn={bad}@mem:1M")).unwrap();
            let message = FaultPlan::from_uri(&uri).unwrap_err().to_string();
            assert!(message.contains("torn") && message.contains("from 0 to 1"), "{message}");
        }
        let uri = Uri::parse("fault:?tron=1@mem:1M").unwrap();
        assert!(matches!(FaultPlan::from_uri(&uri), Err(UriError::Unknown { .. })));
    }
}
