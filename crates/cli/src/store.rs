//! Opening the store that the options name.
//!
//! Only commands that write records make a store: a mistyped directory must not become an empty one.

use std::path::Path;

use kelvin::storage::{OsStorage, Storage};
use kelvin::transfer::Encoding;
use kelvin::{CompressionChoice, Db, Durability, Error, Hotness, KEY_BYTES_MAX, Keyspace, Options, Profile};

use crate::args::store::{
    BytesArgs, CompressionArg, DurabilityArg, HotnessArg, KeyspaceArgs, PlaceArgs, ProfileArg, StoreArgs,
};
use crate::events;
use crate::exit::Failure;

/// What only reads files needs no capacity; any that options allow will do.
const ANY_CAPACITY: u64 = 1 << 50;

/// Options for reading the files of a store that is not opened.
pub fn to_read(place: &PlaceArgs) -> Options {
    let options = Options::new(&place.fast);
    match &place.slow {
        Some(slow) => options.slow(slow).fast_capacity(ANY_CAPACITY),
        None => options,
    }
}

/// The options as the library takes them.
pub fn options(args: &StoreArgs) -> Options {
    let mut options = Options::new(&args.place.fast);
    if let Some(slow) = &args.place.slow {
        options = options.slow(slow);
    }
    if let Some(bytes) = args.fast_capacity {
        options = options.fast_capacity(bytes);
    }
    if let Some(bytes) = args.slow_capacity {
        options = options.slow_capacity(bytes);
    }
    if let Some(bytes) = args.memory {
        options = options.memory(bytes);
    }
    if let Some(level) = args.durability {
        options = options.durability(match level {
            DurabilityArg::Memory => Durability::Memory,
            DurabilityArg::Os => Durability::Os,
            DurabilityArg::Sync => Durability::Sync,
        });
    }
    if let Some(how) = args.compression {
        options = options.compression(match how {
            CompressionArg::None => CompressionChoice::None,
            CompressionArg::Lz4 => CompressionChoice::Lz4,
            CompressionArg::Zstd => CompressionChoice::Zstd,
            CompressionArg::ByTier => CompressionChoice::ByTier,
        });
    }
    if let Some(name) = args.profile {
        options = options.profile(match name {
            ProfileArg::Balanced => Profile::Balanced,
            ProfileArg::Reads => Profile::Reads,
            ProfileArg::Writes => Profile::Writes,
            ProfileArg::Scans => Profile::Scans,
        });
    }
    if let Some(kind) = args.hotness {
        let kind = match kind {
            HotnessArg::Ralt => Hotness::Ralt,
            HotnessArg::Lru => Hotness::Lru,
            HotnessArg::Clock => Hotness::Clock,
            HotnessArg::Off => Hotness::Off,
        };
        options = options.advanced(|advanced| advanced.hotness = Some(kind));
    }
    options
}

/// Refuses a directory without a store.
///
/// # Errors
/// `InvalidArgument` naming the directory.
pub fn must_exist(place: &PlaceArgs) -> Result<(), Failure> {
    let dir = &place.fast;
    if !dir.exists() {
        return Err(Error::invalid("there is no such directory")
            .file(dir)
            .advice("check --fast or KELVIN_DIR; `kelvin put` and `kelvin load` make a store")
            .into());
    }
    if !dir.is_dir() {
        return Err(Error::invalid("this is no directory")
            .file(dir)
            .advice("--fast takes the directory of the store, not a file in it")
            .into());
    }
    if !holds_a_store(dir)? {
        return Err(Error::invalid("there is no store in this directory")
            .file(dir)
            .advice("check --fast or KELVIN_DIR; `kelvin put` and `kelvin load` make a store")
            .into());
    }
    Ok(())
}

/// True if the directory holds any file of a store. One that lacks some is for the library to refuse.
fn holds_a_store(dir: &Path) -> Result<bool, Failure> {
    let names = OsStorage::new().list(dir).map_err(|error| Error::io("listing the directory", dir, error))?;
    Ok(names.iter().any(|path| {
        let is_named = path.file_name().is_some_and(|name| name == "CURRENT");
        let has = |extension: &str| path.extension().is_some_and(|found| found == extension);
        is_named || has("tbl") || has("wal") || has("manifest")
    }))
}

/// Opens what the options name, with a listener if one is asked for.
fn open(args: &StoreArgs) -> Result<Db, Failure> {
    let mut options = options(args);
    if let Some(path) = &args.events {
        options = options.listener(events::listener(path)?);
    }
    Ok(Db::open(options)?)
}

/// Opens a store that is there.
///
/// # Errors
/// As [`must_exist`] and [`Db::open`].
pub fn open_existing(args: &StoreArgs) -> Result<Db, Failure> {
    must_exist(&args.place)?;
    open(args)
}

/// Opens a store, making it if there is none.
///
/// # Errors
/// As [`Db::open`].
pub fn open_or_make(args: &StoreArgs) -> Result<Db, Failure> {
    open(args)
}

/// A keyspace that is there.
///
/// # Errors
/// `InvalidArgument` naming the keyspaces there are.
pub fn keyspace(db: &Db, args: &KeyspaceArgs) -> Result<Keyspace, Failure> {
    let names = db.keyspaces();
    if !names.contains(&args.keyspace) {
        return Err(Error::invalid(format!("there is no keyspace {:?}", args.keyspace))
            .advice(format!("the store has: {}; `kelvin put` and `kelvin load` make one", names.join(", ")))
            .into());
    }
    Ok(db.keyspace(&args.keyspace)?)
}

/// The bytes of a key or value as written on the command line.
///
/// # Errors
/// `InvalidArgument` saying what is wrong with it.
pub fn decode(bytes: &BytesArgs, name: &str, text: &str) -> Result<Vec<u8>, Failure> {
    decode_as(bytes.chosen().unwrap_or_default(), name, text)
}

/// As [`decode`], in `encoding`.
///
/// # Errors
/// As [`decode`].
pub fn decode_as(encoding: Encoding, name: &str, text: &str) -> Result<Vec<u8>, Failure> {
    encoding.decode(text.as_bytes()).map_err(|why| {
        Error::invalid(format!("the {name} {text:?} cannot be read: {why}"))
            .advice(format!("it is read as {}; see --encoding", encoding.name()))
            .into()
    })
}

/// Refuses keys no store takes, before a store is made for one.
///
/// # Errors
/// `InvalidArgument` with the lengths allowed.
pub fn check_key(key: &[u8]) -> Result<(), Failure> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(Error::invalid("the key has a length no record can have")
            .expected(format!("1 to {KEY_BYTES_MAX} bytes"), format!("{} bytes", key.len()))
            .into());
    }
    Ok(())
}
