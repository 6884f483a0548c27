//! Arrays in the Linux md on-disk format: superblocks, layouts, parity and the engine.
//!
//! Nothing is built on this floor yet. An array will be a block device made of block devices, in
//! the terms of `strake_nvme_driver::block`.
