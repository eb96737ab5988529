//! `kelvin stats`: what the store counted, and its sizes now.

use serde_json::{Value, json};

use crate::args::inspect::Stats;
use crate::exit::{Exit, Outcome};
use crate::output::{Paint, bytes, grouped, lines, nested, print, print_json, table};
use crate::store;

/// Prints them.
///
/// # Errors
/// The store's, or the output's.
pub fn run(args: &Stats) -> Outcome {
    let db = store::open_existing(&args.store)?;
    let stats = db.stats();
    db.close()?;
    if args.output.json {
        print_json(&as_json(&stats))?;
        return Ok(Exit::Ok);
    }
    let mut table = table(&["what", "value", ""], &["value"]);
    for (name, value) in stats.rows() {
        if value > 0 || args.all {
            let size = if name.contains("bytes") { bytes(value) } else { String::new() };
            table.add_row([name, grouped(value), size]);
        }
    }
    if let Some(hotness) = &stats.hotness {
        table.add_row(["hotness", hotness.kind.name(), ""]);
        if let Some(error) = &hotness.last_error {
            table.add_row(["hotness_error", error, ""]);
        }
    }
    table.add_row(["pressure", &stats.pressure, ""]);
    if let Some(error) = &stats.background_error {
        table.add_row(["background_error", error, ""]);
    }
    print(&lines(&table, Paint::for_stdout()))?;
    Ok(Exit::Ok)
}

/// The rows as nested objects.
pub fn as_json(stats: &kelvin::Stats) -> Value {
    let mut object = nested(stats.rows().into_iter().map(|(name, value)| (name, value.into())));
    object.insert("fast_hit_rate".to_string(), stats.fast_hit_rate().into());
    object.insert(
        "capacity_bytes".to_string(),
        json!({"fast": stats.capacity_bytes[0], "slow": stats.capacity_bytes[1]}),
    );
    let hotness = stats.hotness.as_ref();
    if let Some(ralt) = object.get_mut("ralt") {
        let cpu_us = hotness.map_or(0, |one| one.cpu_us);
        ralt["cpu_s"] = std::time::Duration::from_micros(cpu_us).as_secs_f64().into();
        ralt["last_error"] = hotness.and_then(|one| one.last_error.as_deref()).into();
    }
    object.insert("hotness".to_string(), hotness.map_or("off", |one| one.kind.name()).into());
    object.insert("pressure".to_string(), stats.pressure.as_str().into());
    object.insert("background_error".to_string(), stats.background_error.as_deref().into());
    Value::Object(object)
}
