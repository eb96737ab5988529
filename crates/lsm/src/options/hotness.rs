//! Which tracker of hot keys a store keeps.
//!
//! Tests: `tests.rs` beside.

use std::fmt;
use std::str::FromStr;

use kelvin_base::{Error, Result};

/// How a store with two tiers tells hot records from cold ones: by its point reads and short scans
/// ([`HotParts::scan_accesses`]). Those of a snapshot count like others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Hotness {
    /// RALT with exponential smoothing (HotRAP): how often and how lately. Lies on the fast tier and survives a restart.
    Ralt,
    /// RALT by the last access alone.
    Lru,
    /// RALT by counters of three bits, as CLOCK has.
    Clock,
    /// Exact counts in memory, without a limit on it and lost at closing: for tests, and to see what could be reached.
    Oracle,
    /// Not at all: where a record lies follows from when it was written.
    #[default]
    Off,
}

impl Hotness {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Ralt, Self::Lru, Self::Clock, Self::Oracle, Self::Off];

    /// The name used by the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ralt => "ralt",
            Self::Lru => "lru",
            Self::Clock => "clock",
            Self::Oracle => "oracle",
            Self::Off => "off",
        }
    }

    /// True if it keeps files on the fast tier.
    #[must_use]
    pub const fn is_on_disk(self) -> bool {
        matches!(self, Self::Ralt | Self::Lru | Self::Clock)
    }
}

/// What is done about hot records. Parts can be left out to see what each is worth (HotRAP tables 3 to 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotParts {
    /// Hot records stay on the fast tier when their table leaves it, and so do copies in its range.
    pub retention: bool,
    /// Only hot ones of the records read from the slow tier are promoted.
    pub hotness_check: bool,
    /// Compactions to the slow tier promote records of the promotion cache that they pass.
    pub promotion_by_compaction: bool,
    /// A full promotion cache is written to the fast tier; if not, it is emptied.
    pub promotion_by_flush: bool,
    /// A short scan, of [`SHORT_SCAN_RECORDS_MAX`] records at most, is an access to so many of them, the first ones; a longer
    /// one to none. 0: no scan is.
    pub scan_accesses: u32,
}

/// A scan of more records is none that tells which ones are hot.
pub const SHORT_SCAN_RECORDS_MAX: u32 = 16;

impl Default for HotParts {
    fn default() -> Self {
        Self {
            retention: true,
            hotness_check: true,
            promotion_by_compaction: true,
            promotion_by_flush: true,
            // The one that was asked for. With all of them the tracker fills with what only lies beside hot records.
            scan_accesses: 1,
        }
    }
}

impl fmt::Display for Hotness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Hotness {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(text)).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|one| one.name()).collect();
            Error::invalid(format!("no hotness is called '{text}'"))
                .advice(format!("use one of {}", names.join(", ")))
        })
    }
}
