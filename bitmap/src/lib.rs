//! The write-intent bitmap: which parts of an array may differ between its members.
//!
//! Nothing is built on this floor yet. It will hold md's bitmap format (version 4), the state
//! that every core reads with one atomic load, and the writer that sizes its I/O to the device.
