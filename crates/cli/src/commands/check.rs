//! `kelvin check`: every byte of every file, and what is lost.
//!
//! The store is not opened, so it works where opening fails. It must not be open in another process: its files would
//! change while they are read.

use kelvin::{CheckReport, FileCheck};
use serde_json::{Value, json};

use crate::args::inspect::Check;
use crate::exit::{Exit, Outcome};
use crate::output::{Paint, bytes, grouped, print, print_json};
use crate::{progress, store};

/// Checks the store; code 3 if anything is damaged.
///
/// # Errors
/// If there is no store to check, or the output's.
pub fn run(args: &Check) -> Outcome {
    store::must_exist(&args.place)?;
    let bar = progress::bar(Some(0), "bytes", args.output.json);
    let report = kelvin::check(store::to_read(&args.place), &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    if args.output.json {
        print_json(&as_json(&report))?;
    } else {
        print(&as_text(&report, args.all, Paint::for_stdout()))?;
    }
    Ok(if report.is_well() { Exit::Ok } else { Exit::Corruption })
}

fn as_text(report: &CheckReport, all: bool, paint: Paint) -> String {
    let mut text = String::new();
    for file in report.files.iter().filter(|file| all || !file.damage.is_empty() || !file.notes.is_empty()) {
        push_file(&mut text, file, paint);
    }
    let damaged = report.damaged_files().len();
    let read = format!("{} files, {} read", grouped(report.files.len() as u64), bytes(report.bytes()));
    text.push_str(&match damaged {
        0 => format!("{} {read}: every byte is what was written.", paint.green("sound:")),
        1 => format!("{} 1 of {read}. The other files are sound.", paint.red("damaged:")),
        _ => format!("{} {damaged} of {read}. The other files are sound.", paint.red("damaged:")),
    });
    if damaged > 0 {
        text.push_str(
            "\nNothing was changed. What is listed as lost can be restored from a checkpoint or a dump; `kelvin salvage` makes a new store of the rest.",
        );
    }
    text
}

fn push_file(text: &mut String, file: &FileCheck, paint: Paint) {
    let state = if file.damage.is_empty() { paint.green("sound  ") } else { paint.red("damaged") };
    let (kind, tier) = (file.kind.name(), file.tier);
    text.push_str(&format!(
        "{state}  {}  {kind} on the {tier} tier, {}\n",
        file.path.display(),
        bytes(file.bytes)
    ));
    for error in &file.damage {
        text.push_str(&format!("  found: {error}\n"));
    }
    for lost in &file.lost {
        text.push_str(&format!("  lost:  {lost}\n"));
    }
    for note in &file.notes {
        text.push_str(&format!("  note:  {note}\n"));
    }
}

fn as_json(report: &CheckReport) -> Value {
    let one = |file: &FileCheck| {
        let damage: Vec<Value> = file
            .damage
            .iter()
            .map(|error| {
                json!({"kind": error.kind().name(), "message": error.to_string(), "offset": error.at()})
            })
            .collect();
        json!({
            "file": file.path.display().to_string(), "tier": file.tier.to_string(), "kind": file.kind.name(),
            "bytes": file.bytes, "sound": file.damage.is_empty(), "damage": damage, "lost": file.lost,
            "notes": file.notes,
        })
    };
    json!({
        "sound": report.is_well(),
        "bytes": report.bytes(),
        "damaged_files": report.damaged_files().len(),
        "files": report.files.iter().map(one).collect::<Value>(),
    })
}
