//! `kelvin salvage`: what can be read of a damaged store, in a new one, and what is lost.
//!
//! Tests: `crates/cli/tests/cli/salvage.rs`.

use kelvin::salvage::{How, Keyspace, Lost, Salvaged, salvage};
use kelvin::{Bytes, Error, Options};
use serde_json::{Value, json};

use crate::args::inspect::Salvage;
use crate::args::store::PlaceArgs;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{Paint, bytes, grouped, lines, print, print_json, table};
use crate::{progress, store};

/// Rescues the store; code 3 if anything is lost.
///
/// # Errors
/// If there is no store, it is open, or its manifest cannot be read; what keeps the new one from being written.
pub fn run(args: &Salvage) -> Outcome {
    store::must_exist(&args.place)?;
    let mut into = Options::new(&args.to);
    if let Some(slow) = &args.slow_to {
        into = into.slow(slow);
    }
    if let (Some(capacity), true) = (args.fast_capacity, args.slow_to.is_some()) {
        into = into.fast_capacity(capacity);
    }
    if let Some(memory) = args.memory {
        into = into.memory(memory);
    }
    let how = How { without_manifest: args.without_manifest, without_slow: args.without_slow };
    let bar = progress::bar(None, "records", args.output.json);
    let slow = args.place.slow.clone().filter(|_| !args.without_slow);
    let place = PlaceArgs { slow, ..args.place.clone() };
    let outcome = salvage(store::to_read(&place), into, how, &mut |records| bar.set_position(records));
    bar.finish_and_clear();
    let salvaged = outcome.map_err(|error| failed(args, error))?;
    if args.output.json {
        print_json(&as_json(args, &salvaged))?;
    } else {
        print(&as_text(args, &salvaged, Paint::for_stdout()))?;
    }
    Ok(if salvaged.is_whole() { Exit::Ok } else { Exit::Corruption })
}

/// An error, with what it leaves behind if the new store was begun.
fn failed(args: &Salvage, error: Error) -> Failure {
    let is_of_new = error.path().is_some_and(|path| {
        path.starts_with(&args.to) || args.slow_to.as_ref().is_some_and(|slow| path.starts_with(slow))
    });
    let failure = Failure::from(error);
    if is_of_new {
        failure.note(
            "the damaged store was not changed; the new one holds what was rescued so far, if it was begun",
        )
    } else {
        failure
    }
}

fn as_text(args: &Salvage, salvaged: &Salvaged, paint: Paint) -> String {
    let mut text = String::new();
    let mut rows = table(&["keyspace", "rescued", "doubtful", "these are in"], &["rescued", "doubtful"]);
    for one in &salvaged.keyspaces {
        rows.add_row([
            one.name.as_str(),
            &grouped(one.rescued),
            &grouped(one.doubtful),
            apart(one).unwrap_or("-"),
        ]);
    }
    text.push_str(&lines(&rows, paint));
    text.push('\n');
    for one in salvaged.keyspaces.iter().filter(|one| one.doubtful > 0) {
        text.push_str(&format!(
            "\ndoubtful in keyspace {:?}: what is lost may have overwritten or deleted\n",
            one.name
        ));
        for (from, to) in &one.doubtful_ranges {
            text.push_str(&format!("  \"{}\" to \"{}\"\n", from.escape_ascii(), to.escape_ascii()));
        }
    }
    if !salvaged.lost.is_empty() {
        text.push('\n');
        text.push_str(&lines(&lost_rows(&salvaged.lost), paint));
        text.push('\n');
    }
    for note in &salvaged.notes {
        text.push_str(&format!("\nnote: {note}"));
    }
    text.push('\n');
    let to = args.to.display();
    let records = match salvaged.rescued() {
        1 => "1 record".to_string(),
        many => format!("{} records", grouped(many)),
    };
    text.push_str(&match salvaged.lost.len() {
        0 => format!("{} {to} holds {records}; nothing is lost.", paint.green("whole:")),
        pieces => format!(
            "{} {} of the files could not be read; {to} holds {records}, and {} doubtful.",
            paint.red("lost:"),
            if pieces == 1 { "1 piece".to_string() } else { format!("{} pieces", grouped(pieces as u64)) },
            grouped(salvaged.doubtful())
        ),
    });
    text.push_str(" The damaged store was not changed.");
    text
}

/// The keyspace that doubtful records were put into, if there are any.
fn apart(keyspace: &Keyspace) -> Option<&str> {
    (keyspace.doubtful > 0).then_some(keyspace.doubtful_name.as_str())
}

fn lost_rows(lost: &[Lost]) -> comfy_table::Table {
    let mut rows = table(&["lost", "file", "byte", "size", "keyspace", "keys", "why"], &["byte", "size"]);
    for one in lost {
        rows.add_row([
            one.part.name().to_string(),
            one.path.display().to_string(),
            one.offset.map_or_else(|| "-".into(), grouped),
            one.bytes.map_or_else(|| "-".into(), bytes),
            one.keyspace.clone().unwrap_or_else(|| "any".into()),
            one.keys.as_ref().map_or_else(|| "any".into(), range),
            one.error.what().to_string(),
        ]);
    }
    rows
}

fn range((from, to): &(Bytes, Bytes)) -> String {
    format!("\"{}\" to \"{}\"", from.escape_ascii(), to.escape_ascii())
}

fn as_json(args: &Salvage, salvaged: &Salvaged) -> Value {
    let text = |key: &Bytes| key.escape_ascii().to_string();
    let keyspace = |one: &Keyspace| {
        let ranges = one.doubtful_ranges.iter().map(|(from, to)| json!({"from": text(from), "to": text(to)}));
        json!({
            "name": one.name, "rescued": one.rescued, "doubtful": one.doubtful,
            "doubtful_keyspace": apart(one), "doubtful_ranges": ranges.collect::<Value>(),
        })
    };
    let lost = |one: &Lost| {
        let (from, to) = one.keys.as_ref().map(|(from, to)| (text(from), text(to))).unzip();
        json!({
            "part": one.part.name(), "kind": one.kind.name(), "file": one.path.display().to_string(),
            "tier": one.tier.to_string(), "offset": one.offset, "bytes": one.bytes, "keyspace": one.keyspace,
            "from": from, "to": to,
            "error": {"kind": one.error.kind().name(), "message": one.error.to_string()},
        })
    };
    json!({
        "dir": args.to.display().to_string(),
        "slow_dir": args.slow_to.as_ref().map(|dir| dir.display().to_string()),
        "whole": salvaged.is_whole(),
        "rescued": salvaged.rescued(),
        "doubtful": salvaged.doubtful(),
        "keyspaces": salvaged.keyspaces.iter().map(keyspace).collect::<Value>(),
        "lost": salvaged.lost.iter().map(lost).collect::<Value>(),
        "notes": salvaged.notes,
    })
}
