//! A first program: open, write, read, expire, delete. Run it: `cargo run -p kelvin --example first`.

use std::time::Duration;

use kelvin::{Db, Durability, Options, Result, WriteBatch, WriteOptions};

fn main() -> Result<()> {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let dir = temporary.path();
    let db = Db::open(Options::new(dir.join("store")))?;

    // A write survives the end of the process before it is acknowledged ...
    db.put(b"greeting", b"hello")?;
    assert_eq!(db.get(b"greeting")?.as_deref(), Some(&b"hello"[..]));

    // ... or, if asked, a power loss.
    let careful = WriteOptions { durability: Some(Durability::Sync), ..WriteOptions::default() };
    db.put_with(b"balance", b"100", &careful)?;

    // A record that ends.
    let short = WriteOptions { ttl: Some(Duration::from_secs(1800)), ..WriteOptions::default() };
    db.put_with(b"session:7", b"Ada", &short)?;

    // Several writes, all or nothing.
    let mut batch = WriteBatch::new();
    batch.put(db.id(), b"balance", b"70")?;
    batch.put(db.id(), b"spent", b"30")?;
    batch.delete(db.id(), b"greeting")?;
    db.write(batch, &careful)?;

    // A key that is not there is no error.
    assert_eq!(db.get(b"greeting")?, None);
    println!("{:?} records are in {}", db.stats().entries, dir.display());
    db.close()
}

#[test]
fn it_runs() -> Result<()> {
    main()
}
