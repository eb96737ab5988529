//! Bytes as text: plain, escaped, base64, hex.
//!
//! Escaped is the default: printable UTF-8 stays as it is, a backslash becomes `\\`, line feed, carriage return and
//! tab become `\n`, `\r`, `\t`, every other control character and every byte that is not UTF-8 becomes `\xHH`.
//! Every encoding but plain text writes every byte string. Tests: below and `tests.rs`.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Standard base64; padding is written and need not be there.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// How bytes are written as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// UTF-8 as it is; other bytes cannot be written.
    #[default]
    Text,
    /// UTF-8 with backslash escapes; writes everything.
    Escape,
    /// Base64, standard alphabet.
    Base64,
    /// Two hexadecimal digits a byte.
    Hex,
}

impl Encoding {
    /// Every encoding.
    pub const ALL: [Self; 4] = [Self::Text, Self::Escape, Self::Base64, Self::Hex];

    /// The name in options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Escape => "escape",
            Self::Base64 => "base64",
            Self::Hex => "hex",
        }
    }

    /// What is appended to `key` and `value` in column and field names.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Text => "",
            Self::Escape => "_escape",
            Self::Base64 => "_base64",
            Self::Hex => "_hex",
        }
    }

    /// `bytes` as text; `None` if [`Encoding::Text`] cannot write them.
    #[must_use]
    pub fn encode(self, bytes: &[u8]) -> Option<String> {
        match self {
            Self::Text => std::str::from_utf8(bytes).ok().map(str::to_string),
            Self::Escape => Some(escape(bytes)),
            Self::Base64 => Some(BASE64.encode(bytes)),
            Self::Hex => Some(hex(bytes)),
        }
    }

    /// The bytes that `text` stands for.
    ///
    /// # Errors
    /// A sentence saying what is wrong with `text`.
    pub fn decode(self, text: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Text => Ok(text.to_vec()),
            Self::Escape => unescape(text),
            Self::Base64 => BASE64.decode(text).map_err(|error| format!("not base64: {error}")),
            Self::Hex => unhex(text),
        }
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn push_hex(out: &mut String, byte: u8) {
    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
    out.push(char::from(DIGITS[usize::from(byte & 15)]));
}

fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for &byte in bytes {
        push_hex(&mut out, byte);
    }
    out
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

fn unhex(text: &[u8]) -> Result<Vec<u8>, String> {
    let digits = text.strip_prefix(b"0x").unwrap_or(text);
    if !digits.len().is_multiple_of(2) {
        return Err(format!("an odd number of hexadecimal digits ({})", digits.len()));
    }
    digits
        .chunks_exact(2)
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(|| "a character that is no hexadecimal digit".to_string())
}

fn escape_text(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if control.is_control() => {
                let mut utf8 = [0; 4];
                for &byte in control.encode_utf8(&mut utf8).as_bytes() {
                    out.push_str("\\x");
                    push_hex(out, byte);
                }
            }
            plain => out.push(plain),
        }
    }
}

fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        escape_text(&mut out, chunk.valid());
        for &byte in chunk.invalid() {
            out.push_str("\\x");
            push_hex(&mut out, byte);
        }
    }
    out
}

fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let (&mark, tail) = rest.split_first().ok_or("a backslash at the end")?;
        rest = tail;
        match mark {
            b'\\' => out.push(b'\\'),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'0' => out.push(0),
            b'x' => {
                let (pair, tail) = rest.split_first_chunk::<2>().ok_or("\\x without two digits")?;
                let value = digit(pair[0]).zip(digit(pair[1])).ok_or("\\x without two hexadecimal digits")?;
                out.push(value.0 << 4 | value.1);
                rest = tail;
            }
            other => {
                return Err(format!(
                    "an escape Kelvin does not know: \\{}",
                    char::from(other).escape_default()
                ));
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_every_encoding_but_plain_text() {
        let all: Vec<u8> = (0..=255).chain("größe\u{85}\u{200b}".bytes()).collect();
        for encoding in [Encoding::Escape, Encoding::Base64, Encoding::Hex] {
            let text = encoding.encode(&all).unwrap();
            assert!(!text.chars().any(char::is_control), "{encoding:?} writes no control character");
            assert_eq!(encoding.decode(text.as_bytes()).unwrap(), all);
        }
        assert_eq!(Encoding::Text.encode(&all), None);
    }

    #[test]
    fn printable_text_stays_readable_when_escaped() {
        assert_eq!(Encoding::Escape.encode("größe 1\t\\".as_bytes()).unwrap(), "größe 1\\t\\\\");
    }

    #[test]
    fn wrong_text_is_refused_with_a_reason() {
        for (encoding, text) in [
            (Encoding::Hex, "abc"),
            (Encoding::Hex, "zz"),
            (Encoding::Base64, "!"),
            (Encoding::Escape, "\\"),
            (Encoding::Escape, "\\x1"),
            (Encoding::Escape, "\\q"),
        ] {
            assert!(encoding.decode(text.as_bytes()).is_err(), "{encoding:?} {text}");
        }
        assert_eq!(Encoding::Hex.decode(b"0x00fF").unwrap(), [0, 255]);
        assert_eq!(Encoding::Base64.decode(b"AA").unwrap(), Encoding::Base64.decode(b"AA==").unwrap());
    }
}
