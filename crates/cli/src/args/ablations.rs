//! Parts of Kelvin's handling of hot records that a benchmark can leave out (HotRAP tables 3 to 5).

use clap::Args;
use kelvin::HotParts;

/// What `bench` and `bench paper` share.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Ablations of the system kelvin (HotRAP tables 3 to 5)")]
pub struct Ablations {
    /// Let hot records go when their table leaves the fast disk
    #[arg(long)]
    pub no_retention: bool,
    /// Promote whatever is read from the slow disk, hot or not
    #[arg(long)]
    pub no_hotness_check: bool,
    /// Let no compaction promote what it passes
    #[arg(long)]
    pub no_promotion_by_compaction: bool,
    /// Empty a full promotion cache instead of writing it to the fast disk
    #[arg(long)]
    pub no_promotion_by_flush: bool,
}

impl Ablations {
    /// The parts that are left.
    pub fn parts(self) -> HotParts {
        HotParts {
            retention: !self.no_retention,
            hotness_check: !self.no_hotness_check,
            promotion_by_compaction: !self.no_promotion_by_compaction,
            promotion_by_flush: !self.no_promotion_by_flush,
            ..HotParts::default()
        }
    }
}
