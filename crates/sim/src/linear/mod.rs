//! Whether a concurrent history of one key has an order in which each answer is right: the linearizability checker.
//!
//! The algorithm is Wing and Gong's with Lowe's memory of what was tried: take the calls in the order in which they began,
//! put one after the other into effect as long as none that has returned before is left out, go back where an answer does
//! not fit, and never try the same set of calls with the same value twice. Keys are independent (Herlihy and Wing's
//! locality), so a history is checked key by key. Tests: histories known to be good and bad, below.

pub mod history;
mod races;
pub mod schedules;

use std::collections::HashSet;

/// A value, by the number that wrote it; [`NONE`] for no value.
pub type Value = u64;

/// No value.
pub const NONE: Value = 0;

/// What was done to a key, and the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A read, and what it found.
    Read(Value),
    /// A put or a deletion.
    Write(Value),
    /// A compare-and-set, and whether it was done.
    Swap {
        /// What it asked for.
        expected: Value,
        /// What it would set.
        new: Value,
        /// Its answer.
        done: bool,
    },
}

impl Call {
    /// The value after it where it finds `before`; `None` if it would have answered otherwise.
    const fn after(self, before: Value) -> Option<Value> {
        match self {
            Self::Read(seen) if seen == before => Some(before),
            Self::Write(value) => Some(value),
            Self::Swap { expected, new, done: true } if expected == before => Some(new),
            Self::Swap { expected, done: false, .. } if expected != before => Some(before),
            Self::Read(_) | Self::Swap { .. } => None,
        }
    }
}

/// A call between two moments. Moments are numbers that no two events share, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// When it began.
    pub begun: u64,
    /// When it had returned.
    pub ended: u64,
    /// What it was.
    pub call: Call,
}

/// The longest part of a history that has an order, and the calls of which none can come next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// How many calls have an order together.
    pub ordered: usize,
    /// The value after them, in one such order.
    pub value: Value,
    /// Those that began before the first of the rest had ended.
    pub next: Vec<Op>,
}

/// Calls that have taken effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Set(Vec<u64>);

impl Set {
    fn of(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    fn flip(&mut self, at: usize) {
        self.0[at / 64] ^= 1 << (at % 64);
    }

    fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }
}

/// Events of calls that have not taken effect, in the order of time: a list whose links stay, so that what was taken out goes
/// back where it was. Event `2 * i` is the beginning of call `i`, `2 * i + 1` its end; the last is the head.
struct Events {
    next: Vec<usize>,
    before: Vec<usize>,
}

impl Events {
    fn of(ops: &[Op]) -> Self {
        let mut order: Vec<usize> = (0..2 * ops.len()).collect();
        let moment = |event: &usize| {
            let op = &ops[event / 2];
            if event.is_multiple_of(2) { op.begun } else { op.ended }
        };
        order.sort_by_key(moment);
        let head = order.len();
        let mut events = Self { next: vec![head; head + 1], before: vec![head; head + 1] };
        let mut last = head;
        for event in order {
            events.next[last] = event;
            events.before[event] = last;
            last = event;
        }
        events.next[last] = head;
        events.before[head] = last;
        events
    }

    fn first(&self) -> usize {
        self.next[self.before.len() - 1]
    }

    fn take(&mut self, call: usize) {
        for event in [2 * call, 2 * call + 1] {
            let (before, next) = (self.before[event], self.next[event]);
            self.next[before] = next;
            self.before[next] = before;
        }
    }

    fn put_back(&mut self, call: usize) {
        for event in [2 * call + 1, 2 * call] {
            let (before, next) = (self.before[event], self.next[event]);
            self.next[before] = event;
            self.before[next] = event;
        }
    }
}

/// Looks for an order of `ops` on a key without a value in which every answer is right, and no call comes before one that had
/// returned when it began.
///
/// # Errors
/// How far it got, if there is none.
pub fn check(ops: &[Op]) -> Result<(), Stuck> {
    let mut events = Events::of(ops);
    let head = 2 * ops.len();
    let (mut value, mut done) = (NONE, Set::of(ops.len()));
    let mut tried = HashSet::new();
    let mut order: Vec<(usize, Value)> = Vec::new();
    let mut stuck = Stuck { ordered: 0, value, next: possible(ops, &done) };
    let mut event = events.first();
    while events.first() != head {
        let call = event / 2;
        if event.is_multiple_of(2) {
            let after = ops[call].call.after(value);
            done.flip(call);
            match after.filter(|after| tried.insert((done.clone(), *after))) {
                Some(after) => {
                    order.push((call, value));
                    value = after;
                    events.take(call);
                    event = events.first();
                    if order.len() > stuck.ordered {
                        stuck = Stuck { ordered: order.len(), value, next: Vec::new() };
                    }
                }
                None => {
                    done.flip(call);
                    event = events.next[event];
                }
            }
        } else {
            // A call that has returned cannot come later than what follows: the last choice was wrong.
            if order.len() == stuck.ordered {
                stuck.next = possible(ops, &done);
            }
            let Some((last, before)) = order.pop() else { return Err(stuck) };
            value = before;
            done.flip(last);
            events.put_back(last);
            event = events.next[2 * last];
        }
    }
    Ok(())
}

/// The calls not `done` that began before the first of them ended.
fn possible(ops: &[Op], done: &Set) -> Vec<Op> {
    let rest = || ops.iter().enumerate().filter(|(at, _)| !done.has(*at)).map(|(_, op)| op);
    let ends = rest().map(|op| op.ended).min().unwrap_or(0);
    rest().filter(|op| op.begun < ends).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(begun: u64, ended: u64, call: Call) -> Op {
        Op { begun, ended, call }
    }

    const fn swap(expected: Value, new: Value, done: bool) -> Call {
        Call::Swap { expected, new, done }
    }

    #[test]
    fn what_has_an_order_is_found_to_have_one() {
        let histories = [
            vec![],
            vec![op(0, 1, Call::Read(NONE)), op(2, 3, Call::Write(1)), op(4, 5, Call::Read(1))],
            // Reads beside a write may see it or not.
            vec![op(0, 9, Call::Write(1)), op(1, 2, Call::Read(NONE)), op(3, 4, Call::Read(1))],
            vec![op(0, 5, Call::Write(1)), op(1, 6, Call::Write(2)), op(7, 8, Call::Read(1))],
            vec![op(0, 5, Call::Write(1)), op(1, 6, Call::Write(2)), op(7, 8, Call::Read(2))],
            // The deletion takes effect between the two.
            vec![
                op(0, 1, Call::Write(1)),
                op(2, 9, Call::Write(NONE)),
                op(3, 4, Call::Read(1)),
                op(5, 6, Call::Read(NONE)),
            ],
            vec![
                op(0, 1, Call::Write(1)),
                op(2, 6, swap(1, 2, true)),
                op(3, 7, swap(1, 3, false)),
                op(8, 9, Call::Read(2)),
            ],
            vec![
                op(0, 1, swap(NONE, 1, true)),
                op(2, 3, swap(NONE, 2, false)),
                op(4, 5, swap(1, NONE, true)),
            ],
        ];
        for ops in histories {
            assert_eq!(check(&ops), Ok(()), "{ops:?}");
        }
    }

    #[test]
    fn what_has_none_is_refused_at_the_call_that_cannot_be() {
        let histories = [
            // A value from nowhere; a stale one; a deleted one; a lost write.
            (vec![op(0, 1, Call::Read(1))], 0),
            (vec![op(0, 1, Call::Write(1)), op(2, 3, Call::Write(2)), op(4, 5, Call::Read(1))], 2),
            (vec![op(0, 1, Call::Write(1)), op(2, 3, Call::Write(NONE)), op(4, 5, Call::Read(1))], 2),
            (vec![op(0, 1, Call::Write(1)), op(2, 3, Call::Read(NONE))], 1),
            // New, then old again, both beside the write.
            (vec![op(0, 9, Call::Write(1)), op(1, 2, Call::Read(1)), op(3, 4, Call::Read(NONE))], 2),
            // Two readers see two concurrent writes in different orders.
            (
                vec![
                    op(0, 8, Call::Write(1)),
                    op(1, 9, Call::Write(2)),
                    op(10, 11, Call::Read(1)),
                    op(12, 13, Call::Read(2)),
                ],
                3,
            ),
            // Both win.
            (vec![op(0, 1, Call::Write(1)), op(2, 6, swap(1, 2, true)), op(3, 7, swap(1, 3, true))], 2),
            // Refused though nothing else was there.
            (vec![op(0, 1, Call::Write(1)), op(2, 3, swap(1, 2, false))], 1),
        ];
        for (ops, ordered) in histories {
            let stuck = check(&ops).unwrap_err();
            assert_eq!(stuck.ordered, ordered, "{ops:?}: {stuck:?}");
            assert!(!stuck.next.is_empty(), "{ops:?}: {stuck:?}");
        }
    }

    /// Calls of several clients on a register that takes effect at some moment in each, and what one wrong answer does to it.
    #[test]
    fn long_histories_of_a_right_register_pass_and_one_wrong_answer_does_not() {
        for seed in 0..40_u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut random = |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % below
            };
            let (mut value, mut ops) = (NONE, Vec::new());
            for number in 1..=500 {
                let effect = 10 * number;
                let call = match random(4) {
                    0 => Call::Read(value),
                    1 => Call::Write(number),
                    2 => swap(value, number, true),
                    _ => swap(number + 1000, number, false),
                };
                value = call.after(value).unwrap();
                // No two events at the same moment.
                let moment = |unit: u64, end: u64| unit * 2_000 + 2 * number + end;
                let begun = moment(effect.saturating_sub(1 + random(30)), 0);
                ops.push(op(begun, moment(effect + random(30), 1), call));
            }
            assert_eq!(check(&ops), Ok(()), "seed {seed}");
            let reads: Vec<usize> =
                (0..ops.len()).filter(|at| matches!(ops[*at].call, Call::Read(_))).collect();
            let wrong = reads[usize::try_from(random(reads.len() as u64)).unwrap()];
            ops[wrong].call = Call::Read(9_999);
            let stuck = check(&ops).unwrap_err();
            assert!(stuck.next.contains(&ops[wrong]), "seed {seed}: {stuck:?}");
        }
    }
}
