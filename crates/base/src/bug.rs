//! Deliberate defects, to show that the tests find them.
//!
//! [`seeded_bug!`](crate::seeded_bug) stands where a plausible mistake is one expression away from the right code. It is a
//! constant `false` unless `kelvin-base` is built with the feature `seeded-bugs`, which nothing but `cargo xtask bugs` asks
//! for; then it is true for the one bug that [`VARIABLE`] names. Which test finds which bug stands in `xtask/src/bugs`;
//! `xtask tidy` sees to it that each name there stands in the code once, and the other way round.

/// The environment variable that names the bug that is on.
pub const VARIABLE: &str = "KELVIN_SEEDED_BUG";

/// True if `name` is the bug that is on.
#[cfg(feature = "seeded-bugs")]
#[must_use]
pub fn is_on(name: &str) -> bool {
    static ON: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    ON.get_or_init(|| std::env::var(VARIABLE).ok()).as_deref() == Some(name)
}

/// What the bugs are in every other build.
#[cfg(not(feature = "seeded-bugs"))]
#[must_use]
pub const fn is_on(_name: &str) -> bool {
    false
}

/// True where the bug of this name is to be made: never, but in the build of `cargo xtask bugs` (see [`bug`](crate::bug)).
#[macro_export]
macro_rules! seeded_bug {
    ($name:literal) => {
        $crate::bug::is_on($name)
    };
}
