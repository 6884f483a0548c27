//! A throwaway mirror: two members, two copies, any number of pollers. It exists to judge the
//! ground floor, not to be used: no resync, no metadata, no cutting of requests.
//!
//! A write goes to the poller that owns its run of blocks, through the mailbox. The owner never has
//! two overlapping writes on the members at once, so both copies end equal. A read goes out where
//! it arrives, to one member, and to the other if that one fails. A member that failed a write is
//! dropped: the new membership is published under an epoch, and the write is acknowledged only when
//! every poller has taken it up, so that nobody reads the old copy afterwards.

mod channel;
mod membership;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use strake_nvme_driver::block::{
    Channel, Claim, ClaimError, ClaimMode, CounterSnapshot, Device, DeviceCore, Events, Identity,
    Kind, Limits, OpenError, OpenOptions,
};
use strake_nvme_driver::poller::{Endpoint, Leader, Waker, mesh};

use self::channel::{Answer, Ask, MirrorChannel};
use self::membership::Book;

/// A mistake built into the mirror, to see whether its judges notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutation {
    /// None.
    #[default]
    Sound,
    /// A write is acknowledged when the first copy is written.
    FirstCopyOnly,
    /// Overlapping writes are sent to the members as they come.
    Unordered,
    /// A write that one member failed is acknowledged before every poller has dropped the member.
    HastyDrop,
}

/// A mirror of two members.
pub struct Mirror {
    core: DeviceCore,
    members: [Arc<dyn Device>; 2],
    shared: Arc<Shared>,
    endpoints: Mutex<Vec<Option<Endpoint<Ask, Answer>>>>,
}

/// What all channels know.
struct Shared {
    run_blocks: u64,
    /// Requests that a channel has outstanding, and that each other may send it.
    depth: u16,
    mutation: Mutation,
    limits: Arc<Limits>,
    book: Book,
}

impl Shared {
    fn owner(&self, lba: u64) -> usize {
        // Less than the number of pollers.
        (lba / self.run_blocks % self.book.pollers() as u64) as usize
    }
}

impl Mirror {
    /// Over two members of the same size; one channel of `depth` for each poller that `wakers`
    /// wake. A write that crosses a multiple of `run_blocks` is invalid.
    ///
    /// # Errors
    /// The members' limits have nothing in common.
    pub fn new(
        members: [Arc<dyn Device>; 2],
        wakers: &[Waker],
        run_blocks: u64,
        depth: u16,
        mutation: Mutation,
    ) -> io::Result<Self> {
        let [a, b] = [members[0].limits(), members[1].limits()];
        let common = Limits::common([a.as_ref(), b.as_ref()]).map_err(io::Error::other)?;
        // One segment and no deallocation: the mirror is kept small.
        let limits = Limits { max_segments: 1, deallocate: None, ..common };
        let identity = Identity {
            id: "throwaway-mirror".to_owned(),
            uri: "array:throwaway".to_owned(),
            name: "mirror".to_owned(),
            kind: Kind::Array,
        };
        let endpoints = mesh(wakers, depth.into()).into_iter().map(Some).collect();
        let shared = Arc::new(Shared {
            run_blocks,
            depth,
            mutation,
            limits: Arc::new(limits.clone()),
            book: Book::new(wakers),
        });
        let core = DeviceCore::new(identity, limits);
        Ok(Self { core, members, shared, endpoints: Mutex::new(endpoints) })
    }

    /// The control thread's part: publishes a changed membership. True if there is nothing to do.
    pub fn control(&self, leader: &mut Leader) -> bool {
        self.shared.book.publish(leader)
    }

    /// Which members hold everything that was acknowledged.
    #[must_use]
    pub fn in_sync(&self) -> [bool; 2] {
        self.shared.book.decided()
    }

    /// Requests that closed channels still had outstanding: 0, or something was forgotten.
    #[must_use]
    pub fn left_over(&self) -> u64 {
        self.shared.book.left_over()
    }
}

impl Device for Mirror {
    fn identity(&self) -> &Identity {
        self.core.identity()
    }

    fn members(&self) -> &[Arc<dyn Device>] {
        &self.members
    }

    fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.shared.limits)
    }

    fn claim(&self, mode: ClaimMode) -> Result<Claim, ClaimError> {
        let [a, b] = &self.members;
        let id = &self.core.identity().id;
        self.core.claims().claim(id, mode, || Ok([a.claim(mode)?, b.claim(mode)?]))
    }

    fn open(&self, claim: &Claim, options: &OpenOptions) -> Result<Box<dyn Channel>, OpenError> {
        self.core.check_open(claim, options)?;
        let refused = |why: &str| OpenError::Refused {
            device: self.core.identity().name.clone(),
            why: why.to_owned(),
        };
        let claims = claim.held::<[Claim; 2]>().ok_or_else(|| refused("foreign claim"))?;
        let poller = usize::from(options.poller.0);
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        let endpoint = endpoints.get_mut(poller).and_then(Option::take);
        let endpoint = endpoint.ok_or_else(|| refused("one channel for each known poller"))?;
        let others = self.shared.book.pollers() - 1;
        // Every request here and every one that the others may send can be on a member at once.
        let slots = self.shared.depth as usize
            + others * usize::from(self.shared.depth.next_power_of_two());
        let depth = u16::try_from(slots).map_err(|_| refused("too deep"))?;
        let below = OpenOptions { depth, ..options.clone() };
        let [a, b] = &self.members;
        let members = [a.open(&claims[0], &below)?, b.open(&claims[1], &below)?];
        let counters = self.core.counters().open();
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(MirrorChannel::new(shared, members, endpoint, counters, options, depth)))
    }

    fn events(&self) -> Events {
        self.core.events().watch()
    }

    fn counters(&self) -> CounterSnapshot {
        self.core.counters().total()
    }
}
