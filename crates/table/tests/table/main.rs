//! Tests of whole tables: their bytes, their answers against a model, and damage.

#[cfg(test)]
mod common;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod model;
#[cfg(test)]
mod reader;
