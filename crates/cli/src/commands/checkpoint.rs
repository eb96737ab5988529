//! `kelvin checkpoint`: a copy of the store that opens like any other.

use kelvin::Error;
use serde_json::json;

use crate::args::inspect::Checkpoint;
use crate::exit::{Exit, Outcome};
use crate::output::{print, print_json};
use crate::store;

/// Makes the copy.
///
/// # Errors
/// The store's.
pub fn run(args: &Checkpoint) -> Outcome {
    if args.store.place.slow.is_some() != args.slow_to.is_some() {
        let advice = match args.slow_to {
            Some(_) => "leave --slow-to out: the store has one tier (or give --slow)",
            None => "name a directory on the slow disk with --slow-to",
        };
        return Err(Error::invalid("a copy has as many tiers as its store").advice(advice).into());
    }
    let db = store::open_existing(&args.store)?;
    db.checkpoint(&args.to, args.slow_to.as_deref())?;
    db.close()?;
    let (to, slow_to) = (args.to.display(), args.slow_to.as_ref().map(|dir| dir.display()));
    if args.output.json {
        print_json(&json!({"dir": to.to_string(), "slow_dir": slow_to.map(|dir| dir.to_string())}))?;
    } else {
        let slow = slow_to.map(|dir| format!(" and {dir}")).unwrap_or_default();
        print(&format!("checkpoint made in {to}{slow}"))?;
    }
    Ok(Exit::Ok)
}
