//! How the command ends: one line on standard error, and a code.

use std::io::{Write, stderr};
use std::process::ExitCode;

/// Why there is no report.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// What was asked makes no sense: exit code 2.
    Usage(String),
    /// What was asked cannot be done: exit code 1.
    Run(String),
    /// A signal came before there was anything to sum up: exit code 130.
    Interrupted,
}

/// What was asked cannot be done, or went wrong.
pub const FAILED: u8 = 1;
/// What was asked makes no sense; clap's own code for it.
pub const USAGE: u8 = 2;
/// Ended by a signal, as shells count it: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;

/// Says why, and gives the code.
#[must_use]
pub fn fail(failure: &Failure) -> ExitCode {
    let (text, code) = match failure {
        Failure::Usage(text) => (text, USAGE),
        Failure::Run(text) => (text, FAILED),
        Failure::Interrupted => return ExitCode::from(INTERRUPTED),
    };
    // Standard error may be closed; the code says it all the same.
    let _ = writeln!(stderr(), "strake: {text}");
    ExitCode::from(code)
}
