//! Whether some records are hotter than others: only then is it worth making room on the fast tier for what is read from the slow one. Where all
//! records are read alike, a promotion takes the place of something that was as likely to be read, and what gives way is written to the slow tier.
//!
//! Were all read alike, the fast tier would answer the part of the reads that it has of the records, and of the others the tracker would know the
//! part that it tracks. Where more is answered, or more is known, there is something to gain: also where a hotspot has moved away from what the fast
//! tier has. Tests: below, and `flush_tests.rs`.

/// Fewer reads than that show nothing.
const READS_MIN: u64 = 256;
/// Older reads count for half after so many more.
const HALF_AFTER: u64 = 4096;
/// The fast tier answers more than its part if of what that would leave so much less is left: one in so many.
const MARGIN: f64 = 16.0;
/// The tracker knows more than its part if it knows so much more of what the slow tier answers.
const KNOWN_MARGIN: f64 = 1.0 / 32.0;
/// With so much of the records on the fast tier or tracked, a record is likely to be read again before it leaves, whatever is read.
const LARGE: f64 = 0.25;

/// What became of reads that found a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Answered by the fast tier or by memory.
    pub fast: u64,
    /// Answered by the slow tier.
    pub slow: u64,
    /// Of those, whose keys were hot before.
    pub known: u64,
}

impl Reads {
    const fn count(&self) -> u64 {
        self.fast + self.slow
    }

    /// What `of` makes of each count and that of `other`.
    fn each(self, other: Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            fast: of(self.fast, other.fast),
            slow: of(self.slow, other.slow),
            known: of(self.known, other.known),
        }
    }
}

/// Where the bytes lie.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Records that the fast tier answers.
    pub fast: u64,
    /// All, each once.
    pub all: u64,
    /// Of all, those that are hot.
    pub hot: u64,
}

/// The reads of late.
#[derive(Debug, Default)]
pub struct Skew {
    /// Those of all times when `lately` was last reckoned.
    before: Reads,
    lately: Reads,
}

impl Skew {
    /// True if what has become of reads, `now` counted from the beginning, is not what it would be were all records read alike.
    pub fn is_seen(&mut self, now: Reads, sizes: Sizes) -> bool {
        let new = now.each(self.before, u64::saturating_sub);
        let lately = self.lately.each(new, u64::saturating_add);
        if new.count() >= HALF_AFTER {
            self.before = now;
            self.lately = lately.each(lately, |reads, _| reads / 2);
        }
        let part = |part: u64, all: u64| (part as f64 / all.max(1) as f64).min(1.0);
        let (on_fast, tracked) = (part(sizes.fast, sizes.all), part(sizes.hot, sizes.all));
        let answers_more = part(lately.fast, lately.count()) > on_fast + (1.0 - on_fast) / MARGIN;
        let knows_more = part(lately.known, lately.slow) > tracked + KNOWN_MARGIN;
        let is_large = on_fast + tracked > LARGE;
        is_large || lately.count() >= READS_MIN && (answers_more || knows_more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { fast: 90, all: 1000, hot: 30 };

    fn reads(fast: u64, slow: u64, known: u64) -> Reads {
        Reads { fast, slow, known }
    }

    #[test]
    fn reads_that_follow_where_the_bytes_lie_show_nothing() {
        let is_seen = |reads: Reads, sizes: Sizes| Skew::default().is_seen(reads, sizes);
        assert!(!is_seen(Reads::default(), SIZES), "nothing was read");
        assert!(!is_seen(reads(900, 9100, 273), SIZES));
        assert!(!is_seen(reads(9, 91, 91), SIZES), "few reads");
        assert!(is_seen(reads(2000, 8000, 273), SIZES), "the fast tier answers twice its part");
        assert!(is_seen(reads(900, 9100, 1200), SIZES), "many were read before");
        assert!(is_seen(reads(100, 9900, 990), SIZES), "a hotspot that the fast tier does not have yet");
        assert!(!is_seen(reads(0, 10_000, 400), SIZES), "what lies on the fast tier is not read at all");
        assert!(is_seen(reads(2000, 8000, 800), Sizes { fast: 200, all: 1000, hot: 100 }), "little is slow");
    }

    #[test]
    fn what_was_seen_long_ago_is_forgotten() {
        let (mut skew, mut now) = (Skew::default(), Reads::default());
        let mut go_on = |rounds: u64, fast: u64, slow: u64| {
            (0..rounds)
                .map(|_| {
                    (now.fast, now.slow) = (now.fast + fast, now.slow + slow);
                    skew.is_seen(now, SIZES)
                })
                .collect::<Vec<_>>()
        };
        assert!(go_on(30, 900, 100).iter().all(|seen| *seen));
        let later = go_on(60, 90, 910);
        assert!(later[0] && !later[59]);
        let again = go_on(60, 900, 100);
        assert!(again[3..].iter().all(|seen| *seen), "a hotspot is noticed soon");
    }
}
