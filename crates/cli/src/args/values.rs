//! Parsers of option values: sizes, durations, numbers of records.
//!
//! Each refuses with a sentence that names what is accepted. Tests below.

use std::time::Duration;

use bytesize::ByteSize;

/// A size in bytes: `100MB` (10^6), `1GiB` (2^30), `4096`.
pub fn size(text: &str) -> Result<u64, String> {
    text.parse::<ByteSize>()
        .map(|size| size.as_u64())
        .map_err(|_| format!("{text:?} is no size; write 4096, 100MB (10^6) or 1GiB (2^30)"))
}

/// A duration: `500ms`, `90s`, `10m`, `2h`, `7d`; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let refuse = || format!("{text:?} is no duration; write 500ms, 90s, 10m, 2h or 7d");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| refuse())?;
    let unit_ms: u64 = match unit.trim() {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(refuse()),
    };
    let ms =
        number.checked_mul(unit_ms).ok_or_else(|| format!("{text:?} is longer than time can be counted"))?;
    Ok(Duration::from_millis(ms))
}

/// A count that may carry a unit: `500`, `10k`, `1.5M`, `2G` (powers of ten), and may be written with `_`.
pub fn count(text: &str) -> Result<u64, String> {
    let refuse = || format!("{text:?} is no number; write 500, 10k, 1.5M or 2G");
    let plain = text.replace('_', "");
    let (number, exponent) = match plain.char_indices().last() {
        Some((at, 'k' | 'K')) => (&plain[..at], 3),
        Some((at, 'm' | 'M')) => (&plain[..at], 6),
        Some((at, 'g' | 'G')) => (&plain[..at], 9),
        _ => (plain.as_str(), 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > exponent || (whole.is_empty() && fraction.is_empty()) {
        return Err(refuse());
    }
    let zeros = "0".repeat(exponent - fraction.len());
    let digits = format!("{whole}{fraction}{zeros}");
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refuse());
    }
    digits.parse().map_err(|_| format!("{text:?} is more than can be counted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_decimal_and_binary_units() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("100MB"), Ok(100_000_000));
        assert_eq!(size("1GiB"), Ok(1 << 30));
        assert!(size("lots").unwrap_err().contains("1GiB"));
        assert!(size("-1").is_err());
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("7d"), Ok(Duration::from_secs(604_800)));
        for wrong in ["", "soon", "1w", "-1s", "99999999999999999999d", "999999999999999999d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn counts_have_units() {
        assert_eq!(count("1_000"), Ok(1_000));
        assert_eq!(count("1.5M"), Ok(1_500_000));
        assert_eq!(count("10k"), Ok(10_000));
        for wrong in ["", "k", "1.5", "x", "-1", "99999999999G"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
    }
}
