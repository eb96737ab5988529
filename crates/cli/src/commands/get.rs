//! `kelvin get`: the value of one key.

use std::io::{self, IsTerminal, Write};

use kelvin::transfer::Encoding;
use serde_json::json;

use crate::args::data::Get;
use crate::exit::{Exit, Outcome};
use crate::output::print_json;
use crate::store;

/// Prints the value.
///
/// # Errors
/// The store's, or the output's.
pub fn run(args: &Get) -> Outcome {
    let key = store::decode(&args.bytes, "key", &args.key)?;
    let db = store::open_existing(&args.store)?;
    let value = store::keyspace(&db, &args.keyspace)?.get(&key)?;
    db.close()?;
    if args.output.json {
        print_json(&match &value {
            None => json!({"found": false}),
            Some(value) => with_bytes(json!({"found": true}), "value", value, args.bytes.chosen()),
        })?;
    } else if let Some(value) = &value {
        write_value(value, args.bytes.chosen())?;
    }
    Ok(if value.is_some() { Exit::Ok } else { Exit::NotFound })
}

/// The bytes as they are; on a terminal readable and with a line feed.
fn write_value(value: &[u8], encoding: Option<Encoding>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let terminal = out.is_terminal();
    let encoding = encoding.filter(|encoding| *encoding != Encoding::Text);
    match encoding.or(terminal.then_some(Encoding::Escape)).and_then(|encoding| encoding.encode(value)) {
        Some(text) => out.write_all(text.as_bytes())?,
        None => out.write_all(value)?,
    }
    if terminal || encoding.is_some() {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// `object` with `bytes` under `name`, or under `name` and the encoding's suffix where text cannot say them.
pub fn with_bytes(
    mut object: serde_json::Value,
    name: &str,
    bytes: &[u8],
    encoding: Option<Encoding>,
) -> serde_json::Value {
    let encoding = encoding.unwrap_or_default();
    let (encoding, text) = match encoding.encode(bytes) {
        Some(text) => (encoding, text),
        None => (Encoding::Base64, Encoding::Base64.encode(bytes).unwrap_or_default()),
    };
    object[format!("{name}{}", encoding.suffix())] = text.into();
    object
}
