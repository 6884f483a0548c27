//! Exports of block devices to virtual machines over vhost-user-blk.
//!
//! Nothing is built on this floor yet. An export will be a poller task that moves requests from a
//! guest's virtqueue into a `strake_nvme_driver::block` channel and completions back.
