//! What a request does to the record of its key: the rules that preprocessing and every model of it share.
//!
//! By default all that writes is an insert of the size that the line says, as in the tools of HotRAP's authors; the rules
//! of memcached are an option. The paper is silent on both, and on times to live, which are an option too.
//! Tests: `tests/model.rs`.

use std::str::FromStr;

use kelvin_base::{Error, Result};

use super::request::{Kind, Request, TRACE_VALUE_BYTES_MAX};

/// How requests other than `get` and `delete` are understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Semantics {
    /// Each is an insert of the value size that its line says.
    #[default]
    Inserts,
    /// `add` writes only where there is no record, the others but `set` only where there is one; `append` and `prepend`
    /// lengthen it, `incr` and `decr` rewrite it as long as it is. A `cas` is taken to succeed.
    Memcached,
}

impl Semantics {
    /// The name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inserts => "inserts",
            Self::Memcached => "memcached",
        }
    }
}

impl FromStr for Semantics {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Inserts, Self::Memcached].into_iter().find(|one| one.name() == text).ok_or_else(|| {
            Error::invalid(format!("no meaning of writes is called '{text}'"))
                .advice("use inserts, as in the HotRAP paper, or memcached")
        })
    }
}

/// How a trace is understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// What writes do.
    pub semantics: Semantics,
    /// Whether records end with their time to live: the next request for one finds it gone.
    pub expire: bool,
}

/// What is known of a record. Sizes are bytes; positions count bytes read or written by all requests so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    /// Of the value; the last one if there is no record now.
    pub value_size: u32,
    /// Of key and value when it was last read; 0 is never.
    pub read_size: u32,
    /// When it ends, seconds; 0 is never.
    expires: u32,
    /// Whether a request for it was met.
    is_known: bool,
    /// Whether there is a record.
    pub is_live: bool,
    /// Whether it was there before the trace began, and was not written since.
    pub is_prior: bool,
    /// Which write it is of: the number of the request, from 1; 0 is the load.
    pub version: u64,
    /// Where it was last written.
    pub written_at: u64,
    /// Where it was last read.
    pub read_at: u64,
}

/// What a request did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Read, and found it or not.
    Read(bool),
    /// Looked whether there is a record, and left it as it was.
    Probed(bool),
    /// Wrote without looking.
    Wrote,
    /// Looked, and wrote.
    Modified,
    /// Removed it, whether or not it was there.
    Deleted,
}

impl Record {
    /// Meets the first request for a key: a read that found something means a record from before the trace. True if so.
    pub fn meet(&mut self, request: &Request<'_>) -> bool {
        if self.is_known {
            return false;
        }
        self.is_known = true;
        self.is_prior = request.kind.is_read() && request.value_size > 0;
        if self.is_prior {
            (self.is_live, self.value_size) = (true, request.value_size);
        }
        self.is_prior
    }

    /// Ends the record if its time is over when `request` comes; true if so.
    pub fn expire(&mut self, rules: Rules, request: &Request<'_>) -> bool {
        let is_over = self.expires != 0 && request.timestamp >= u64::from(self.expires);
        let ends = rules.expire && self.is_live && is_over;
        if ends {
            self.end();
        }
        ends
    }

    /// Does what `request` says. Its version, when it writes, is the caller's to set.
    pub fn apply(&mut self, rules: Rules, request: &Request<'_>) -> Change {
        let kind = request.kind;
        match kind {
            Kind::Get | Kind::Gets => return Change::Read(self.is_live),
            Kind::Delete => {
                self.end();
                return Change::Deleted;
            }
            _ => {}
        }
        let is_blind = rules.semantics == Semantics::Inserts || kind == Kind::Set;
        let is_refused = !is_blind && (self.is_live == (kind == Kind::Add));
        let value_size = match kind {
            _ if is_blind => Some(request.value_size),
            Kind::Append | Kind::Prepend => {
                self.value_size.checked_add(request.value_size).filter(|size| *size <= TRACE_VALUE_BYTES_MAX)
            }
            Kind::Incr | Kind::Decr => Some(self.value_size),
            _ => Some(request.value_size),
        };
        let (false, Some(value_size)) = (is_refused, value_size) else { return Change::Probed(self.is_live) };
        let keeps_ttl = !is_blind && matches!(kind, Kind::Append | Kind::Prepend | Kind::Incr | Kind::Decr);
        if !keeps_ttl {
            let end = request.timestamp.saturating_add(request.ttl.into());
            self.expires = if request.ttl == 0 { 0 } else { u32::try_from(end).unwrap_or(u32::MAX) };
        }
        (self.value_size, self.is_live, self.is_prior) = (value_size, true, false);
        if is_blind { Change::Wrote } else { Change::Modified }
    }

    /// Bytes of key and value; 0 if there is no record.
    #[must_use]
    pub fn bytes(&self, key_size: u64) -> u64 {
        if self.is_live { key_size + u64::from(self.value_size) } else { 0 }
    }

    fn end(&mut self) {
        (self.is_live, self.is_prior, self.read_at, self.read_size) = (false, false, 0, 0);
    }
}
