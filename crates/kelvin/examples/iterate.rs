//! Ranges, both directions, snapshots and keyspaces. Run it: `cargo run -p kelvin --example iterate`.

use kelvin::{Db, IterOptions, Options, Result};

fn main() -> Result<()> {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let dir = temporary.path();
    let db = Db::open(Options::new(dir.join("store")))?;
    for (city, people) in
        [("accra", "2.7"), ("lagos", "16.5"), ("lund", "0.1"), ("osaka", "2.7"), ("porto", "0.2")]
    {
        db.put(city.as_bytes(), people.as_bytes())?;
    }

    // From "l" up to, not including, "m", as of now.
    let range = || IterOptions { lower: Some("l".into()), upper: Some("m".into()), ..IterOptions::default() };
    let mut cities = db.iter(range())?;
    db.delete_range(b"a", b"z")?; // the iterator keeps its moment

    let mut seen = Vec::new();
    cities.seek_to_first()?;
    while cities.valid() {
        seen.push(String::from_utf8_lossy(cities.key()).into_owned());
        cities.next()?;
    }
    assert_eq!(seen, ["lagos", "lund"]);

    // Backward, from the last key at or before "lb".
    cities.seek_for_prev(b"lb")?;
    assert_eq!(cities.key(), b"lagos");
    cities.prev()?;
    assert!(!cities.valid(), "the lower bound ends it");

    // A snapshot is a moment for as many reads as you like.
    db.put(b"osaka", b"2.7")?;
    let before = db.snapshot();
    db.delete(b"osaka")?;
    assert!(before.get(b"osaka")?.is_some());
    assert!(db.get(b"osaka")?.is_none());

    // A keyspace is a map of its own that shares log, disks and memory with the others.
    let rivers = db.keyspace("rivers")?;
    rivers.put(b"niger", b"4180")?;
    assert!(db.get(b"niger")?.is_none());
    println!("cities between l and m: {seen:?}; keyspaces: {:?}", db.keyspaces());
    db.close()
}

#[test]
fn it_runs() -> Result<()> {
    main()
}
