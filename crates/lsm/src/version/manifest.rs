//! The manifest file: a header and checksummed records, one edit each; and `CURRENT`, which names the manifest in force.
//!
//! Invariants
//! - A manifest is appended to only by the process that made it, and never again after an append or a sync failed
//!   (RELIABILITY M3, M4, M5). Opening a store always begins a new one.
//! - A record that does not check is the end of the manifest only if nothing after it checks: a record behind it
//!   proves damage in the middle, which is an error. So that one stands behind the last edit too, a *mark*, a record without a
//!   payload, follows every edit once it is synced. A mark itself says nothing: where one cannot be read the manifest goes on.
//!
//! Format: docs/formats/manifest.md. Tests: `tests.rs`.

use std::io;
use std::path::{Path, PathBuf};

use kelvin_base::hash::{hash64_seeded, place_seed};
use kelvin_base::{Error, Result, Tier};
use kelvin_storage::{AlignedBuf, Create, IoMode, Storage, WriteFile};

use super::edit::Edit;

/// Name of the file that names the manifest in force.
pub const CURRENT: &str = "CURRENT";
/// Its successor, until it is renamed.
pub const CURRENT_NEW: &str = "CURRENT.new";
const MAGIC: [u8; 8] = *b"KELVMAN\n";
const FORMAT_VERSION: u32 = 1;
const HEADER_BYTES: usize = 44;
pub(super) const FRAME_BYTES: usize = 16;
const MANIFEST_BYTES_MAX: u64 = 4 << 30;
const READ_BYTES: usize = 1 << 20;

/// Name of manifest `number`.
#[must_use]
pub fn manifest_name(number: u64) -> String {
    format!("{number:06}.manifest")
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn io_error(what: &str, path: &Path, error: io::Error) -> Error {
    let full = is_full(&error);
    let error = Error::io(what, path, error).tier(Tier::Fast);
    if full {
        error.advice("free space on the fast disk; nothing was changed, and reads go on")
    } else {
        error
    }
}

/// Appends to a manifest this process made.
#[derive(Debug)]
pub(super) struct Writer {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    number: u64,
    size_bytes: u64,
}

/// Which step of making an edit durable failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The record may be there in part or whole; nothing was synced. A new manifest can take over.
    Append(Error),
    /// A sync or the switch to a new manifest failed: what the disk holds is unknown.
    Unknown(Error),
}

impl Writer {
    /// Makes manifest `number` with its header. `CURRENT` does not name it yet.
    pub fn create(storage: &dyn Storage, dir: &Path, number: u64, uuid: [u8; 16]) -> Result<Self, Failure> {
        let path = dir.join(manifest_name(number));
        let failed = |error| Failure::Append(io_error("cannot make a manifest", &path, error));
        let mut file = storage.create(&path, Create::new(IoMode::Buffered)).map_err(failed)?;
        file.append(&header(number, uuid)).map_err(failed)?;
        Ok(Self { file, path, number, size_bytes: HEADER_BYTES as u64 })
    }

    /// Appends `edit`; not durable before [`Writer::sync`].
    pub fn append(&mut self, edit: &Edit) -> Result<(), Failure> {
        let mut payload = Vec::new();
        edit.encode(&mut payload);
        let record = frame(self.number, self.size_bytes, &payload).map_err(Failure::Append)?;
        self.file
            .append(&record)
            .map_err(|error| Failure::Append(io_error("cannot append to the manifest", &self.path, error)))?;
        self.size_bytes += record.len() as u64;
        Ok(())
    }

    /// Makes everything appended durable. What the system does not take (a full disk) is a failed append, told apart from
    /// a failed sync.
    pub fn sync(&mut self) -> Result<(), Failure> {
        self.file
            .flush()
            .map_err(|error| Failure::Append(io_error("cannot write the manifest", &self.path, error)))?;
        self.file
            .sync()
            .map_err(|error| Failure::Unknown(io_error("cannot sync the manifest", &self.path, error)))
    }

    /// Vouches for everything synced so far: hands a mark to the operating system, to be synced with what follows.
    pub fn mark(&mut self) -> Result<(), Failure> {
        self.append(&Edit::default())?;
        self.file
            .flush()
            .map_err(|error| Failure::Append(io_error("cannot write the manifest", &self.path, error)))
    }

    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub const fn number(&self) -> u64 {
        self.number
    }
}

/// The header of manifest `number`.
fn header(number: u64, uuid: [u8; 16]) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    header.extend_from_slice(&number.to_le_bytes());
    header.extend_from_slice(&uuid);
    let check = hash64_seeded(place_seed(number, 0), &header);
    header.extend_from_slice(&check.to_le_bytes());
    header
}

/// A manifest of these encoded edits under good checksums, whatever the edits say: what fuzzing needs to reach behind
/// the checksums.
///
/// # Errors
/// `InvalidArgument` if an edit is larger than 4 GiB.
pub fn sign(number: u64, uuid: [u8; 16], edits: &[&[u8]]) -> Result<Vec<u8>> {
    let mut out = header(number, uuid);
    for edit in edits {
        let record = frame(number, out.len() as u64, edit)?;
        out.extend_from_slice(&record);
    }
    Ok(out)
}

/// What `CURRENT` says when manifest `number` is in force.
#[must_use]
pub fn current_line(number: u64) -> String {
    let name = manifest_name(number);
    format!("{name} {:016x}\n", hash64_seeded(number, name.as_bytes()))
}

/// Frame and payload of a record at `offset`.
fn frame(number: u64, offset: u64, payload: &[u8]) -> Result<Vec<u8>> {
    let len = u32::try_from(payload.len()).map_err(|_| Error::invalid("an edit is larger than 4 GiB"))?;
    let mut record = Vec::with_capacity(FRAME_BYTES + payload.len());
    record.extend_from_slice(&len.to_le_bytes());
    record.extend_from_slice(&len_check(number, offset, len).to_le_bytes());
    record.extend_from_slice(&hash64_seeded(place_seed(number, offset), payload).to_le_bytes());
    record.extend_from_slice(payload);
    Ok(record)
}

/// The length has a check of its own, so that a damaged length is not taken for a record cut off by a crash.
fn len_check(number: u64, offset: u64, len: u32) -> u32 {
    let hash = hash64_seeded(place_seed(number, offset), &len.to_le_bytes());
    u32::try_from(hash >> 32).unwrap_or(0)
}

/// Makes `CURRENT` name manifest `number`, durably.
pub(super) fn set_current(storage: &dyn Storage, dir: &Path, number: u64) -> Result<(), Failure> {
    let (new, current) = (dir.join(CURRENT_NEW), dir.join(CURRENT));
    let before =
        |error| Failure::Append(io_error("cannot write the file that names the manifest", &new, error));
    match storage.remove(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(before(error)),
        _ => {}
    }
    let line = current_line(number);
    let mut file = storage.create(&new, Create::new(IoMode::Buffered)).map_err(before)?;
    // A full disk is met here, not in the sync.
    file.append(line.as_bytes()).and_then(|()| file.flush()).map_err(before)?;
    let unknown = |error| Failure::Unknown(io_error("cannot switch to a new manifest", &current, error));
    file.sync().map_err(unknown)?;
    drop(file);
    // The manifest's own directory entry must be durable before a durable CURRENT names it (M1).
    storage.sync_dir(dir).map_err(unknown)?;
    // A directory that is full was not changed.
    storage
        .rename(&new, &current)
        .map_err(|error| if is_full(&error) { before(error) } else { unknown(error) })?;
    storage.sync_dir(dir).map_err(unknown)
}

/// Number of the manifest in force; `None` if there is no store here.
pub(super) fn read_current(storage: &dyn Storage, dir: &Path) -> Result<Option<u64>> {
    let path = dir.join(CURRENT);
    if !storage.exists(&path).map_err(|error| io_error("cannot look for a store", &path, error))? {
        return Ok(None);
    }
    let bytes = read_whole(storage, &path, 256)?;
    let damaged = || {
        Error::corruption(&path, 0, "the file that names the manifest is damaged")
            .expected(
                "a line like \"000001.manifest 0123456789abcdef\"",
                format!("{:?}", String::from_utf8_lossy(&bytes)),
            )
            .advice("the store's newest *.manifest file is most likely the one it named")
    };
    let line =
        std::str::from_utf8(&bytes).ok().and_then(|text| text.strip_suffix('\n')).ok_or_else(damaged)?;
    let (name, check) = line.split_once(' ').ok_or_else(damaged)?;
    let number: u64 =
        name.strip_suffix(".manifest").and_then(|digits| digits.parse().ok()).ok_or_else(damaged)?;
    let expected = format!("{:016x}", hash64_seeded(number, name.as_bytes()));
    if manifest_name(number) != name || check != expected {
        return Err(damaged());
    }
    Ok(Some(number))
}

pub(super) fn read_whole(storage: &dyn Storage, path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let failed = |error| io_error("cannot read", path, error);
    let file = storage.open(path, IoMode::Buffered).map_err(failed)?;
    let len = file.len().map_err(failed)?;
    if len > bytes_max {
        return Err(Error::corruption(path, bytes_max, "a file is longer than it can be")
            .expected(format!("at most {bytes_max} bytes"), format!("{len} bytes")));
    }
    let mut bytes = Vec::new();
    let mut buf = AlignedBuf::new();
    let mut offset = 0;
    while offset < len {
        let want = usize::try_from(len - offset).unwrap_or(READ_BYTES).min(READ_BYTES);
        let range = file.read_at(offset, want, &mut buf).map_err(failed)?;
        let part = buf
            .as_slice()
            .get(range)
            .filter(|part| !part.is_empty())
            .ok_or_else(|| failed(io::Error::from(io::ErrorKind::UnexpectedEof)))?;
        bytes.extend_from_slice(part);
        offset += part.len() as u64;
    }
    Ok(bytes)
}

/// What a manifest says.
#[derive(Debug)]
pub(super) struct Read {
    pub uuid: [u8; 16],
    pub edits: Vec<Edit>,
    /// Where a record begins that a crash cut off, if one does.
    pub torn_at: Option<u64>,
}

/// Reads manifest `number`.
pub(super) fn read(storage: &dyn Storage, dir: &Path, number: u64) -> Result<Read> {
    let path = dir.join(manifest_name(number));
    let bytes = read_whole(storage, &path, MANIFEST_BYTES_MAX)?;
    parse(&path, number, &bytes)
}

/// Parses the bytes of manifest `number`.
pub(super) fn parse(path: &Path, number: u64, bytes: &[u8]) -> Result<Read> {
    let uuid = parse_header(path, number, bytes)?;
    let mut edits = Vec::new();
    let mut offset = HEADER_BYTES;
    while offset < bytes.len() {
        let Some(payload) = record_at(number, bytes, offset) else {
            // Every edit has a payload, so this was a mark; a power loss may take it and leave what was written behind it.
            if record_at(number, bytes, offset + FRAME_BYTES).is_some() {
                offset += FRAME_BYTES;
                continue;
            }
            if let Some(later) = (offset + 1..bytes.len()).find(|at| record_at(number, bytes, *at).is_some())
            {
                return Err(Error::corruption(
                    path,
                    offset as u64,
                    "a manifest record does not match its checksum",
                )
                .expected("a record that checks", format!("none, yet one that checks at byte {later}"))
                .tier(Tier::Fast));
            }
            return Ok(Read { uuid, edits, torn_at: Some(offset as u64) });
        };
        if !payload.is_empty() {
            let edit = Edit::decode(payload).map_err(|error| error.file(path).offset(offset as u64))?;
            edits.push(edit);
        }
        offset += FRAME_BYTES + payload.len();
    }
    Ok(Read { uuid, edits, torn_at: None })
}

/// The edits of manifest `number` that can be read, whatever lies between them. They need not add up to any state.
///
/// # Errors
/// The storage's.
pub(crate) fn edits_that_check(storage: &dyn Storage, dir: &Path, number: u64) -> Result<Vec<Edit>> {
    let bytes = read_whole(storage, &dir.join(manifest_name(number)), MANIFEST_BYTES_MAX)?;
    let mut edits = Vec::new();
    let mut offset = HEADER_BYTES;
    while offset < bytes.len() {
        offset += match record_at(number, &bytes, offset) {
            None => 1,
            Some(payload) => {
                edits.extend(Edit::decode(payload));
                FRAME_BYTES + payload.len()
            }
        };
    }
    Ok(edits)
}

fn parse_header(path: &Path, number: u64, bytes: &[u8]) -> Result<[u8; 16]> {
    let damaged = |what: &str| Error::corruption(path, 0, what).tier(Tier::Fast);
    let header = bytes.get(..HEADER_BYTES).ok_or_else(|| {
        damaged("the manifest ends inside its header")
            .expected(format!("{HEADER_BYTES} bytes"), format!("{} bytes", bytes.len()))
    })?;
    if header[..8] != MAGIC {
        return Err(
            damaged("the file is not a manifest").expected("magic KELVMAN", format!("{:02x?}", &header[..8]))
        );
    }
    let (body, check) = header.split_at(HEADER_BYTES - 8);
    let expected = hash64_seeded(place_seed(number, 0), body);
    if check != expected.to_le_bytes() {
        return Err(damaged("the manifest's header does not match its checksum")
            .expected(format!("{:02x?}", expected.to_le_bytes()), format!("{check:02x?}")));
    }
    let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    if version != FORMAT_VERSION {
        return Err(Error::invalid(format!(
            "the manifest is of format {version}, which this version does not know"
        ))
        .file(path)
        .expected(format!("format {FORMAT_VERSION}"), format!("format {version}"))
        .advice("open the store with the version that wrote it, or a newer one"));
    }
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&header[20..36]);
    Ok(uuid)
}

/// The payload of the record at `offset`, if it is whole and checks.
fn record_at(number: u64, bytes: &[u8], offset: usize) -> Option<&[u8]> {
    let rest = bytes.get(offset..)?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let (own_len_check, rest) = rest.split_first_chunk::<4>()?;
    let len = u32::from_le_bytes(*len);
    if u32::from_le_bytes(*own_len_check) != len_check(number, offset as u64, len) {
        return None;
    }
    let (check, rest) = rest.split_first_chunk::<8>()?;
    let payload = rest.get(..usize::try_from(len).ok()?)?;
    (u64::from_le_bytes(*check) == hash64_seeded(place_seed(number, offset as u64), payload))
        .then_some(payload)
}
