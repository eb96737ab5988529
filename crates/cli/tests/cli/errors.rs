//! Bad input the command line can meet: each is refused clearly, with its exit code, and nothing is lost.

use crate::common::{Place, failure, kelvin, stdout};

/// The four things an error says.
fn assert_complete(error: &str) {
    for part in ["error: ", "\n  data:", "\n  do:"] {
        assert!(error.contains(part), "{part:?} is missing in {error}");
    }
}

#[test]
fn a_directory_without_a_store_is_refused_and_stays_as_it_is() {
    let place = Place::new();
    let notes = place.file("notes.txt", b"mine");
    let here = notes.parent().unwrap();
    for command in ["scan", "dump", "stats", "levels"] {
        let (code, error) = failure(kelvin().arg(command).arg("--fast").arg(here));
        assert_eq!(code, 2, "{command}: {error}");
        assert!(error.contains("there is no store in this directory"), "{command}: {error}");
        assert_complete(&error);
        let (code, error) = failure(&mut place.on("missing", command));
        assert_eq!(code, 2, "{command}: {error}");
        assert!(error.contains("no such directory"), "{command}: {error}");
        assert!(!place.path("missing").exists(), "{command} made a directory");
        let (code, error) = failure(&mut place.on("notes.txt", command));
        assert_eq!(code, 2, "{command}: {error}");
        assert!(error.contains("no directory"), "{command}: {error}");
    }
    assert_eq!(place.read("notes.txt"), b"mine");
}

#[test]
fn keys_of_no_byte_and_of_one_too_many_are_refused_and_make_no_store() {
    let place = Place::new();
    let long = place.file("long.csv", format!("{},v\n", "k".repeat(64 * 1024 + 1)).as_bytes());
    let (code, error) = failure(place.on("s", "put").args(["", "v"]));
    assert_eq!(code, 2);
    assert!(error.contains("1 to 65536 bytes") && error.contains("0 bytes"), "{error}");
    assert_complete(&error);
    assert!(!place.path("s").exists());
    let (code, error) = failure(place.on("s", "load").arg(long));
    assert_eq!(code, 2);
    assert!(error.contains("65537 bytes"), "{error}");
    place.put("s", &"k".repeat(64 * 1024), "the longest key is taken");
}

#[test]
fn absurd_options_are_refused_with_what_is_allowed() {
    let place = Place::new();
    for (option, value) in [
        ("--memory", "3"),
        ("--fast-capacity", "1"),
        ("--fast-capacity", "lots"),
        ("--durability", "maybe"),
        ("--compression", "rar"),
        ("--ttl", "soon"),
    ] {
        let (code, error) = failure(place.on("s", "put").args(["k", "v", option, value]));
        assert_eq!(code, 2, "{option} {value}: {error}");
        assert!(!place.path("s").exists(), "{option} {value} made a store");
    }
    let (code, error) = failure(
        place
            .on("s", "put")
            .args(["k", "v", "--slow"])
            .arg(place.path("s/slow"))
            .args(["--fast-capacity", "1GiB"]),
    );
    assert_eq!(code, 2);
    assert!(error.contains("slow_dir"), "{error}");
    assert_complete(&error);
}

#[test]
fn a_range_to_delete_must_be_whole() {
    let place = Place::new();
    place.put("s", "k", "v");
    for args in [&["--from", "a"][..], &["--to", "z"], &["--prefix", ""], &[]] {
        let (code, error) = failure(place.on("s", "delete").args(args));
        assert_eq!(code, 2, "{args:?}: {error}");
    }
    assert_eq!(stdout(place.on("s", "scan").arg("--count")), "1\n");
}

#[test]
fn errors_are_json_where_json_was_asked_for() {
    let place = Place::new();
    let (code, error) = failure(place.on("missing", "get").args(["k", "--json"]));
    let error: serde_json::Value = serde_json::from_str(&error).unwrap();
    assert_eq!((code, &error["error"]["exit_code"]), (2, &2.into()));
    assert_eq!(error["error"]["kind"], "invalid argument");
    assert!(error["error"]["do"].as_str().unwrap().contains("--fast"));
}

#[test]
fn wrong_usage_shows_usage() {
    let (code, error) = failure(kelvin().arg("chek"));
    assert_eq!(code, 2);
    assert!(error.contains("check"), "the command meant is suggested: {error}");
    let (code, error) = failure(kelvin().args(["get", "key"]));
    assert_eq!(code, 2);
    assert!(error.contains("--fast"), "{error}");
}

#[test]
fn an_input_that_is_not_there_is_an_error_of_the_system_and_makes_no_store() {
    let place = Place::new();
    let (code, error) = failure(place.on("s", "load").arg(place.path("no.csv")));
    assert_eq!(code, 7);
    assert!(error.contains("no.csv"), "{error}");
    assert!(!place.path("s").exists());
    let (code, error) = failure(place.on("s", "load").arg(place.path("")));
    assert_eq!((code, error.contains("is a directory")), (2, true), "{error}");
}
