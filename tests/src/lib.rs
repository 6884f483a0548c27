//! What judges Strake from outside its packages: the simulator, and tests that cross floors.
//!
//! [`sim`] steps pollers in an order and a time that a seed determines. [`mirror`] is a throwaway
//! array, just large enough to need every part of the ground floor; [`workload`] uses it, and
//! [`oracle`] knows what it may read back.
#![warn(missing_docs)]

pub mod mirror;
pub mod oracle;
pub mod sim;
pub mod workload;
