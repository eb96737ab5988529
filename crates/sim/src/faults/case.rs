//! One fault in one script, as text that makes it again. Tests stand below.

use std::fmt;
use std::str::FromStr;

use super::scripts::named;
use super::{Failure, Victim};

/// A fault in a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The script's name.
    pub script: String,
    /// Which device fails.
    pub victim: Victim,
    /// How.
    pub failure: Failure,
    /// Of the I/Os of the device that can fail so, how many go well before.
    pub index: u64,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { script, victim, failure, index } = self;
        write!(f, "{script},{victim:?},{failure:?},{index}")
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(',').collect();
        let [script, victim, failure, index] = parts[..] else {
            return Err("a case is a script, a device, a manner and a number".to_owned());
        };
        named(script)?;
        Ok(Self {
            script: script.to_owned(),
            victim: one_of(&Victim::ALL, victim)?,
            failure: one_of(&Failure::ALL, failure)?,
            index: index.parse().map_err(|_| format!("{index:?} is no number"))?,
        })
    }
}

/// That of `all` which is called `name`.
fn one_of<T: Copy + fmt::Debug>(all: &[T], name: &str) -> Result<T, String> {
    let found = all.iter().find(|one| format!("{one:?}") == name).copied();
    found.ok_or_else(|| format!("{name:?} is none of {all:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_is_written() {
        for text in ["compact,Fast,Once,12", "random-77,Slow,FlippedBit,0"] {
            assert_eq!(text.parse::<Case>().unwrap().to_string(), text);
        }
        for text in
            ["", "compact,Fast,Once", "nothing,Fast,Once,1", "random-x,Fast,Once,1", "compact,Both,Once,1"]
        {
            assert!(text.parse::<Case>().is_err(), "{text}");
        }
    }
}
