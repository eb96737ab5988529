//! Sizes as people write them, for errors and `explain`.

/// `bytes` with the largest binary unit that keeps it exact to one decimal: `1.5 MiB`, `100 GiB`, `17 B`.
#[must_use]
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    let mut shift = 0u32;
    while unit + 1 < UNITS.len() && bytes >> shift >= 1024 {
        unit += 1;
        shift += 10;
    }
    // Tenths, rounded down so that a limit is never shown larger than it is.
    let tenths = (u128::from(bytes) * 10) >> shift;
    let (whole, tenth) = (tenths / 10, tenths % 10);
    if tenth == 0 || unit == 0 {
        format!("{whole} {}", UNITS[unit])
    } else {
        format!("{whole}.{tenth} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_with_their_unit() {
        let shown: Vec<String> =
            [0, 17, 1023, 1024, 1536, 104_857_600, u64::MAX].into_iter().map(human_bytes).collect();
        assert_eq!(shown, ["0 B", "17 B", "1023 B", "1 KiB", "1.5 KiB", "100 MiB", "15.9 EiB"]);
    }
}
