//! The demo's records: customer profiles as JSON, about 1 KiB each, made from a seed.
//!
//! Invariants
//! - A record follows from the seed and its number alone, so every value read can be compared with what it must be.
//! - Keys are spread over the key space by a bijection of the number, so loading in number order is loading in random
//!   key order, and the popular records lie all over the store.

use std::fmt::Write;

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Bytes a value has at least.
const VALUE_BYTES_MIN: usize = 1_000;
/// Every n-th record is popular.
const POPULAR_EVERY: u64 = 20;
/// Reads of a hundred that go to popular records.
const POPULAR_PERCENT: u32 = 95;

const GIVEN: [&str; 12] =
    ["Ada", "Bao", "Chiara", "Dele", "Emil", "Fatima", "Goran", "Hana", "Ines", "Jun", "Kofi", "Leila"];
const FAMILY: [&str; 12] = [
    "Okafor",
    "Lindqvist",
    "Tanaka",
    "Moreau",
    "Haddad",
    "Novak",
    "Silva",
    "Berg",
    "Kaya",
    "Rossi",
    "Mensah",
    "Petrov",
];
const CITIES: [&str; 10] =
    ["Lagos", "Lund", "Osaka", "Lyon", "Beirut", "Zagreb", "Porto", "Bergen", "Izmir", "Accra"];
const WORDS: [&str; 16] = [
    "parcel", "window", "copper", "garden", "signal", "lantern", "harbour", "meadow", "ledger", "compass",
    "orchard", "velvet", "granite", "whisper", "marble", "thunder",
];

/// Makes records and picks which to read.
#[derive(Clone, Copy, Debug)]
pub struct Records {
    seed: u64,
    /// How many there are.
    pub count: u64,
}

/// A bijection of 64-bit numbers that leaves no order (the finaliser of splitmix64).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn one_of<'a>(random: &mut impl Rng, list: &[&'a str]) -> &'a str {
    list[random.random_range(0..list.len())]
}

impl Records {
    /// `count` records of `seed`.
    pub const fn new(seed: u64, count: u64) -> Self {
        Self { seed, count }
    }

    /// The key of record `number`.
    pub fn key(self, number: u64) -> String {
        format!("customer:{:016x}", mix(number))
    }

    /// The value of record `number`.
    pub fn value(self, number: u64) -> String {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(mix(self.seed ^ mix(number)));
        let (given, family) = (one_of(&mut random, &GIVEN), one_of(&mut random, &FAMILY));
        let mut value = String::with_capacity(VALUE_BYTES_MIN + 128);
        // Writing to a string does not fail.
        let _written = write!(
            value,
            "{{\"id\":{number},\"name\":\"{given} {family}\",\"mail\":\"{}.{}@example.org\",\"city\":\"{}\",\"orders\":[",
            given.to_lowercase(),
            family.to_lowercase(),
            one_of(&mut random, &CITIES),
        );
        for index in 0..random.random_range(2..6) {
            let comma = if index == 0 { "" } else { "," };
            let _written = write!(
                value,
                "{comma}{{\"sku\":\"{:08x}\",\"quantity\":{},\"cents\":{}}}",
                random.random::<u32>(),
                random.random_range(1..9),
                random.random_range(99..99_999)
            );
        }
        value.push_str("],\"note\":\"");
        while value.len() < VALUE_BYTES_MIN - 2 {
            value.push_str(one_of(&mut random, &WORDS));
            value.push(' ');
        }
        value.push_str("\"}");
        value
    }

    /// The number of a record to read: mostly a popular one.
    pub fn pick(self, random: &mut impl Rng) -> u64 {
        if random.random_range(0..100u32) < POPULAR_PERCENT {
            let popular = self.count.div_ceil(POPULAR_EVERY);
            random.random_range(0..popular) * POPULAR_EVERY
        } else {
            random.random_range(0..self.count)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_follow_from_seed_and_number_and_are_json() {
        let records = Records::new(7, 1_000);
        for number in [0, 1, 999] {
            let value = records.value(number);
            assert_eq!(value, Records::new(7, 5).value(number));
            assert!((VALUE_BYTES_MIN..VALUE_BYTES_MIN + 64).contains(&value.len()), "{}", value.len());
            let parsed: serde_json::Value = serde_json::from_str(&value).unwrap();
            assert_eq!(parsed["id"], number);
        }
        assert_ne!(records.value(1), Records::new(8, 1_000).value(1));
    }

    #[test]
    fn most_reads_go_to_few_records() {
        let records = Records::new(1, 10_000);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let picks: Vec<u64> = (0..10_000).map(|_| records.pick(&mut random)).collect();
        assert!(picks.iter().all(|number| *number < records.count));
        let popular = picks.iter().filter(|number| number.is_multiple_of(POPULAR_EVERY)).count();
        assert!((9_300..9_800).contains(&popular), "{popular}");
    }
}
