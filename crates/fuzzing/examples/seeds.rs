//! Writes the valid files of the corpus to `fuzz/corpus`.

use std::path::Path;

#[expect(clippy::disallowed_methods, reason = "writes the project's own files, not a store's")]
fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for seed in kelvin_fuzzing::seeds::all() {
        let dir = corpus.join(seed.target);
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join(format!("valid-{}", seed.name)), seed.bytes)?;
    }
    Ok(())
}
