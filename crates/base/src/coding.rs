//! Bounded decoding: varints, length-prefixed bytes and fixed little-endian integers.
//!
//! Every decoder takes the input by `&mut &[u8]`, advances it, and answers `None` on anything short or
//! overlong; no length is believed before it is compared with what remains (promise 10).

/// Appends `value` as a LEB128 varint (1 to 10 bytes).
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

/// Appends `bytes` behind its length as a varint.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads a varint.
#[inline]
#[must_use]
pub fn get_varint(input: &mut &[u8]) -> Option<u64> {
    match *input {
        // Most are of one byte or two.
        [byte, rest @ ..] if byte & 0x80 == 0 => {
            *input = rest;
            Some(u64::from(*byte))
        }
        [low, high, rest @ ..] if high & 0x80 == 0 => {
            *input = rest;
            Some(u64::from(low & 0x7f) | u64::from(*high) << 7)
        }
        _ => get_long_varint(input),
    }
}

/// Reads a varint byte by byte.
fn get_long_varint(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (index, &byte) in input.iter().enumerate().take(10) {
        let part = u64::from(byte & 0x7f);
        if index == 9 && part > 1 {
            return None;
        }
        value |= part << (7 * index);
        if byte & 0x80 == 0 {
            *input = input.get(index + 1..)?;
            return Some(value);
        }
    }
    None
}

/// Reads bytes behind their length.
#[inline]
#[must_use]
pub fn get_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(get_varint(input)?).ok()?;
    let (head, tail) = input.split_at_checked(len)?;
    *input = tail;
    Some(head)
}

/// Reads a little-endian `u32`.
#[must_use]
pub fn get_u32(input: &mut &[u8]) -> Option<u32> {
    let (head, tail) = input.split_first_chunk::<4>()?;
    *input = tail;
    Some(u32::from_le_bytes(*head))
}

/// Reads a little-endian `u64`.
#[must_use]
pub fn get_u64(input: &mut &[u8]) -> Option<u64> {
    let (head, tail) = input.split_first_chunk::<8>()?;
    *input = tail;
    Some(u64::from_le_bytes(*head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_every_length() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                let mut input = out.as_slice();
                assert_eq!(get_varint(&mut input), Some(value));
                assert!(input.is_empty());
                for cut in 0..out.len() {
                    assert_eq!(get_varint(&mut &out[..cut]), None, "a cut varint is refused");
                }
            }
        }
    }

    #[test]
    fn an_overlong_length_is_refused_before_it_is_believed() {
        let mut out = Vec::new();
        put_varint(&mut out, u64::MAX);
        out.extend_from_slice(b"abc");
        assert_eq!(get_bytes(&mut out.as_slice()), None);
        assert_eq!(get_varint(&mut [0xff; 11].as_slice()), None);
    }
}
