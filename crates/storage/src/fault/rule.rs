//! When a fault happens and what it does.
//!
//! A rule matches operations by kind and file name; of the matching ones it skips some, then fires with a
//! probability, a limited number of times. Tests: `tests.rs`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kelvin_base::Clock;

/// Kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// `Storage::create`
    Create,
    /// `Storage::open`
    Open,
    /// `ReadFile::read_at`
    Read,
    /// `WriteFile::append`
    Append,
    /// `WriteFile::flush`
    Flush,
    /// `WriteFile::sync`
    Sync,
    /// `Storage::sync_dir`
    SyncDir,
    /// `Storage::create_dir_all`
    CreateDir,
    /// `Storage::rename`, matched by the old name
    Rename,
    /// `Storage::hard_link`, matched by the old name
    Link,
    /// `Storage::remove`
    Remove,
    /// `Storage::list`
    List,
    /// `Storage::file_len` and `ReadFile::len`
    Len,
    /// `Storage::exists`
    Exists,
    /// `Storage::lock`
    Lock,
    /// `Storage::free_space`
    Space,
}

/// What a fault does. Effects that do not fit the operation are an `EIO` instead.
#[derive(Clone, Debug)]
pub enum Effect {
    /// The operation is not done; this error number comes back.
    Error(i32),
    /// A read ends early: `UnexpectedEof`.
    ShortRead,
    /// A random prefix of an append is written, then `ENOSPC`.
    ShortWrite,
    /// A random prefix of an append is written and handed to the operating system, then `EIO`.
    TornWrite,
    /// One random bit of what is read or appended changes; success is reported.
    FlipBit,
    /// A read answers the bytes of another place of the file, if it has one; success is reported.
    MisdirectedRead,
    /// A read answers what the file of this name held before it was overwritten or replaced, zeros where it
    /// held nothing; success is reported.
    StaleRead,
    /// The operation waits for [`super::FaultStorage::release`], then is done.
    Stall,
    /// The operation waits this long on the clock, then is done.
    StallFor(Duration, Arc<dyn Clock>),
}

/// When an [`Effect`] happens.
#[derive(Clone, Debug)]
pub struct Rule {
    op: Option<Op>,
    glob: Option<String>,
    skip: u64,
    times: u64,
    per_million: u32,
    pub(super) effect: Effect,
}

impl Rule {
    /// Every operation of kind `op`, on every file, always.
    #[must_use]
    pub const fn new(op: Op, effect: Effect) -> Self {
        Self { op: Some(op), glob: None, skip: 0, times: u64::MAX, per_million: 1_000_000, effect }
    }

    /// Every operation of every kind.
    #[must_use]
    pub fn any(effect: Effect) -> Self {
        Self { op: None, ..Self::new(Op::Read, effect) }
    }

    /// Only files matching `glob`: `*` is any text, `?` one character. A glob with a `/` is matched with the whole
    /// path, else with the file's name.
    #[must_use]
    pub fn on(self, glob: impl Into<String>) -> Self {
        Self { glob: Some(glob.into()), ..self }
    }

    /// Leaves the first `count` matching operations alone.
    #[must_use]
    pub fn after(self, count: u64) -> Self {
        Self { skip: count, ..self }
    }

    /// Fires at most `count` times.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self { times: count, ..self }
    }

    /// Fires in `per_million` of a million cases.
    #[must_use]
    pub fn chance(self, per_million: u32) -> Self {
        Self { per_million, ..self }
    }

    fn matches(&self, op: Op, path: &Path) -> bool {
        self.op.is_none_or(|wanted| wanted == op)
            && self.glob.as_ref().is_none_or(|glob| {
                let name =
                    if glob.contains('/') { path.as_os_str() } else { path.file_name().unwrap_or_default() };
                glob_matches(glob.as_bytes(), name.as_encoded_bytes())
            })
    }

    /// Counts a matching operation; true if the effect happens. `chance` draws for a number per million.
    pub(super) fn fires(&mut self, op: Op, path: &Path, chance: impl FnOnce(u32) -> bool) -> bool {
        if self.times == 0 || !self.matches(op, path) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let fires = chance(self.per_million);
        self.times -= u64::from(fires);
        fires
    }
}

/// Shell-like matching in linear space: on a mismatch the last `*` takes one more byte.
fn glob_matches(glob: &[u8], text: &[u8]) -> bool {
    let (mut g, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match glob.get(g) {
            Some(b'*') => {
                star = Some((g, t));
                g += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[t] => {
                g += 1;
                t += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    g = at + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_like_a_shell_over_the_whole_text() {
        for (glob, text, expected) in [
            ("*.log", "000012.log", true),
            ("*.log", "000012.log2", false),
            ("0?.t*l", "01.tbl", true),
            ("a*b*c", "aXbXbc", true),
            ("a*b*c", "aXbXb", false),
            ("", "", true),
            ("*", "", true),
            ("?", "", false),
        ] {
            assert_eq!(glob_matches(glob.as_bytes(), text.as_bytes()), expected, "{glob} {text}");
        }
    }
}
