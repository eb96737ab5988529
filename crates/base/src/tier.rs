//! The two storage tiers (DESIGN section 1: FD and SD).

use std::fmt;

/// A storage tier: the fast disk (FD) or the slow disk (SD).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// The fast disk: WAL, manifest, upper levels.
    Fast,
    /// The slow disk: lower levels.
    Slow,
}

impl Tier {
    /// Both tiers, fast first.
    pub const ALL: [Self; 2] = [Self::Fast, Self::Slow];

    /// 0 for fast, 1 for slow: for arrays indexed by tier.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Fast => 0,
            Self::Slow => 1,
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fast => "fast",
            Self::Slow => "slow",
        })
    }
}
