//! A store over two directories: what fits stays on the fast disk, the rest moves to the slow one.
//! Run it: `cargo run -p kelvin --example two_tiers`.

use kelvin::{CompressionChoice, Db, Options, Result};

const RECORDS: u32 = 30_000;

fn main() -> Result<()> {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let dir = temporary.path();
    // These values would compress to next to nothing; real ones do not.
    let options = Options::new(dir.join("fast"))
        .slow(dir.join("slow"))
        .fast_capacity(8 << 20)
        .memory(8 << 20)
        .compression(CompressionChoice::None);

    // Every figure that follows from these options, and why.
    for row in options.derive()?.explain().iter().take(5) {
        println!("{:20} {:12} {}", row.name, row.value, row.why);
    }

    let db = Db::open(options)?;
    for number in 0..RECORDS {
        // Spread over the key space, as real keys are.
        let key = format!("customer:{:010}", number.wrapping_mul(2_654_435_761));
        db.put(key.as_bytes(), &[b'x'; 1_000])?;
    }
    db.flush()?;
    db.wait_idle()?;

    for level in db.levels() {
        println!("{} on the {} disk: {} tables, {} bytes", level.name, level.tier, level.tables, level.bytes);
    }
    let stats = db.stats();
    let capacity = stats.capacity_bytes[0].unwrap_or(u64::MAX);
    println!("fast disk: at most {} of {capacity} bytes used", stats.used_bytes_max[0]);
    assert!(stats.used_bytes_max[0] <= capacity);
    assert!(stats.used_bytes[1] > stats.used_bytes[0], "most of the data lies on the slow disk");
    db.close()
}

#[test]
fn it_runs() -> Result<()> {
    main()
}
