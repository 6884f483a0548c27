//! `strake bench`: fio's words, honest numbers.

pub mod report;
