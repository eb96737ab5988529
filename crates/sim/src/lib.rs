//! The model of the store, seeded operation lists, and runs of the real engine against it.
//!
//! [`oracle`] says what must be answered, [`ops`] what is asked (as [`choices`] say), [`model`] runs both and compares every answer under the
//! configurations of [`settings`], and [`harm`]s what is advisory. [`crash`] cuts the power at every persistence point, [`faults`] lets every I/O fail. [`kills`] kills a process that writes. [`linear`] checks what concurrent clients saw. [`rot`] flips every bit of every file. [`verify`] runs any of it. [`world`] runs the store with all its
//! threads in a time of its own, [`simulation`] there with all faults at once.

pub mod args;
pub mod checks;
pub mod choices;
pub mod crash;
pub mod executor;
pub mod faults;
pub mod harm;
pub mod kills;
pub mod linear;
pub mod model;
pub mod ops;
pub mod oracle;
pub mod rot;
pub mod settings;
pub mod simulation;
mod spread;
pub mod verify;
pub mod world;
