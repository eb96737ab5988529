//! The identity file of the slow tier: which store the directory belongs to, and how old its content is.
//!
//! The manifest on the fast tier holds the same [`StoreId`]. At each open for writing the epoch is raised, so that a
//! slow directory of another store, an older copy of the right one, and an older copy of the fast directory are told
//! apart before anything is read from them.
//!
//! Raising takes three durable steps: [`raise`] on the slow tier, the manifest's edit, [`settle`] on the slow tier.
//! Invariant: outside those steps both sides hold the same epoch; inside, the slow side is one ahead and says
//! `Raising`, and such a file is accepted by the next open. Format and protocol: `docs/formats/identity.md`.
//! Tests: `tests.rs`.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;

use kelvin_base::hash::hash64_seeded;
use kelvin_base::{Error, ErrorKind, Result, coding};

use super::handle::TierHandle;

/// The identity file's name in the slow directory.
pub const FILE_NAME: &str = "IDENTITY";

/// Name of the lock file, in either tier's directory.
pub const LOCK_NAME: &str = "LOCK";

const MAGIC: [u8; 8] = *b"KELVINID";
const FORMAT_VERSION: u32 = 1;
const FILE_BYTES: usize = 56;
/// No version of the format may be longer; what is longer is no identity file.
const FILE_BYTES_MAX: usize = 4096;
const CHECKSUM_BYTES: usize = 8;
/// Keeps a piece of another checksummed file from passing: the first eight bytes as a seed.
const CHECKSUM_SEED: u64 = u64::from_le_bytes(MAGIC);

/// Which store, and which of its openings.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct StoreId {
    /// Made once, when the store is created.
    pub uuid: [u8; 16],
    /// Raised at each open for writing; the first is 1.
    pub epoch: u64,
}

impl StoreId {
    /// The identity of a new store: from `seed`, the wall time in milliseconds, and its directory.
    #[must_use]
    pub fn generate(seed: u64, unix_millis: u64, dir: &Path) -> Self {
        let high = hash64_seeded(seed, &unix_millis.to_le_bytes());
        let low = hash64_seeded(high ^ seed.rotate_left(32), dir.as_os_str().as_encoded_bytes());
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&high.to_le_bytes());
        uuid[8..].copy_from_slice(&low.to_le_bytes());
        Self { uuid, epoch: 1 }
    }

    /// The same store's next opening.
    #[must_use]
    pub fn raised(self) -> Self {
        Self { epoch: self.epoch.saturating_add(1), ..self }
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.uuid {
            write!(f, "{byte:02x}")?;
        }
        write!(f, " epoch {}", self.epoch)
    }
}

impl fmt::Debug for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreId({self})")
    }
}

/// How far the raising of the epoch had come when the file was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The manifest holds the same epoch.
    Settled,
    /// The manifest may still hold the epoch before.
    Raising,
}

/// What an identity file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Store and epoch.
    pub id: StoreId,
    /// Whether the manifest is known to agree.
    pub phase: Phase,
}

/// The bytes of an identity file.
#[must_use]
pub fn encode(identity: &Identity) -> Vec<u8> {
    let mut out = Vec::with_capacity(FILE_BYTES);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    let phase: u32 = match identity.phase {
        Phase::Settled => 0,
        Phase::Raising => 1,
    };
    out.extend_from_slice(&phase.to_le_bytes());
    out.extend_from_slice(&identity.id.uuid);
    out.extend_from_slice(&identity.id.epoch.to_le_bytes());
    out.extend_from_slice(&0u64.to_le_bytes());
    let checksum = hash64_seeded(CHECKSUM_SEED, &out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

/// Reads the bytes of an identity file; `path` is for errors only.
///
/// # Errors
/// `Corruption` if they are not what was written; `InvalidArgument` if a newer Kelvin wrote them.
pub fn decode(path: &Path, bytes: &[u8]) -> Result<Identity> {
    let corrupt = |offset: u64, what: &str| {
        Error::corruption(path, offset, what).advice(
            "the file names the store and holds no records, so none is lost; \
             restore this one file from a backup of the slow directory",
        )
    };
    let Some(body_bytes) = bytes.len().checked_sub(CHECKSUM_BYTES).filter(|_| bytes.len() <= FILE_BYTES_MAX)
    else {
        return Err(corrupt(0, "the identity file has an impossible length")
            .expected(format!("{FILE_BYTES} bytes"), format!("{} bytes", bytes.len())));
    };
    let (body, mut stored) = bytes.split_at(body_bytes);
    let (computed, stored) = (hash64_seeded(CHECKSUM_SEED, body), coding::get_u64(&mut stored).unwrap_or(0));
    if computed != stored {
        return Err(corrupt(body_bytes as u64, "the identity file's checksum does not match")
            .expected(format_args!("{computed:#018x}"), format_args!("{stored:#018x}")));
    }
    let mut rest = body;
    let magic = take::<8>(&mut rest).ok_or_else(|| corrupt(0, "the identity file is too short"))?;
    if magic != MAGIC {
        return Err(
            corrupt(0, "this is no identity file").expected("KELVINID", String::from_utf8_lossy(&magic))
        );
    }
    let version = coding::get_u32(&mut rest).ok_or_else(|| corrupt(8, "the identity file is too short"))?;
    if version == 0 {
        return Err(corrupt(8, "the identity file names a format that never was"));
    }
    if version > FORMAT_VERSION {
        return Err(Error::invalid("the identity file was written by a newer Kelvin")
            .file(path)
            .expected(format!("format {FORMAT_VERSION} or older"), format!("format {version}"))
            .advice("nothing was changed; open the store with that version or a later one"));
    }
    decode_fields(&mut rest).ok_or_else(|| corrupt(12, "the identity file's fields are out of bounds"))
}

fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = input.split_first_chunk::<N>()?;
    *input = tail;
    Some(*head)
}

fn decode_fields(input: &mut &[u8]) -> Option<Identity> {
    let phase = match coding::get_u32(input)? {
        0 => Phase::Settled,
        1 => Phase::Raising,
        _ => return None,
    };
    let uuid = take::<16>(input)?;
    let epoch = coding::get_u64(input)?;
    let reserved = coding::get_u64(input)?;
    (epoch > 0 && reserved == 0 && input.is_empty())
        .then_some(Identity { id: StoreId { uuid, epoch }, phase })
}

/// Reads the identity file of `slow`.
///
/// # Errors
/// As [`decode`] and [`TierHandle::classify`] tell them.
pub fn read(slow: &TierHandle) -> Result<Identity> {
    let bytes = slow.read_small(FILE_NAME, FILE_BYTES_MAX)?;
    decode(&slow.path(FILE_NAME), &bytes).map_err(|error| slow.classify(error))
}

fn write(slow: &TierHandle, id: StoreId, phase: Phase) -> Result<()> {
    slow.replace_small(FILE_NAME, &encode(&Identity { id, phase }))
}

/// Names a slow directory may hold before a store is made in it: none of them is a record.
fn is_harmless(name: &Path) -> bool {
    name.file_name().is_some_and(|name| {
        name == "lost+found"
            || name == LOCK_NAME
            || name == FILE_NAME
            || name.as_encoded_bytes() == format!("{FILE_NAME}.tmp").as_bytes()
    })
}

/// True if the slow directory is a store's or empty: only then may a lock file be made in it.
///
/// # Errors
/// As [`TierHandle::classify`] tells them.
pub fn may_lock(slow: &TierHandle) -> Result<bool> {
    let names = slow.list()?;
    Ok(names.iter().any(|name| name.as_os_str() == FILE_NAME) || names.iter().all(|name| is_harmless(name)))
}

/// First step of making a store: claims the slow directory for `id`, making it if needed.
///
/// A claim whose store was never completed (a crash in between) is taken over.
///
/// # Errors
/// `InvalidArgument` if the directory belongs to another store or holds other files; else as
/// [`TierHandle::classify`] tells them.
pub fn claim(slow: &TierHandle, id: StoreId) -> Result<()> {
    slow.create_dir_all()?;
    let names = slow.list()?;
    let dir = slow.dir().display();
    let foreign = names.iter().find(|name| !is_harmless(name));
    let claimed = names.iter().any(|name| name.file_name().is_some_and(|name| name == FILE_NAME));
    if claimed {
        let found = read(slow)?;
        if found.phase != Phase::Raising || found.id.epoch != 1 || foreign.is_some() {
            return Err(Error::invalid(format!("the slow directory already belongs to store {}", found.id))
                .file(slow.dir())
                .tier(slow.tier())
                .advice(format!(
                    "nothing was changed; open that store with its own fast directory, or give an empty directory \
                     instead of {dir}"
                )));
        }
    } else if let Some(name) = foreign {
        return Err(Error::invalid(format!("the slow directory is not empty: it holds {}", name.display()))
            .file(slow.dir())
            .tier(slow.tier())
            .advice("nothing was changed; give an empty directory for a new store"));
    }
    write(slow, id, Phase::Raising)
}

/// First step of an open for writing: the slow side learns the raised epoch. The manifest's edit comes next.
///
/// # Errors
/// As [`TierHandle::classify`] tells them. The next open accepts either outcome.
pub fn raise(slow: &TierHandle, raised: StoreId) -> Result<()> {
    write(slow, raised, Phase::Raising)
}

/// Last step of an open for writing, after the manifest's edit is durable.
///
/// # Errors
/// As [`TierHandle::classify`] tells them. The next open accepts either outcome.
pub fn settle(slow: &TierHandle, raised: StoreId) -> Result<()> {
    write(slow, raised, Phase::Settled)
}

/// Checks that `slow` holds the lower levels of the store whose manifest, in `fast_dir`, says `expected`.
///
/// # Errors
/// `TierUnavailable` if the directory is missing or empty (the disk is not mounted); `InvalidArgument` if it is no
/// store's, another store's, an older or a newer copy, or of a newer format; `Corruption` if its identity file is
/// damaged. Each says whether data is lost and what to do. Nothing is changed.
pub fn check(slow: &TierHandle, fast_dir: &Path, expected: StoreId) -> Result<Identity> {
    if let Some(error) = absence(slow, expected)? {
        return Err(error);
    }
    let found = read(slow)?;
    if found.id.uuid != expected.uuid {
        return Err(mismatch(slow, expected, found.id, "the slow directory belongs to another store")
            .advice(format!(
                "nothing was changed and nothing is lost; give {} the slow directory it was made with",
                fast_dir.display()
            )));
    }
    let one_ahead = found.phase == Phase::Raising && found.id.epoch == expected.raised().epoch;
    if found.id.epoch == expected.epoch || one_ahead {
        return Ok(found);
    }
    if found.id.epoch < expected.epoch {
        return Err(mismatch(slow, expected, found.id, "the slow directory is an older copy").advice(format!(
            "nothing was changed; what was moved to the slow disk since that copy is not in it: give {} the current \
             slow directory, or restore both directories from the same checkpoint",
            fast_dir.display()
        )));
    }
    Err(mismatch(slow, expected, found.id, "the slow directory is newer than the fast directory").advice(format!(
        "nothing was changed; {} is an older copy, and what was written since is not in it: give the current fast \
         directory, or restore both directories from the same checkpoint",
        fast_dir.display()
    )))
}

fn mismatch(slow: &TierHandle, expected: StoreId, found: StoreId, what: &str) -> Error {
    Error::invalid(what).file(slow.dir()).tier(slow.tier()).expected(expected, found)
}

/// The error for a slow directory without an identity file; `None` if it has one.
fn absence(slow: &TierHandle, expected: StoreId) -> Result<Option<Error>> {
    if slow.exists(FILE_NAME)? {
        return Ok(None);
    }
    let unmounted = |what: &str| {
        Error::new(ErrorKind::TierUnavailable, what)
            .file(slow.dir())
            .tier(slow.tier())
            .expected(format_args!("the slow tier of store {expected}"), "none")
            .advice(
                "nothing was changed and nothing is lost; mount the slow disk there, or give its directory",
            )
    };
    if !slow.storage().exists(slow.dir()).unwrap_or(true) {
        return Ok(Some(unmounted("the slow directory does not exist")));
    }
    if slow.list()?.iter().all(|name| is_harmless(name)) {
        return Ok(Some(unmounted("the slow directory is empty")));
    }
    Ok(Some(
        Error::invalid(format!("the slow directory is no store's: it has files but no {FILE_NAME}"))
            .file(slow.dir())
            .tier(slow.tier())
            .expected(format_args!("the slow tier of store {expected}"), "other files")
            .advice(
                "nothing was changed; give the directory the store was made with, or, if it is this one, restore \
                 the file from a backup",
            ),
    ))
}
