//! The process that is killed: writers, and a thread that reads everything and moves it between the tiers.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::path::PathBuf;

use kelvin::{Db, WriteOptions};
use kelvin_lsm::compaction::pick::Forced;

use super::{KEYS, Place, Said, WRITERS, Write, key, progress};
use crate::args::Args;
use crate::checks::Check;

/// Opens the store that `args` name and writes until it is killed.
///
/// # Errors
/// What ended it before: nothing should.
pub fn run(args: &Args) -> Check {
    let path = |name: &str| args.text(name).map(PathBuf::from).ok_or_else(|| format!("{name} is missing"));
    let variant = usize::try_from(args.number("--variant", 0)?).map_err(|error| error.to_string())?;
    let place = Place { fast: path("--fast")?, slow: path("--slow")?, variant };
    let (seed, life) = (args.number("--seed", 1)?, args.number("--life", 1)?);
    let out = std::io::stdout().as_fd().try_clone_to_owned().map_err(|error| format!("no pipe: {error}"))?;
    let out = File::from(out);
    let db = Db::open(place.options()).map_err(|error| format!("opening: {error}"))?;
    say(&out, Said::Opened)?;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, out) = (&db, &out);
            scope.spawn(move || ends_all(write(db, out, (seed, life), writer)));
        }
        scope.spawn(|| ends_all(move_about(&db)));
    });
    Ok(())
}

/// Who fails ends the process, and so tells the one that watches it.
fn ends_all(outcome: Check) {
    if let Err(what) = outcome {
        eprintln!("{what}");
        std::process::abort();
    }
}

/// One call of the operating system: whole or not at all.
fn say(mut out: &File, said: Said) -> Check {
    out.write_all(&said.encoded()).map_err(|error| format!("the pipe: {error}"))
}

fn write(db: &Db, out: &File, (seed, life): (u64, u64), writer: u8) -> Check {
    for number in progress(db, writer)? + 1.. {
        let write = Write::of(seed, life, writer, number);
        let failed = |error| format!("write {number} of writer {writer}: {error}");
        let batch = write.batch(db.id(), writer, number).map_err(failed)?;
        let options = WriteOptions { durability: Some(write.durability), ..WriteOptions::default() };
        say(out, Said::Begins(writer, number))?;
        db.write(batch, &options).map_err(failed)?;
        say(out, Said::Acknowledged(writer, number))?;
    }
    Ok(())
}

/// Reads all keys again and again, so that those on the slow tier are promoted, and pushes them down.
fn move_about(db: &Db) -> Check {
    let failed = |error| format!("moving about: {error}");
    for round in 0_usize.. {
        for (writer, number) in (0..WRITERS).flat_map(|writer| (0..KEYS).map(move |number| (writer, number)))
        {
            db.get(&key(writer, number)).map_err(failed)?;
        }
        if round % 4 == 0 {
            db.force(Forced::Down, 0);
            db.wait_idle().map_err(failed)?;
        }
        db.force([Forced::Boundary, Forced::Boundary, Forced::Runs][round % 3], round);
        if round % 64 == 63 {
            db.compact_range(None, None).map_err(failed)?;
        }
    }
    Ok(())
}
