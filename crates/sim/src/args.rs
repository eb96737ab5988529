//! `--name value` pairs of the simulation's programs.

/// Arguments by name.
#[derive(Debug)]
pub struct Args(Vec<(String, String)>);

impl Args {
    /// Those of this process.
    ///
    /// # Errors
    /// If they are no pairs.
    pub fn parse() -> Result<Self, String> {
        Self::of(&std::env::args().skip(1).collect::<Vec<_>>())
    }

    /// Those of `all`.
    ///
    /// # Errors
    /// If they are no pairs.
    pub fn of(all: &[String]) -> Result<Self, String> {
        let pairs = all.chunks(2).map(|pair| match pair {
            [name, value] if name.starts_with("--") => Ok((name.clone(), value.clone())),
            _ => Err(format!("{pair:?} is no \"--name value\"")),
        });
        pairs.collect::<Result<_, _>>().map(Self)
    }

    /// The value of `name`.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// The number `name`, or `default`.
    ///
    /// # Errors
    /// If it is no number.
    pub fn number(&self, name: &str, default: u64) -> Result<u64, String> {
        self.text(name).map_or(Ok(default), |text| {
            text.replace('_', "").parse().map_err(|_| format!("{name} {text:?} is no number"))
        })
    }
}
