//! Errors: few kinds that tell the caller what to do, with structured facts underneath.
//!
//! An error says what happened, where (file, offset, tier), what was expected and found, and what to do.
//! "Not found" is never an error. Errors are cheap to clone because a background error is reported many times.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::tier::Tier;

/// Result with Kelvin's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Bytes read back are not the bytes written. Data named in the error may be lost; `kelvin check` lists it.
    Corruption,
    /// The tier does not answer. Retry later; no restart is needed and nothing is lost.
    TierUnavailable,
    /// A capacity or the disk is full. Free space or raise the capacity; writing resumes by itself.
    NoSpace,
    /// Another process or operation holds what is needed, or a transaction met a conflict. Retry.
    Busy,
    /// The store takes no writes any more (a failed sync, or opened read-only). Reads go on.
    ReadOnly,
    /// The request cannot be served as given. Change it.
    InvalidArgument,
    /// The operating system refused an operation.
    Io,
}

impl ErrorKind {
    /// The kind's name as printed and as used in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Corruption => "corruption",
            Self::TierUnavailable => "tier unavailable",
            Self::NoSpace => "no space",
            Self::Busy => "busy",
            Self::ReadOnly => "read-only",
            Self::InvalidArgument => "invalid argument",
            Self::Io => "i/o error",
        }
    }
}

#[derive(Clone, Debug)]
struct Facts {
    kind: ErrorKind,
    what: String,
    file: Option<PathBuf>,
    offset: Option<u64>,
    tier: Option<Tier>,
    expected_found: Option<(String, String)>,
    advice: Option<String>,
    source: Option<Arc<io::Error>>,
}

/// An error of the store: kind, what, where, and what to do. Clones share their facts.
#[derive(Clone, Debug)]
pub struct Error(Arc<Facts>);

impl Error {
    /// An error of `kind` that says `what` happened.
    #[must_use]
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self(Arc::new(Facts {
            kind,
            what: what.into(),
            file: None,
            offset: None,
            tier: None,
            expected_found: None,
            advice: None,
            source: None,
        }))
    }

    /// `ErrorKind::InvalidArgument`.
    #[must_use]
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, what)
    }

    /// `ErrorKind::Corruption` of `file` at byte `offset`.
    #[must_use]
    pub fn corruption(file: &Path, offset: u64, what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corruption, what).file(file).offset(offset)
    }

    /// An operating-system error met while doing `what` to `file`.
    ///
    /// Full disks become `NoSpace`, read-only file systems `ReadOnly`, everything else `Io`.
    #[must_use]
    pub fn io(what: impl Into<String>, file: &Path, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
            _ => ErrorKind::Io,
        };
        let mut error = Self::new(kind, what).file(file);
        Arc::make_mut(&mut error.0).source = Some(Arc::new(source));
        error
    }

    fn with(mut self, change: impl FnOnce(&mut Facts)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Names the file.
    #[must_use]
    pub fn file(self, file: &Path) -> Self {
        self.with(|f| f.file = Some(file.to_path_buf()))
    }

    /// Names the byte offset in the file.
    #[must_use]
    pub fn offset(self, offset: u64) -> Self {
        self.with(|f| f.offset = Some(offset))
    }

    /// Names the tier.
    #[must_use]
    pub fn tier(self, tier: Tier) -> Self {
        self.with(|f| f.tier = Some(tier))
    }

    /// Says what was expected and what was found instead.
    #[must_use]
    pub fn expected(self, expected: impl fmt::Display, found: impl fmt::Display) -> Self {
        self.with(|f| f.expected_found = Some((expected.to_string(), found.to_string())))
    }

    /// Says what the user can do.
    #[must_use]
    pub fn advice(self, advice: impl Into<String>) -> Self {
        self.with(|f| f.advice = Some(advice.into()))
    }

    /// The same facts under another kind (an I/O error of the slow tier becomes `TierUnavailable`).
    #[must_use]
    pub fn as_kind(self, kind: ErrorKind) -> Self {
        self.with(|f| f.kind = kind)
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// True if the same call may succeed later without anything being changed by the caller.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind(), ErrorKind::TierUnavailable | ErrorKind::Busy | ErrorKind::NoSpace)
    }

    /// What happened, without the place.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// What was expected and what was found instead, if that is the matter.
    #[must_use]
    pub fn expected_found(&self) -> Option<(&str, &str)> {
        self.0.expected_found.as_ref().map(|(expected, found)| (expected.as_str(), found.as_str()))
    }

    /// What the user can do, if the place that met the error knows.
    #[must_use]
    pub fn advised(&self) -> Option<&str> {
        self.0.advice.as_deref()
    }

    /// The file concerned, if one is.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.0.file.as_deref()
    }

    /// The byte offset concerned, if one is.
    #[must_use]
    pub fn at(&self) -> Option<u64> {
        self.0.offset
    }

    /// The tier concerned, if one is.
    #[must_use]
    pub fn on(&self) -> Option<Tier> {
        self.0.tier
    }

    /// The operating system's error underneath, if there is one.
    #[must_use]
    pub fn os(&self) -> Option<&io::Error> {
        self.0.source.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = &*self.0;
        write!(f, "{}: {}", facts.kind.name(), facts.what)?;
        if let Some(file) = &facts.file {
            write!(f, " ({}", file.display())?;
            if let Some(offset) = facts.offset {
                write!(f, " at byte {offset}")?;
            }
            f.write_str(")")?;
        }
        if let Some(tier) = facts.tier {
            write!(f, " [{tier} tier]")?;
        }
        if let Some((expected, found)) = &facts.expected_found {
            write!(f, ": expected {expected}, found {found}")?;
        }
        if let Some(source) = &facts.source {
            write!(f, ": {source}")?;
        }
        if let Some(advice) = &facts.advice {
            write!(f, "; {advice}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|e| e as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corruption_names_file_offset_expected_found_and_advice() {
        let error = Error::corruption(Path::new("fast/000012.tbl"), 4096, "block checksum does not match")
            .expected("0x1", "0x2")
            .tier(Tier::Fast)
            .advice("run `kelvin check`");
        assert_eq!(
            error.to_string(),
            "corruption: block checksum does not match (fast/000012.tbl at byte 4096) [fast tier]: \
             expected 0x1, found 0x2; run `kelvin check`"
        );
    }

    #[test]
    fn a_full_disk_is_no_space_and_retryable() {
        let error = Error::io("write", Path::new("x"), io::Error::from_raw_os_error(28));
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.is_retryable());
    }
}
