//! One poller's part of the mirror: its own requests, and the writes that others send it because
//! it owns their blocks.

use std::collections::VecDeque;
use std::sync::Arc;

use strake_nvme_driver::block::{
    Channel, Completion, Counters, Flags, Full, Op, OpenOptions, Progress, Request, Segment, Sink,
    Status, Token, WakeSet,
};
use strake_nvme_driver::memory::EpochMemory;
use strake_nvme_driver::poller::{Endpoint, Epoch, Mail};
use strake_nvme_driver::time::Instant;

use super::membership::Membership;
use super::{Mutation, Shared};

/// A write for the owner of its blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    slot: u16,
    request: Request,
    segment: Option<Segment>,
}

/// What became of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    slot: u16,
    status: Status,
    /// Not to be acknowledged before every poller has taken up this membership.
    after: u64,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    origin: Origin,
    stage: Stage,
    request: Request,
    segment: Option<Segment>,
    sent: [bool; 2],
    outcome: [Option<Status>; 2],
    epoch: u8,
    /// Only with a mutation: acknowledged while still on a member.
    acknowledged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Caller,
    Poller { at: usize, slot: u16 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// In the queue: for room, or for an overlapping write to end.
    Waiting,
    /// On one member or both.
    Below,
    /// With the owner of its blocks.
    Forwarded,
    /// Done; to be handed up when the membership `after` is taken up by all.
    Done { status: Status, after: u64 },
}

pub(super) struct MirrorChannel {
    shared: Arc<Shared>,
    at: usize,
    members: [Box<dyn Channel>; 2],
    endpoint: Endpoint<Ask, Answer>,
    counters: Arc<Counters>,
    memory: EpochMemory,
    membership: Arc<Membership>,
    jobs: Box<[Option<Job>]>,
    free: Vec<u16>,
    /// The caller's own jobs.
    own: usize,
    queue: VecDeque<u16>,
    done: VecDeque<u16>,
    /// Only with a mutation.
    early: VecDeque<Completion>,
    below: Sink,
    /// Something came that the last poll did not see.
    fresh: bool,
    next_read: usize,
}

fn is_write(op: Op) -> bool {
    matches!(op, Op::Write | Op::WriteZeroes { .. })
}

fn overlaps(a: &Request, b: &Request) -> bool {
    a.lba.0 < b.lba.0 + u64::from(b.blocks) && b.lba.0 < a.lba.0 + u64::from(a.blocks)
}

/// True if another member may do better, or this one holds something else than it should.
fn is_members_fault(status: Status) -> bool {
    matches!(
        status,
        Status::Medium { .. }
            | Status::Device { .. }
            | Status::Gone
            | Status::NoSpace
            | Status::ReadOnly
            | Status::TimedOut
    )
}

impl MirrorChannel {
    pub(super) fn new(
        shared: Arc<Shared>,
        members: [Box<dyn Channel>; 2],
        endpoint: Endpoint<Ask, Answer>,
        counters: Arc<Counters>,
        options: &OpenOptions,
        slots: u16,
    ) -> Self {
        let membership = shared.book.snapshot();
        let at = usize::from(options.poller.0);
        shared.book.take_up(at, membership.version);
        let n = usize::from(slots);
        Self {
            shared,
            at,
            members,
            endpoint,
            counters,
            memory: EpochMemory::new(&options.memory),
            membership,
            jobs: vec![None; n].into(),
            free: (0..slots).rev().collect(),
            own: 0,
            queue: VecDeque::with_capacity(n),
            done: VecDeque::with_capacity(n),
            early: VecDeque::with_capacity(n),
            below: Sink::new(n),
            fresh: false,
            next_read: at % 2,
        }
    }

    fn job(&mut self, slot: u16) -> &mut Job {
        self.jobs[usize::from(slot)].as_mut().expect("slots in a list are in use")
    }

    fn take_in(&mut self, origin: Origin, request: Request, segment: Option<Segment>) -> u16 {
        let slot = self.free.pop().expect("there is a slot for all that was asked for");
        self.jobs[usize::from(slot)] = Some(Job {
            origin,
            stage: Stage::Waiting,
            request,
            segment,
            sent: [false; 2],
            outcome: [None; 2],
            epoch: self.memory.begin(),
            acknowledged: false,
        });
        slot
    }

    fn release(&mut self, slot: u16) {
        let job = self.jobs[usize::from(slot)].take().expect("slots in a list are in use");
        self.memory.end(job.epoch);
        self.free.push(slot);
        self.own -= usize::from(job.origin == Origin::Caller);
    }

    fn checked(&self, request: &Request, data: &[Segment]) -> Result<(), Status> {
        self.shared.limits.check(request, data)?;
        let run = |lba: u64| lba / self.shared.run_blocks;
        let last = (request.lba.0 + u64::from(request.blocks)).saturating_sub(1);
        if is_write(request.op) && run(request.lba.0) != run(last) {
            return Err(Status::Invalid);
        }
        Ok(())
    }

    /// The end of a job's work on the members.
    fn finish(&mut self, slot: u16, status: Status, after: u64) {
        let hasty = self.shared.mutation == Mutation::HastyDrop;
        let after = if hasty { 0 } else { after };
        let job = *self.job(slot);
        if job.acknowledged {
            self.release(slot);
            return;
        }
        match job.origin {
            Origin::Poller { at, slot: theirs } => {
                let answer = Answer { slot: theirs, status, after };
                self.endpoint.answer(at, answer).expect("its slot was reserved with the request");
                self.release(slot);
            }
            Origin::Caller => {
                self.job(slot).stage = Stage::Done { status, after };
                self.done.push_back(slot);
                self.renew(slot);
            }
        }
    }

    /// A job that only waits for a membership to be taken up belongs to the newest epoch: it has no
    /// work outstanding, and as part of an older one would hold up the very epoch it waits for.
    fn renew(&mut self, slot: u16) {
        let old = self.job(slot).epoch;
        self.memory.end(old);
        let new = self.memory.begin();
        self.job(slot).epoch = new;
    }

    /// A member has completed its part.
    fn receive(&mut self, member: usize, completion: Completion) {
        // Tokens below are slots.
        let slot = completion.token.0 as u16;
        let mutation = self.shared.mutation;
        let job = self.job(slot);
        debug_assert!(job.sent[member] && job.outcome[member].is_none(), "completed twice");
        job.outcome[member] = Some(completion.status);
        let job = *job;
        let missing = (0..2).any(|m| job.sent[m] && job.outcome[m].is_none());
        if !missing {
            self.conclude(slot, member);
        } else if mutation == Mutation::FirstCopyOnly
            && is_write(job.request.op)
            && completion.status.is_ok()
        {
            self.job(slot).acknowledged = true;
            match job.origin {
                Origin::Caller => {
                    self.early.push_back(Completion { token: job.request.token, ..completion });
                }
                Origin::Poller { at, slot } => {
                    let answer = Answer { slot, status: Status::Ok, after: 0 };
                    self.endpoint.answer(at, answer).expect("its slot was reserved");
                }
            }
        }
    }

    /// Every member that the job was sent to has answered, `last` at the end.
    fn conclude(&mut self, slot: u16, last: usize) {
        let job = *self.job(slot);
        if job.request.op == Op::Read {
            let status = job.outcome[last].unwrap_or(Status::Ok);
            if is_members_fault(status) && self.copy_to_read(&job).is_some() {
                self.job(slot).stage = Stage::Waiting;
                self.queue.push_back(slot);
            } else {
                self.finish(slot, status, 0);
            }
            return;
        }
        let failed = |m: usize| job.outcome[m].filter(|status| !status.is_ok());
        let book = &self.shared.book;
        let (status, after) = match (failed(0), failed(1)) {
            (None, None) => (Status::Ok, 0),
            (Some(a), Some(b)) => match (is_members_fault(a), is_members_fault(b)) {
                // Both copies are in doubt, and differ perhaps: one goes, so that reads agree.
                (true, true) => (a, book.drop_member(1).unwrap_or(0)),
                // The caller's mistake, and a member in trouble besides.
                (true, false) => (b, book.drop_member(0).unwrap_or(0)),
                (false, true) => (a, book.drop_member(1).unwrap_or(0)),
                (false, false) => (a, 0),
            },
            (Some(status), None) | (None, Some(status)) => {
                let member = usize::from(failed(0).is_none());
                match book.drop_member(member) {
                    // The other one has it, if it was asked: a lone member has no other.
                    Ok(after) if job.sent[1 - member] => (Status::Ok, after),
                    Ok(after) => (status, after),
                    // The other one is dropped already, so this one's word counts.
                    Err(_) => (status, 0),
                }
            }
        };
        self.finish(slot, status, after);
    }

    /// A copy in sync that the read has not tried.
    fn copy_to_read(&self, job: &Job) -> Option<usize> {
        let first = self.next_read;
        [first, 1 - first].into_iter().find(|m| self.membership.in_sync[*m] && !job.sent[*m])
    }

    /// Sends what waits, as far as it can go.
    fn start(&mut self) -> bool {
        let mut moved = false;
        let mut i = 0;
        while let Some(slot) = self.queue.get(i).copied() {
            if self.try_start(slot, i) {
                self.queue.remove(i);
                moved = true;
            } else {
                i += 1;
            }
        }
        moved
    }

    fn try_start(&mut self, slot: u16, position: usize) -> bool {
        let job = *self.job(slot);
        let mut targets = self.membership.in_sync;
        let mut request = Request { token: Token(slot.into()), ..job.request };
        if job.request.op == Op::Read {
            let Some(copy) = self.copy_to_read(&job) else {
                // The other copy was dropped while this one waited to try it.
                let status = job.outcome.into_iter().flatten().next();
                self.finish(slot, status.unwrap_or(Status::Gone), 0);
                return true;
            };
            targets = std::array::from_fn(|m| m == copy);
            let tried = Job { sent: std::array::from_fn(|m| job.sent[m] || targets[m]), ..job };
            if self.copy_to_read(&tried).is_some() {
                request.flags |= Flags::FAIL_FAST;
            }
        } else if is_write(job.request.op) && self.is_in_the_way(slot, position) {
            return false;
        }
        // Room on every member first: a write goes to all of them or to none.
        if (0..2).any(|m| targets[m] && self.members[m].room() == 0) {
            return false;
        }
        for m in (0..2).filter(|m| targets[*m]) {
            let data = job.segment.as_slice();
            self.members[m].submit(&request, data).expect("there is room: asked a moment ago");
            self.job(slot).sent[m] = true;
        }
        self.next_read = 1 - self.next_read;
        self.job(slot).stage = Stage::Below;
        true
    }

    /// True if an overlapping write is on the members, or waits before this one.
    fn is_in_the_way(&self, slot: u16, position: usize) -> bool {
        if self.shared.mutation == Mutation::Unordered {
            return false;
        }
        let job = |slot: u16| self.jobs[usize::from(slot)].as_ref();
        let Some(this) = job(slot) else { return false };
        let clash =
            |other: &Job| is_write(other.request.op) && overlaps(&other.request, &this.request);
        let below = self.jobs.iter().flatten().any(|j| j.stage == Stage::Below && clash(j));
        below || self.queue.iter().take(position).filter_map(|s| job(*s)).any(clash)
    }

    fn open_mail(&mut self) -> bool {
        let mut moved = false;
        while let Some(mail) = self.endpoint.receive() {
            moved = true;
            match mail {
                Mail::Request { from, message: Ask { slot, request, segment } } => {
                    let slot = self.take_in(Origin::Poller { at: from, slot }, request, segment);
                    self.queue.push_back(slot);
                }
                Mail::Answer { message: Answer { slot, status, after }, .. } => {
                    self.finish(slot, status, after);
                }
            }
        }
        moved
    }

    fn can_hand_up(&self, slot: u16) -> Option<Status> {
        match self.jobs[usize::from(slot)].as_ref()?.stage {
            Stage::Done { status, after } => self.shared.book.is_taken_up(after).then_some(status),
            _ => None,
        }
    }

    fn hand_up(&mut self, out: &mut Sink) -> bool {
        let mut moved = false;
        while out.room() > 0
            && let Some(completion) = self.early.pop_front()
        {
            out.push(completion);
            moved = true;
        }
        let mut i = 0;
        while let Some(slot) = self.done.get(i).copied() {
            match self.can_hand_up(slot) {
                Some(status) if out.room() > 0 => {
                    self.done.remove(i);
                    let token = self.job(slot).request.token;
                    self.counters.completion(status);
                    out.push(Completion { token, status });
                    self.release(slot);
                    moved = true;
                }
                _ => i += 1,
            }
        }
        moved
    }
}

impl Channel for MirrorChannel {
    fn room(&self) -> usize {
        let others = (0..self.shared.book.pollers()).filter(|at| *at != self.at);
        let mail = others.map(|at| self.endpoint.room(at)).min().unwrap_or(usize::MAX);
        (usize::from(self.shared.depth) - self.own).min(mail)
    }

    fn submit(&mut self, request: &Request, data: &[Segment]) -> Result<(), Full> {
        if self.room() == 0 {
            return Err(Full);
        }
        self.fresh = true;
        self.own += 1;
        let checked = self.checked(request, data);
        let slot = self.take_in(Origin::Caller, *request, data.first().copied());
        if let Err(status) = checked {
            self.finish(slot, status, 0);
            return Ok(());
        }
        self.counters.request(request.op, self.shared.limits.bytes(request.blocks));
        let owner = self.shared.owner(request.lba.0);
        if is_write(request.op) && owner != self.at {
            let ask = Ask { slot, request: *request, segment: data.first().copied() };
            self.endpoint.send(owner, ask).expect("there is room: asked a moment ago");
            self.job(slot).stage = Stage::Forwarded;
        } else {
            self.queue.push_back(slot);
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, out: &mut Sink) -> Progress {
        self.fresh = false;
        let mut moved = self.open_mail();
        let mut progress = Progress::Resting;
        for m in 0..2 {
            progress = progress | self.members[m].poll(now, &mut self.below);
            for i in 0..self.below.len() {
                self.receive(m, self.below.as_slice()[i]);
            }
            self.below.clear();
        }
        moved |= self.start();
        moved |= self.hand_up(out);
        self.endpoint.flush();
        if moved {
            Progress::Worked
        } else if self.memory.outstanding() > 0 {
            progress | Progress::Waiting
        } else {
            progress
        }
    }

    fn cancel(&mut self, token: Token) {
        let is = |job: &Job| job.origin == Origin::Caller && job.request.token == token;
        let Some(at) = self.jobs.iter().position(|job| job.as_ref().is_some_and(is)) else {
            return;
        };
        // At most the number of slots, a u16.
        let slot = at as u16;
        let job = *self.job(slot);
        match job.stage {
            Stage::Waiting => {
                self.queue.retain(|queued| *queued != slot);
                self.finish(slot, Status::Cancelled, 0);
            }
            // Not a write: cancelled on one member and done on the other, the copies would differ.
            Stage::Below if job.request.op == Op::Read => {
                for m in (0..2).filter(|m| job.sent[*m] && job.outcome[*m].is_none()) {
                    self.members[m].cancel(Token(slot.into()));
                }
            }
            _ => {}
        }
    }

    fn turn(&mut self, to: Epoch) {
        let waits = |job: &Job| matches!(job.stage, Stage::Done { .. });
        for job in self.jobs.iter().flatten().filter(|job| waits(job)) {
            self.memory.end(job.epoch);
        }
        self.memory.turn(to);
        for job in self.jobs.iter_mut().flatten().filter(|job| waits(job)) {
            job.epoch = self.memory.begin();
        }
        self.members.iter_mut().for_each(|member| member.turn(to));
        self.membership = self.shared.book.snapshot();
        self.shared.book.take_up(self.at, self.membership.version);
        self.fresh = true;
    }

    fn oldest(&self) -> Option<Epoch> {
        let below = self.members.iter().filter_map(|member| member.oldest());
        below.chain(self.memory.oldest()).min()
    }

    fn arm(&mut self, wake: &mut WakeSet) {
        let done = self.done.iter().any(|slot| self.can_hand_up(*slot).is_some());
        if self.fresh || done || !self.early.is_empty() || self.endpoint.has_mail() {
            wake.ready();
        }
        self.members.iter_mut().for_each(|member| member.arm(wake));
    }

    fn disarm(&mut self) {
        self.members.iter_mut().for_each(|member| member.disarm());
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}

impl Drop for MirrorChannel {
    fn drop(&mut self) {
        let left_over = self.memory.outstanding() + self.endpoint.unanswered();
        self.shared.book.leave(self.at, left_over as u64);
    }
}
