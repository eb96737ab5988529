//! The program as its users meet it: every command, every bad input, its help and its demo, each in its own process.

#[cfg(test)]
mod bench;
#[cfg(test)]
mod bench_memory;
#[cfg(test)]
mod common;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod device;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod events;
#[cfg(test)]
mod help;
#[cfg(test)]
mod inspect;
#[cfg(test)]
mod paper;
#[cfg(test)]
mod records;
#[cfg(test)]
mod salvage;
#[cfg(test)]
mod trace;
mod transfer;
#[cfg(test)]
mod verify;
