//! The channel: passes requests down as their fates have it, and completions up when their time
//! has come.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Fault;
use super::count::{FaultKind, Fired};
use super::dice::Dice;
use super::fate::{Course, Fate, Fates, INJECTED_CODE};
use crate::block::{
    Channel, ClaimMode, Completion, Counters, Device, DeviceCore, Event, Full, Lba, Limits,
    OpenOptions, Progress, Request, Segment, Sink, Status, Token, WakeSet,
};
use crate::memory::{EpochMemory, RegionId};
use crate::poller::Epoch;
use crate::time::Instant;

const NO_SEGMENT: Segment = Segment { region: RegionId::NONE, len: 0, offset: 0 };

/// One user's view of a faulty device.
pub(super) struct FaultChannel {
    inner: Box<dyn Channel>,
    device: Arc<dyn Device>,
    core: Arc<DeviceCore>,
    fired: Arc<Fired>,
    counters: Arc<Counters>,
    limits: Arc<Limits>,
    /// Counts what is outstanding here, which includes all that is outstanding below.
    memory: EpochMemory,
    mode: ClaimMode,
    fates: Fates,
    /// One for each request that can be outstanding; its number is the token below.
    slots: Box<[Slot]>,
    free: Vec<u16>,
    /// What each slot's request was submitted with, `slot_segments` a slot.
    segments: Box<[Segment]>,
    slot_segments: usize,
    /// Did not go down when submitted; their time is set at the next poll.
    fresh: Vec<u16>,
    /// To go down late, or done below: in the order in which they are due.
    held: VecDeque<(Instant, u16)>,
    /// How many of both are to go down late: room below is kept for them.
    late: usize,
    /// At most one is held back for another to pass.
    overtaken: Option<Overtaken>,
    /// Where completions from below are received; has room for all.
    below: Sink,
    door: Door,
    gone_after: u64,
    taken: u64,
}

struct Overtaken {
    slot: u16,
    passed: bool,
}

/// Whether the channel says that it is full although it is not.
struct Door {
    dice: Dice,
    probability: f64,
    closed: bool,
    /// Something was submitted since the last poll.
    used: bool,
}

#[derive(Clone, Copy)]
struct Slot {
    /// The caller's.
    token: Token,
    place: Place,
    /// How it completes if all goes well below.
    status: Status,
    lba: Lba,
    /// As it goes down.
    below: Request,
    flip_bit: Option<u64>,
    delay_nanos: u64,
    reorder: bool,
    epoch: u8,
    segments: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Free,
    /// To go down when its time has come.
    Late,
    Below,
    /// Done; to go up when its time has come.
    Done,
}

/// The limits that the leaf checks against through such a claim.
fn limits_for(device: &dyn Device, mode: ClaimMode) -> Arc<Limits> {
    let limits = device.limits();
    if mode.allows_writes() || limits.read_only {
        return limits;
    }
    Arc::new(Limits { read_only: true, ..(*limits).clone() })
}

impl FaultChannel {
    pub(super) fn new(
        fault: &Fault,
        inner: Box<dyn Channel>,
        number: u64,
        mode: ClaimMode,
        options: &OpenOptions,
    ) -> Self {
        let [device] = &fault.inner;
        let limits = limits_for(device.as_ref(), mode);
        let depth = usize::from(options.depth);
        let slot_segments = usize::from(limits.max_segments);
        let (submits, polls) = Dice::pair(fault.plan.seed, number);
        let free_slot = Slot {
            token: Token(0),
            place: Place::Free,
            status: Status::Ok,
            lba: Lba(0),
            below: Request::flush(Token(0)),
            flip_bit: None,
            delay_nanos: 0,
            reorder: false,
            epoch: 0,
            segments: 0,
        };
        Self {
            inner,
            device: Arc::clone(device),
            core: Arc::clone(&fault.core),
            fired: Arc::clone(&fault.fired),
            counters: fault.core.counters().open(),
            limits,
            memory: EpochMemory::new(&options.memory),
            mode,
            fates: Fates::new(fault.plan, submits),
            slots: vec![free_slot; depth].into(),
            free: (0..options.depth).rev().collect(),
            segments: vec![NO_SEGMENT; depth * slot_segments].into(),
            slot_segments,
            fresh: Vec::with_capacity(depth),
            held: VecDeque::with_capacity(depth),
            late: 0,
            overtaken: None,
            below: Sink::new(depth),
            door: Door { dice: polls, probability: fault.plan.full, closed: false, used: false },
            gone_after: fault.plan.gone_after.unwrap_or(u64::MAX),
            taken: 0,
        }
    }

    fn is_gone(&self) -> bool {
        self.taken > self.gone_after
    }

    fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Room, whatever the door says.
    fn true_room(&self) -> usize {
        self.free.len().min(self.inner.room().saturating_sub(self.late))
    }

    fn count_taken(&mut self) {
        self.taken = self.taken.saturating_add(1);
        if self.taken == self.gone_after.saturating_add(1) {
            self.fired.count(FaultKind::Gone);
            self.core.events().tell(&Event::Gone);
        }
    }

    /// True if the leaf will take the request, and the slot can remember its segments: limits may
    /// have grown since the slots were cut.
    fn is_sound(&self, request: &Request, data: &[Segment]) -> bool {
        data.len() <= self.slot_segments
            && self.limits.check(request, data).is_ok()
            && self.memory.table().check(data).is_ok()
    }

    /// Remembers the segments of the first `blocks` blocks; how many those are.
    fn remember(&mut self, slot: u16, data: &[Segment], blocks: u32) -> u16 {
        let start = usize::from(slot) * self.slot_segments;
        let mut left = self.limits.bytes(blocks);
        let mut count = 0;
        for segment in data {
            if left == 0 {
                break;
            }
            // At most the segment's own length, a u32.
            let len = left.min(segment.len.into()) as u32;
            self.segments[start + usize::from(count)] = Segment { len, ..*segment };
            left -= u64::from(len);
            count += 1;
        }
        count
    }

    fn segments_of(&self, slot: u16, count: u16) -> &[Segment] {
        let start = usize::from(slot) * self.slot_segments;
        &self.segments[start..start + usize::from(count)]
    }

    /// The request as it goes down, if it does; how it completes if that goes well; and how many
    /// segments go with it.
    fn cut(
        &mut self,
        slot: u16,
        plain: &Request,
        data: &[Segment],
        course: Course,
    ) -> (Option<Request>, Status, u16) {
        match course {
            Course::Whole => (Some(*plain), Status::Ok, self.remember(slot, data, plain.blocks)),
            Course::Elsewhere(lba) => {
                let count = self.remember(slot, data, plain.blocks);
                (Some(Request { lba, ..*plain }), Status::Ok, count)
            }
            Course::Part { blocks: 0, status } => (None, status, 0),
            Course::Part { blocks, status } => {
                let count = self.remember(slot, data, blocks);
                let part = Request { blocks, ..*plain };
                if self.limits.check(&part, self.segments_of(slot, count)).is_ok() {
                    return (Some(part), status, count);
                }
                // The cut lies where the device cannot end a segment: nothing goes down, and no
                // block may be reported as transferred.
                let status = match status {
                    Status::Medium { .. } => Status::Medium { first_bad: plain.lba },
                    other => other,
                };
                (None, status, 0)
            }
        }
    }

    /// Sends a late request down.
    fn start(&mut self, slot: u16) {
        self.late -= 1;
        let state = &mut self.slots[usize::from(slot)];
        state.delay_nanos = 0;
        state.place = Place::Below;
        let (below, segments) = (state.below, usize::from(state.segments));
        let start = usize::from(slot) * self.slot_segments;
        let data = &self.segments[start..start + segments];
        let taken = self.inner.submit(&below, data);
        debug_assert!(taken.is_ok(), "room below was kept for it");
        if taken.is_err() {
            // A device below that breaks its word on room: the request ends all the same.
            let state = &mut self.slots[usize::from(slot)];
            state.place = Place::Done;
            state.status = Status::Device { code: INJECTED_CODE, retryable: true };
            self.held.push_front((Instant::ZERO, slot));
        }
    }

    /// Sends down the late requests whose time has come; true if there were any.
    fn start_due(&mut self, now: Instant) -> bool {
        let mut started = false;
        let mut at = 0;
        while self.late > 0
            && let Some((due, slot)) = self.held.get(at).copied()
            && due <= now
        {
            if self.slots[usize::from(slot)].place != Place::Late {
                at += 1;
                continue;
            }
            started = true;
            self.held.remove(at);
            if self.is_gone() {
                self.late -= 1;
                self.slots[usize::from(slot)].place = Place::Done;
                self.held.push_front((Instant::ZERO, slot));
                at += 1;
            } else {
                self.start(slot);
            }
        }
        started
    }

    /// From `now` on the request waits for its time.
    fn hold(&mut self, slot: u16, now: Instant) {
        let state = &mut self.slots[usize::from(slot)];
        let due = now.plus_nanos(state.delay_nanos);
        let at = self.held.partition_point(|(other, _)| *other <= due);
        self.held.insert(at, (due, slot));
    }

    /// A completion came from below.
    fn receive(&mut self, completion: Completion, now: Instant) {
        let slot = completion.token.0;
        let state = usize::try_from(slot).ok().and_then(|slot| self.slots.get_mut(slot));
        let Some(state) = state.filter(|s| s.place == Place::Below) else {
            debug_assert!(false, "the device below completed {slot}, which is not outstanding");
            return;
        };
        match completion.status {
            Status::Ok => {}
            Status::Medium { first_bad } => {
                let offset = first_bad.0.saturating_sub(state.below.lba.0);
                state.status = Status::Medium { first_bad: Lba(state.lba.0 + offset) };
            }
            other => state.status = other,
        }
        state.place = Place::Done;
        let state = *state;
        // A slot's number, so a u16.
        let slot = slot as u16;
        if completion.status.is_ok()
            && let Some(bit) = state.flip_bit
            && self.flip(slot, &state, bit)
        {
            self.fired.count(FaultKind::Flipped);
        }
        self.hold(slot, now);
    }

    /// Changes one bit of what was read. The memory is still the request's: it has not completed.
    fn flip(&self, slot: u16, state: &Slot, bit: u64) -> bool {
        let mut offset = bit / 8;
        for segment in self.segments_of(slot, state.segments) {
            if offset >= segment.len.into() {
                offset -= u64::from(segment.len);
                continue;
            }
            let table = self.memory.table_of(state.epoch);
            let Some(region) = table.region(segment.region) else { return false };
            let Ok(at) = usize::try_from(segment.offset + offset) else { return false };
            let mut byte = [0];
            if !region.read_at(at, &mut byte) {
                return false;
            }
            byte[0] ^= 1 << (bit % 8);
            return region.write_at(at, &byte);
        }
        // The bit lies in the part that a medium error cut off.
        false
    }

    /// Hands a completion up and frees its slot; `out` has room.
    fn hand_up(&mut self, slot: u16, out: &mut Sink) {
        let gone = self.is_gone();
        let state = &mut self.slots[usize::from(slot)];
        debug_assert_eq!(state.place, Place::Done, "handed up twice, or before its time");
        state.place = Place::Free;
        let status = if gone { Status::Gone } else { state.status };
        let (token, epoch) = (state.token, state.epoch);
        self.free.push(slot);
        self.memory.end(epoch);
        self.counters.completion(status);
        out.push(Completion { token, status });
    }

    /// Hands up what is due at `now`; true if anything moved.
    fn hand_up_due(&mut self, now: Instant, out: &mut Sink) -> bool {
        let mut moved = false;
        while out.room() > 0 {
            let alone = self.outstanding() == 1;
            if let Some(overtaken) = self.overtaken.take_if(|o| o.passed || alone) {
                self.hand_up(overtaken.slot, out);
                moved = true;
                continue;
            }
            let Some((_, slot)) = self.held.pop_front_if(|(due, _)| *due <= now) else { break };
            moved = true;
            let wants = self.slots[usize::from(slot)].reorder;
            if wants && self.overtaken.is_none() && self.outstanding() > 1 {
                self.fired.count(FaultKind::Reordered);
                self.overtaken = Some(Overtaken { slot, passed: false });
                continue;
            }
            self.hand_up(slot, out);
            if let Some(overtaken) = &mut self.overtaken {
                overtaken.passed = true;
            }
        }
        moved
    }

    /// Opens the door, or perhaps closes it; true if it was opened.
    fn mind_the_door(&mut self) -> bool {
        let used = std::mem::take(&mut self.door.used);
        if self.door.closed {
            self.door.closed = false;
            return true;
        }
        if used && self.true_room() > 0 && self.door.dice.chance(self.door.probability) {
            self.door.closed = true;
            self.fired.count(FaultKind::Refused);
        }
        false
    }
}

impl Channel for FaultChannel {
    fn room(&self) -> usize {
        if self.door.closed { 0 } else { self.true_room() }
    }

    fn submit(&mut self, request: &Request, data: &[Segment]) -> Result<(), Full> {
        if self.room() == 0 {
            return Err(Full);
        }
        let Some(slot) = self.free.pop() else { return Err(Full) };
        self.count_taken();
        let plain = Request { token: Token(slot.into()), ..*request };
        let (mut fate, mut kept) = (Fate::PLAIN, None);
        let (down, status) = if self.is_gone() {
            (None, Status::Gone)
        } else if self.is_sound(request, data) {
            self.counters.request(request.op, self.limits.bytes(request.blocks));
            fate = self.fates.draw(request, &self.limits, &self.fired);
            let (down, status, count) = self.cut(slot, &plain, data, fate.course);
            kept = Some(count);
            (down, status)
        } else {
            (Some(plain), Status::Ok)
        };
        // Only a request that was remembered whole can go down later.
        let late = fate.late && kept.is_some() && down.is_some();
        let place = match &down {
            None => Place::Done,
            Some(_) if late => Place::Late,
            Some(down) => {
                let start = usize::from(slot) * self.slot_segments;
                let kept = kept.map(|count| &self.segments[start..start + usize::from(count)]);
                if self.inner.submit(down, kept.unwrap_or(data)).is_err() {
                    debug_assert!(false, "the device below had room and refused");
                    self.free.push(slot);
                    return Err(Full);
                }
                Place::Below
            }
        };
        if place != Place::Below {
            self.fresh.push(slot);
        }
        self.late += usize::from(late);
        self.door.used = true;
        self.slots[usize::from(slot)] = Slot {
            token: request.token,
            place,
            status,
            lba: request.lba,
            below: down.unwrap_or(plain),
            flip_bit: fate.flip_bit,
            delay_nanos: fate.delay_nanos,
            reorder: fate.reorder,
            epoch: self.memory.begin(),
            segments: kept.unwrap_or(0),
        };
        Ok(())
    }

    fn poll(&mut self, now: Instant, out: &mut Sink) -> Progress {
        let mut moved = self.mind_the_door() || !self.fresh.is_empty();
        for i in 0..self.fresh.len() {
            self.hold(self.fresh[i], now);
        }
        self.fresh.clear();
        moved |= self.start_due(now);
        let mut progress = self.inner.poll(now, &mut self.below);
        for i in 0..self.below.len() {
            self.receive(self.below.as_slice()[i], now);
        }
        self.below.clear();
        moved |= self.hand_up_due(now, out);
        if moved {
            progress = Progress::Worked;
        } else if !self.held.is_empty() || self.overtaken.is_some() || self.door.closed {
            progress = progress | Progress::Waiting;
        }
        progress
    }

    fn cancel(&mut self, token: Token) {
        let found = |s: &Slot| s.place != Place::Free && s.token == token;
        let Some(slot) = self.slots.iter().position(found) else { return };
        let state = &mut self.slots[slot];
        state.delay_nanos = 0;
        state.reorder = false;
        match state.place {
            Place::Below => self.inner.cancel(Token(slot as u64)),
            Place::Late => {
                // The device never sees it.
                state.place = Place::Done;
                state.status = Status::Cancelled;
                self.late -= 1;
            }
            Place::Done | Place::Free => {}
        }
        // Done: its true status comes at the next poll.
        let is = |held: u16| usize::from(held) == slot;
        if let Some(at) = self.held.iter().position(|(_, held)| is(*held))
            && let Some((_, slot)) = self.held.remove(at)
        {
            self.held.push_front((Instant::ZERO, slot));
        } else if let Some(o) = self.overtaken.as_mut().filter(|o| is(o.slot)) {
            o.passed = true;
        }
    }

    fn turn(&mut self, to: Epoch) {
        // What began before is checked against the regions of before.
        for slot in 0..self.slots.len() as u16 {
            if self.slots[usize::from(slot)].place == Place::Late {
                self.fresh.retain(|other| *other != slot);
                self.held.retain(|(_, other)| *other != slot);
                self.start(slot);
            }
        }
        self.memory.turn(to);
        self.limits = limits_for(self.device.as_ref(), self.mode);
        self.inner.turn(to);
    }

    fn oldest(&self) -> Option<Epoch> {
        self.memory.oldest().into_iter().chain(self.inner.oldest()).min()
    }

    fn arm(&mut self, wake: &mut WakeSet) {
        let overtaken = self.overtaken.as_ref();
        let passed = overtaken.is_some_and(|o| o.passed || self.outstanding() == 1);
        if self.door.closed || !self.fresh.is_empty() || passed {
            wake.ready();
        }
        if let Some((due, _)) = self.held.front() {
            wake.at(*due);
        }
        self.inner.arm(wake);
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}
