//! What a simulation is made of, as text that makes it again, and how a failing one is made smaller.
//!
//! Each part of a run draws from the seed and its own number alone, so what is left out changes nothing of the rest but the order of
//! threads. Tests stand below.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Of everything that is drawn.
    pub seed: u64,
    /// Clients.
    pub clients: usize,
    /// What each of them does.
    pub steps: u64,
    /// Numbers of the turns that the weather takes; `None` for as many as there is time for.
    pub turns: Option<BTreeSet<u64>>,
}

impl Case {
    /// The case of `seed` with `steps` in all.
    #[must_use]
    pub fn new(seed: u64, steps: u64) -> Self {
        let clients = usize::try_from(seed % 4).unwrap_or(0) + 1;
        Self { seed, clients, steps: steps.div_ceil(clients as u64), turns: None }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed={},clients={},steps={}", self.seed, self.clients, self.steps)?;
        let Some(turns) = &self.turns else { return Ok(()) };
        write!(f, ",turns={}", turns.iter().map(u64::to_string).collect::<Vec<_>>().join("+"))
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |value: &str| value.parse::<u64>().map_err(|_| format!("{value:?} is no number"));
        let mut case = Self { seed: 0, clients: 0, steps: 0, turns: None };
        for part in text.split(',') {
            match part.split_once('=') {
                Some(("seed", value)) => case.seed = number(value)?,
                Some(("clients", value)) => case.clients = usize::try_from(number(value)?).unwrap_or(0),
                Some(("steps", value)) => case.steps = number(value)?,
                Some(("turns", "")) => case.turns = Some(BTreeSet::new()),
                Some(("turns", value)) => {
                    case.turns = Some(value.split('+').map(number).collect::<Result<_, _>>()?);
                }
                _ => return Err(format!("{part:?} is no part of a case")),
            }
        }
        if case.clients == 0 || case.clients > CLIENTS_MAX || case.steps == 0 {
            return Err(format!("a case has 1 to {CLIENTS_MAX} clients and at least one step"));
        }
        Ok(case)
    }
}

/// Keys name clients with one digit.
const CLIENTS_MAX: usize = 9;

/// Runs that making a case smaller may take.
const SHRINKING_RUNS_MAX: u32 = 80;

/// Makes `case` smaller while `fails` says that it still does. `turns` is how many turns the weather took in it.
pub fn shrunk(mut case: Case, turns: u64, fails: impl Fn(&Case) -> bool) -> Case {
    let mut runs = 0;
    let mut accepts = |smaller: &Case| {
        runs += 1;
        runs <= SHRINKING_RUNS_MAX && fails(smaller)
    };
    loop {
        let before = case.clone();
        for smaller in [fewer_steps, fewer_clients] {
            while let Some(smaller) = smaller(&case).filter(&mut accepts) {
                case = smaller;
            }
        }
        let all: Vec<u64> = match &case.turns {
            Some(turns) => turns.iter().copied().collect(),
            None => (0..turns).collect(),
        };
        let mut left: BTreeSet<u64> = all.iter().copied().collect();
        let mut piece = all.len().div_ceil(2);
        while piece > 0 {
            for left_out in all.chunks(piece) {
                let turns: BTreeSet<u64> =
                    left.iter().copied().filter(|turn| !left_out.contains(turn)).collect();
                let smaller = Case { turns: Some(turns.clone()), ..case.clone() };
                if turns.len() < left.len() && accepts(&smaller) {
                    (case, left) = (smaller, turns);
                }
            }
            piece /= 2;
        }
        // Nor does it once there were enough runs.
        if case == before {
            return case;
        }
    }
}

fn fewer_steps(case: &Case) -> Option<Case> {
    (case.steps > 1).then(|| Case { steps: case.steps / 2, ..case.clone() })
}

fn fewer_clients(case: &Case) -> Option<Case> {
    (case.clients > 1).then(|| Case { clients: case.clients - 1, ..case.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_is_written() {
        for text in [
            "seed=77,clients=2,steps=10",
            "seed=1,clients=1,steps=5,turns=3+9",
            "seed=1,clients=1,steps=5,turns=",
        ] {
            assert_eq!(text.parse::<Case>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "seed=1",
            "seed=x,clients=1,steps=1",
            "seed=1,clients=10,steps=1",
            "seed=1,clients=1,steps=1,turns=a",
        ] {
            assert!(text.parse::<Case>().is_err(), "{text}");
        }
    }

    #[test]
    fn of_a_failing_case_what_it_fails_by_is_left() {
        let fails = |case: &Case| {
            case.steps >= 30
                && case.clients >= 2
                && case.turns.as_ref().is_none_or(|turns| turns.contains(&13))
        };
        let case = shrunk(Case { seed: 1, clients: 4, steps: 1000, turns: None }, 40, fails);
        assert!(fails(&case), "{case}");
        assert_eq!((case.clients, case.turns), (2, Some(BTreeSet::from([13]))));
        assert!(case.steps < 60, "{}", case.steps);
    }
}
