//! Tests of the tiers (being extended with the identity's cases).
