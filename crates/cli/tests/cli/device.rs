//! `kelvin bench device`: what it prints, writes and refuses.

use crate::common::{Place, failure, kelvin, stdout};

fn device(place: &Place, args: &[&str]) -> assert_cmd::Command {
    let mut command = kelvin();
    command.args(["bench", "device", "--size", "1MB", "--seconds", "0.1", "--threads", "2"]).args(args);
    command.arg("--dir").arg(place.path("disk"));
    command
}

#[test]
fn a_disk_is_measured_and_compared_with_what_is_expected() {
    let place = Place::new();
    let text = stdout(&mut device(&place, &[]));
    assert!(text.contains("reads/s, 1 thread") && text.contains("MB/s written"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&mut device(&place, &["--json", "-"]))).unwrap();
    assert!(
        json["random_reads"][1]["threads"] == 2 && json["read_bytes_per_s"].as_f64().unwrap() > 0.0,
        "{json}"
    );
    let slow = ["--read-iops", "100", "--latency", "20ms", "--expect-reads", "5k"];
    let (code, told) = failure(&mut device(&place, &slow));
    assert!(code == 7 && told.contains("reads of 16 KiB a second, and 5000 were expected"), "{code} {told}");
    assert!(!place.path("disk").join("KELVIN-DEVICE.tmp").exists(), "nothing is left");
}

#[test]
fn nonsense_is_refused() {
    let place = Place::new();
    for (args, code, word) in [
        (&["--threads", "0"][..], 2, "by one thread or more"),
        (&["--seconds", "0"], 2, "for some time"),
        (&["--size", "1"], 2, "at least 16 KiB"),
        (&["--size", "4000PB"], 5, "are free"),
    ] {
        let mut command = kelvin();
        command.args(["bench", "device"]).args(args).arg("--dir").arg(place.path("disk"));
        let (is, told) = failure(&mut command);
        assert!(is == code && told.contains(word), "{args:?}: {is} {told}");
    }
}
