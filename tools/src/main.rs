//! The command `strake`.

fn main() {}
