//! What a job is to do, and when it is over.

/// When a job stops sending.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// Nanoseconds after its first poll.
    pub after_nanos: Option<u64>,
    /// Bytes sent to each device.
    pub bytes: Option<u64>,
    /// Requests sent to each device.
    pub requests: Option<u64>,
}

/// What a job is to do, apart from its lanes.
#[derive(Clone, Debug)]
pub struct JobPlan {
    pub ending: Ending,
    pub rate_iops: Option<u64>,
    pub fsync: u64,
    pub continue_on_error: bool,
    /// Read back and check what was written.
    pub verify: bool,
}
