//! `strake bench`: fio's words, honest numbers.

pub mod fio_json;
pub mod plot;
pub mod report;
pub mod sum;
pub mod text;
pub mod units;

#[cfg(test)]
mod sample;
