//! `kelvin explain`: every figure the store runs with and why, or where one key lies.

use kelvin::Heat;
use serde_json::json;

use crate::args::inspect::Explain;
use crate::exit::{Exit, Outcome};
use crate::output::{Paint, lines, print, print_json, table};
use crate::store;

/// Prints the figures, or the key's place.
///
/// # Errors
/// `InvalidArgument` for options that cannot work; the store's.
pub fn run(args: &Explain) -> Outcome {
    match &args.key {
        Some(key) => explain_key(args, key),
        None => explain_options(args),
    }
}

fn explain_options(args: &Explain) -> Outcome {
    let rows = store::options(&args.store).derive()?.explain();
    if args.output.json {
        let all = rows.iter().map(|row| json!({"name": row.name, "value": row.value, "why": row.why}));
        print_json(&all.collect())?;
        return Ok(Exit::Ok);
    }
    let mut table = table(&["figure", "value", "why"], &[]);
    for row in rows {
        table.add_row([row.name, &row.value, &row.why]);
    }
    print(&lines(&table, Paint::for_stdout()))?;
    Ok(Exit::Ok)
}

/// What is known of a key's accesses, for people.
fn how_hot(heat: &Heat) -> String {
    let Some(score) = heat.score else { return "no access of it is known".to_string() };
    let again = if heat.is_stable { "accessed again while it was tracked" } else { "accessed once lately" };
    // A tracker that has not evicted yet takes every key for hot.
    let least = if heat.hot_score.is_finite() && heat.hot_score > 0.0 {
        format!("{:.3} is enough", heat.hot_score)
    } else {
        "every tracked key counts as hot so far".to_string()
    };
    format!("score {score:.3}, {least}; {again}")
}

fn explain_key(args: &Explain, key: &str) -> Outcome {
    let key = store::decode(&args.bytes, "key", key)?;
    store::check_key(&key)?;
    let db = store::open_existing(&args.store)?;
    store::keyspace(&db, &args.keyspace)?;
    let report = db.explain_key(&args.keyspace.keyspace, &key)?;
    db.close()?;
    if args.output.json {
        print_json(&json!({
            "found": report.found,
            "place": report.place,
            "tier": report.tier.map(|tier| tier.to_string()),
            "sequence": report.sequence,
            "value_bytes": report.value_bytes,
            "expiry_ms": report.expiry_ms,
            "reads": {"fast": report.reads[0], "slow": report.reads[1]},
            "tables_considered": report.tables_considered,
            "filter_negatives": report.filter_negatives,
            "cache_hits": report.cache_hits,
            "hot": report.hot,
            "heat": report.heat.map(|heat| json!({
                "score": heat.score, "hot_score": heat.hot_score, "is_stable": heat.is_stable,
            })),
            "why": report.why,
        }))?;
        return Ok(if report.found { Exit::Ok } else { Exit::NotFound });
    }
    let mut table = table(&["of the key", ""], &[]);
    let mut row = |name: &str, value: String| {
        table.add_row([name, &value]);
    };
    row("place", report.place.clone());
    if let Some(sequence) = report.sequence {
        row("sequence number", sequence.to_string());
    }
    if let Some(size) = report.value_bytes {
        row("value", format!("{size} bytes"));
    }
    if let Some(expiry_ms) = report.expiry_ms {
        row("expires", format!("{expiry_ms} ms after 1970-01-01 UTC"));
    }
    row("reads of this lookup", format!("{} fast, {} slow", report.reads[0], report.reads[1]));
    row("tables asked", report.tables_considered.to_string());
    row("excluded by filters", report.filter_negatives.to_string());
    row("blocks in memory", report.cache_hits.to_string());
    if let Some(hot) = report.hot {
        row("hot", if hot { "yes" } else { "no" }.to_string());
    }
    if let Some(heat) = report.heat {
        row("how hot", how_hot(&heat));
    }
    if !report.why.is_empty() {
        row("why there", report.why.to_string());
    }
    print(&lines(&table, Paint::for_stdout()))?;
    Ok(if report.found { Exit::Ok } else { Exit::NotFound })
}
