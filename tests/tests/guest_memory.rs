//! A guest's memory as the target will use it: a `vm_memory` region, registered, read and written
//! by a device, and taken away while requests are under way.

use std::sync::{Arc, Mutex};

use strake_nvme_driver::block::{
    Channel, ClaimMode, Completion, Device, Lba, OpenOptions, Progress, Request, Segment, Sink,
    Status, Token, WakeSet,
};
use strake_nvme_driver::loopback::Mem;
use strake_nvme_driver::memory::{IovaAllocator, Mapping, Memory};
use strake_nvme_driver::middleware::{Fault, FaultPlan};
use strake_nvme_driver::poller::{Epoch, Leader, Poller, PollerId, Task, TaskState, Waker};
use strake_nvme_driver::time::Instant;
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemoryRegion, GuestRegionMmap, MemoryRegionAddress,
    MmapRegion,
};

const REGION_BYTES: usize = 64 << 10;
const BLOCK: u32 = 512;

/// Requests to send and completions received, shared with the test.
#[derive(Default)]
struct Desk {
    ask: Vec<(Request, Segment)>,
    done: Vec<Completion>,
}

/// A task that sends what is on the desk.
struct Clerk {
    channel: Box<dyn Channel>,
    desk: Arc<Mutex<Desk>>,
    out: Sink,
}

impl Task for Clerk {
    fn poll(&mut self, now: Instant) -> TaskState {
        let mut desk = self.desk.lock().unwrap();
        for (request, segment) in desk.ask.drain(..) {
            self.channel.submit(&request, &[segment]).unwrap();
        }
        self.out.clear();
        let progress = self.channel.poll(now, &mut self.out);
        desk.done.extend_from_slice(self.out.as_slice());
        TaskState::Running(progress)
    }

    fn turn(&mut self, to: Epoch) {
        self.channel.turn(to);
    }

    fn oldest(&self) -> Option<Epoch> {
        self.channel.oldest()
    }

    fn arm(&mut self, wake: &mut WakeSet) {
        self.channel.arm(wake);
    }

    fn disarm(&mut self) {
        self.channel.disarm();
    }
}

/// A guest's memory as QEMU lends it: a shared file. The second handle is what the guest sees.
fn guest() -> (GuestRegionMmap, GuestRegionMmap) {
    let file = tempfile::tempfile().unwrap();
    file.set_len(REGION_BYTES as u64).unwrap();
    let map = || {
        let at = FileOffset::new(file.try_clone().unwrap(), 0);
        let region = MmapRegion::from_file(at, REGION_BYTES).unwrap();
        GuestRegionMmap::new(region, GuestAddress(0x1_0000_0000)).unwrap()
    };
    (map(), map())
}

#[test]
fn a_guests_region_serves_what_was_begun_and_is_unmapped_after_the_last_of_it() {
    let memory = Memory::new(IovaAllocator::for_39_bits());
    let (lent, seen) = guest();
    assert_eq!(lent.len(), REGION_BYTES as u64);
    let region = memory.add(Mapping::guest(lent).unwrap()).unwrap();
    // Completions are held up to 100 us, so that the region is retired under requests.
    let plan = FaultPlan { delay: 1.0, delay_us_max: 100, ..FaultPlan::default() };
    let mem: Arc<dyn Device> = Arc::new(Mem::new("disk", BLOCK, 128).unwrap());
    let disk = Fault::new(mem, plan);
    let claim = disk.claim(ClaimMode::Write).unwrap();
    let options = OpenOptions { poller: PollerId(0), depth: 16, memory: Arc::clone(&memory) };
    let channel = disk.open(&claim, &options).unwrap();
    let waker = Waker::new().unwrap();
    let (mut leader, mut followers) = Leader::new(vec![waker.clone()]);
    let (mut poller, inbox) = Poller::new(PollerId(0), waker, followers.pop().unwrap());
    let desk = Arc::new(Mutex::new(Desk::default()));
    let clerk = Clerk { channel, desk: Arc::clone(&desk), out: Sink::new(16) };
    inbox.add(Box::new(clerk)).unwrap();

    let mut now = Instant::ZERO;
    let segment = |block: u64| region.segment(block * u64::from(BLOCK), BLOCK);
    let ask = |request, segment| desk.lock().unwrap().ask.push((request, segment));
    let wait = |poller: &mut Poller, now: &mut Instant, n: usize| {
        let mut wake = WakeSet::new();
        while desk.lock().unwrap().done.len() < n {
            if poller.step(*now) != Progress::Worked {
                poller.arm(&mut wake);
                *now = wake.until().expect("something is held until a time");
                poller.disarm();
            }
        }
        std::mem::take(&mut desk.lock().unwrap().done)
    };

    // The guest writes "hello" to disk, and reads it back elsewhere.
    seen.write_slice(b"hello", MemoryRegionAddress(0)).unwrap();
    ask(Request::write(Lba(7), 1, Token(1)), segment(0));
    assert_eq!(wait(&mut poller, &mut now, 1)[0].status, Status::Ok);
    ask(Request::read(Lba(7), 1, Token(2)), segment(9));
    assert_eq!(wait(&mut poller, &mut now, 1)[0].status, Status::Ok);
    let mut hello = [0; 5];
    seen.read_slice(&mut hello, MemoryRegionAddress(9 * u64::from(BLOCK))).unwrap();
    assert_eq!(&hello, b"hello");

    // Taken away under four reads.
    for n in 10..14 {
        ask(Request::read(Lba(7), 1, Token(n)), segment(n));
    }
    poller.step(now);
    assert!(desk.lock().unwrap().done.is_empty(), "all are held");
    let stale = segment(20);
    drop(memory.retire(region.id()).unwrap());
    let gone = Arc::downgrade(&region);
    drop(region);
    leader.publish().unwrap();
    poller.step(now);
    assert!(!leader.is_settled(), "the reads are still under way");
    assert!(gone.upgrade().is_some(), "and so the region is still mapped");
    ask(Request::read(Lba(7), 1, Token(20)), stale);

    let done = wait(&mut poller, &mut now, 5);
    for completion in done {
        let late = completion.token == Token(20);
        let expected = if late { Status::BadMemory } else { Status::Ok };
        assert_eq!(completion.status, expected, "{completion:?}");
    }
    poller.step(now);
    assert!(leader.is_settled());
    assert!(gone.upgrade().is_none(), "unmapped with the last of the reads");
    seen.read_slice(&mut hello, MemoryRegionAddress(13 * u64::from(BLOCK))).unwrap();
    assert_eq!(&hello, b"hello", "the guest keeps its own mapping, and the data");
}
