//! `kelvin bench paper`, very small: what it prints, writes and refuses.

use crate::common::{Place, failure, kelvin, stdout};

fn paper(place: &Place, args: &[&str]) -> assert_cmd::Command {
    let mut command = kelvin();
    command.args(["bench", "paper", "--disk-seconds", "0.05"]).args(args).arg("--out").arg(place.path("out"));
    command
}

#[test]
fn an_item_is_run_printed_beside_the_papers_figures_and_kept() {
    let place = Place::new();
    let args = ["table3", "--scale", "1/50000", "--slow-read-iops", "1M", "--threads", "2"];
    let output = paper(&place, &args).assert().success().get_output().clone();
    let (text, told) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    for word in ["Table 3", "no-retain", "paper: hit rate", "94.5 %", "72.0 %", "second over first"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(
        told.contains("2 runs, about") && told.contains("[2/2] rw-hotspot5-kelvin-no-retention in"),
        "{told}"
    );
    let page = String::from_utf8(place.read("out/report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("The disks"));
    assert!(told.contains("the fast disk makes") && told.contains("the slow disk makes"), "{told}");
    assert!(
        String::from_utf8(place.read("out/table3.csv")).unwrap().starts_with("version,promoted,retained")
    );
    let json: serde_json::Value = serde_json::from_slice(&place.read("out/report.json")).unwrap();
    assert!(json["devices"]["slow"]["random_reads"][1]["per_second"].as_f64().unwrap() > 0.0, "{json}");
    assert!(json["runs"]["rw-hotspot5-kelvin"]["time_series"][0]["ops"].is_u64(), "{json}");
    assert!(!place.path("out/stores").exists());

    let again = paper(&place, &args).assert().success().get_output().clone();
    assert!(String::from_utf8(again.stderr).unwrap().contains("2 of them made before"));
    assert_eq!(String::from_utf8(again.stdout).unwrap(), text);
    let changed = paper(&place, &["table3", "--scale", "1/40000", "--slow-read-iops", "1M"]);
    let told = String::from_utf8({ changed }.assert().success().get_output().stderr.clone()).unwrap();
    assert!(
        told.contains("rw-hotspot5-kelvin was run with other settings")
            && told.contains("records 2200, now 2750"),
        "{told}"
    );
}

#[test]
fn the_items_are_listed_and_need_no_directory() {
    let list = stdout(kelvin().args(["bench", "paper", "--list"]));
    for name in ["figure6", "figure11", "figure16", "table3", "table5", "scorers", "uniform", "reference"] {
        assert!(list.lines().any(|line| line.starts_with(name)), "{list}");
    }
}

#[test]
fn nonsense_is_refused_before_anything_is_run() {
    let place = Place::new();
    for (args, code, word) in [
        (&["table9"][..], 2, "no figure or table is called 'table9'"),
        (&["table3", "--scale", "0"], 2, "out of range"),
        (&["table3", "--scale", "small"], 2, "is no scale"),
        (&["table3", "--scale", "2"], 2, "1/50000 to 1"),
        (&["table3", "--threads", "0"], 2, "nothing to run"),
        (&["figure6", "--systems", "leveldb"], 2, "no system is called 'leveldb'"),
        (&["figure9", "--trace", "/nonexistent/cluster1"], 7, "/nonexistent/cluster1"),
        (&["table3", "--only", "UH"], 2, "no run has 'UH' in its name"),
        (&["table3", "--no-retention"], 2, "add a row to figures"),
    ] {
        let (found, told) = failure(&mut paper(&place, args));
        assert!(found == code && told.contains(word), "{args:?}: {told}");
        assert!(!place.path("out/runs").exists(), "{args:?}");
    }
    let (code, told) = failure(kelvin().args(["bench", "paper", "table3"]));
    assert!(code == 2 && told.contains("--out"), "{told}");
    let file = place.file("file", b"");
    let mut command = kelvin();
    let (code, told) = failure(command.args(["bench", "paper", "table3", "--out"]).arg(file));
    assert!(code == 7 && told.contains("create directory"), "{told}");
}
