//! Read-modify-write that never loses an update: transactions and compare-and-set.
//! Run it: `cargo run -p kelvin --example transactions`.

use kelvin::{Db, Error, ErrorKind, Options, Result};

/// The number stored under `key`; 0 if there is none.
fn number(value: Option<&[u8]>) -> Result<i64> {
    let Some(bytes) = value else { return Ok(0) };
    let text = std::str::from_utf8(bytes).map_err(|_| Error::invalid("an account holds no text"))?;
    text.parse().map_err(|_| Error::invalid(format!("an account holds {text:?}, which is no number")))
}

/// Moves `amount` from one account to another; false if there is not enough.
fn transfer(db: &Db, from: &[u8], to: &[u8], amount: i64) -> Result<bool> {
    loop {
        let mut transaction = db.transaction();
        let (source, target) =
            (number(transaction.get(from)?.as_deref())?, number(transaction.get(to)?.as_deref())?);
        if source < amount {
            return Ok(false);
        }
        transaction.put(from, (source - amount).to_string().as_bytes());
        transaction.put(to, (target + amount).to_string().as_bytes());
        match transaction.commit() {
            // Somebody else wrote one of the accounts meanwhile: look again.
            Err(error) if error.kind() == ErrorKind::Busy => {}
            outcome => return outcome.map(|()| true),
        }
    }
}

fn main() -> Result<()> {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let dir = temporary.path();
    let db = Db::open(Options::new(dir.join("store")))?;
    db.put(b"ada", b"100")?;
    db.put(b"bao", b"0")?;

    assert!(transfer(&db, b"ada", b"bao", 30)?);
    assert!(!transfer(&db, b"ada", b"bao", 1_000)?);
    assert_eq!(number(db.get(b"ada")?.as_deref())?, 70);
    assert_eq!(number(db.get(b"bao")?.as_deref())?, 30);

    // One key needs no transaction.
    assert!(db.compare_and_set(b"lock", None, Some(b"ada"))?);
    assert!(!db.compare_and_set(b"lock", None, Some(b"bao"))?, "ada has it");
    assert!(db.compare_and_set(b"lock", Some(b"ada"), None)?);
    println!("ada has 70, bao has 30, nobody holds the lock");
    db.close()
}

#[test]
fn it_runs() -> Result<()> {
    main()
}
