//! How large the paper's experiments are made here, and what follows from that.
//!
//! At scale 1 they are the paper's: 110 GB of records, 10 GB of fast disk, 2.2 × 10^8 operations. Data, fast disk, memory and
//! operations shrink with the scale. The slow disk does not shrink like them, or a run would take as long at 1/1000 as
//! at 1: a hundredth of the data has a tenth of the paper's disk (1000 reads a second, 100 MB/s), so its runs take a
//! tenth of the time. Below that tables get so small that a compaction of as many bytes is several times as many requests: the
//! bytes a second stay, the reads a second grow again by the root, to 3162 at 1/1000. Tests stand below.

use std::fmt;
use std::str::FromStr;

use kelvin_base::{Error, Result};

use crate::options::DeviceLimits;

/// Bytes of a key.
pub const KEY_SIZE: usize = 24;
/// Bytes of a value: records of 1 KiB.
pub const VALUE_SIZE: usize = 1000;
/// The paper's records.
const RECORDS: f64 = 1.1e8;
/// Its operations of the run phase.
pub const OPERATIONS: f64 = 2.2e8;
/// Its fast disk, bytes.
const FAST_BYTES: f64 = 1e10;
/// Reads a second of its slow disk.
const SLOW_READS: f64 = 10_000.0;
/// Bytes a second of its slow disk.
const SLOW_BYTES: f64 = 1e9;
/// The scale at which the disk is slowest: a tenth of the paper's.
const SLOWEST: f64 = 0.01;
/// With less a store of two tiers is mostly log and compactions in flight.
const FAST_BYTES_MIN: u64 = 2 << 20;
/// Memory that does not grow with the data: the process itself.
const PROCESS_BYTES: u64 = 14 << 20;
/// Memory for each hundredth of the data: buffers, indexes, filters, the tracker, and a cache of about 2 % of the data.
const STORE_BYTES: f64 = (34u64 << 20) as f64;
/// Below this scale runs are half as long.
const SHORT_BELOW: f64 = 0.0039;
/// The smallest scale: 2,200 records.
const SMALLEST: f64 = 1.0 / 50_000.0;

/// A part of the paper's size: more than 0, at most 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale(f64);

impl FromStr for Scale {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!("'{text}' is no scale"))
                .expected("1, a fraction such as 1/1000, or a number such as 0.01", text)
                .advice("1 is the paper's size, 110 GB; 1/1000 ends in minutes")
        };
        let part = match text.split_once('/') {
            Some((above, below)) => {
                let [above, below] = [above, below].map(|number| number.trim().parse::<f64>());
                above.map_err(|_| wrong())? / below.map_err(|_| wrong())?
            }
            None => text.trim().parse::<f64>().map_err(|_| wrong())?,
        };
        if !part.is_finite() {
            return Err(wrong());
        }
        if !(SMALLEST..=1.0).contains(&part) {
            return Err(Error::invalid(format!("the scale '{text}' is out of range"))
                .expected("1/50000 to 1; figures mean something from 1/1000 on", text)
                .advice("1 is the paper's size, 110 GB; 1/1000 ends in minutes"));
        }
        Ok(Self(part))
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = (1.0 / self.0).round();
        match (self.0 >= 1.0, (below * self.0 - 1.0).abs() < 1e-9) {
            (true, _) => f.write_str("1"),
            (_, true) => write!(f, "1/{below}"),
            _ => write!(f, "{}", self.0),
        }
    }
}

fn whole(number: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size, saturates")]
    let count = number.round() as u64;
    count
}

impl Scale {
    /// The part itself.
    #[must_use]
    pub const fn part(self) -> f64 {
        self.0
    }

    /// This part of a figure of the paper's, at least 1.
    #[must_use]
    pub fn of(self, figure: f64) -> u64 {
        whole(figure * self.0).max(1)
    }

    /// Operations of the run phase: this part of the paper's, and below 1/250 half of that, so that the whole report takes a quarter of an
    /// hour; the hot records are known long before.
    #[must_use]
    pub fn operations(self) -> u64 {
        self.of(OPERATIONS) / if self.is_short() { 2 } else { 1 }
    }

    /// True if runs are shorter than the scale says.
    #[must_use]
    pub fn is_short(self) -> bool {
        self.0 < SHORT_BELOW
    }

    /// Records loaded.
    #[must_use]
    pub fn records(self) -> u64 {
        self.of(RECORDS)
    }

    /// Bytes of the fast disk.
    #[must_use]
    pub fn fast_bytes(self) -> u64 {
        self.of(FAST_BYTES).max(FAST_BYTES_MIN)
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(self) -> u64 {
        PROCESS_BYTES + whole(STORE_BYTES * self.0 / SLOWEST)
    }

    /// The slow disk: the paper's at 1, a tenth of it at 1/100, by the root in between. Below, its reads a second grow again.
    #[must_use]
    pub fn slow_disk(self) -> DeviceLimits {
        let speed = self.0.max(SLOWEST).sqrt();
        let smaller_requests = (SLOWEST / self.0).max(1.0).sqrt();
        DeviceLimits {
            slow_read_iops: Some(whole((SLOW_READS * speed * smaller_requests).min(SLOW_READS))),
            slow_bandwidth: Some(whole(SLOW_BYTES * speed)),
            ..DeviceLimits::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_read_as_they_are_printed_and_nonsense_is_refused() {
        for text in ["1", "1/1000", "1/100", "1/10", "1/3", "0.25"] {
            let scale: Scale = text.parse().unwrap();
            assert_eq!(scale.to_string(), if text == "0.25" { "1/4" } else { text });
        }
        assert_eq!("0.3".parse::<Scale>().unwrap().to_string(), "0.3");
        for wrong in ["", "0", "-1", "1/0", "0/0", "2", "1/100000", "x", "1/x", "nan", "inf"] {
            assert!(wrong.parse::<Scale>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_hundredth_is_the_reference_and_one_is_the_paper() {
        let at = |text: &str| text.parse::<Scale>().unwrap();
        let figures = |scale: Scale| {
            let disk = scale.slow_disk();
            (scale.records(), scale.fast_bytes(), disk.slow_read_iops.unwrap(), disk.slow_bandwidth.unwrap())
        };
        assert_eq!(figures(at("1/100")), (1_100_000, 100_000_000, 1_000, 100_000_000));
        assert_eq!(figures(at("1")), (110_000_000, 10_000_000_000, 10_000, 1_000_000_000));
        assert_eq!(figures(at("1/1000")), (110_000, 10_000_000, 3_162, 100_000_000));
        assert_eq!(
            [at("1"), at("1/250"), at("1/1000")].map(Scale::operations),
            [220_000_000, 880_000, 110_000]
        );
        assert_eq!(at("1/50000").slow_disk().slow_read_iops, Some(10_000));
        assert_eq!(at("1/100").memory_bytes(), 48 << 20);
        assert_eq!(at("1/50000").fast_bytes(), FAST_BYTES_MIN);
    }
}
