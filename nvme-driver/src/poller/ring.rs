//! A bounded lock-free ring with one producer and one consumer, drained in batches.
//!
//! Each side keeps a copy of the other's index and looks at the shared one only when its copy says
//! full or empty, so a batch costs one cache line transfer and not one a message.
#![expect(unsafe_code, reason = "slots are shared between two threads under the indexes' protocol")]

use std::mem::MaybeUninit;

use crossbeam_utils::CachePadded;

use crate::sync::{Arc, AtomicUsize, Ordering, UnsafeCell};

struct Shared<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Next slot to read; written by the receiver. Indexes run freely and wrap around.
    head: CachePadded<AtomicUsize>,
    /// Next slot to write; written by the sender.
    tail: CachePadded<AtomicUsize>,
}

// SAFETY: a slot is touched by the sender only while it lies outside head..tail and by the
// receiver only while it lies inside; the indexes are published with release and read with acquire.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn slot(&self, index: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[index & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let tail = self.tail.load(Ordering::Relaxed);
        let mut head = self.head.load(Ordering::Relaxed);
        while head != tail {
            // SAFETY: both ends are gone, and slots in head..tail hold messages.
            self.slot(head).with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            head = head.wrapping_add(1);
        }
    }
}

/// The producer's end.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    head_seen: usize,
}

/// The consumer's end.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    head: usize,
    tail_seen: usize,
}

/// A ring for `capacity` messages, rounded up to a power of two.
#[must_use]
pub fn ring<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let slots = (0..capacity.max(1).next_power_of_two())
        .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
        .collect();
    let index = || CachePadded::new(AtomicUsize::new(0));
    let shared = Arc::new(Shared { slots, head: index(), tail: index() });
    let sender = Sender { shared: Arc::clone(&shared), tail: 0, head_seen: 0 };
    (sender, Receiver { shared, head: 0, tail_seen: 0 })
}

impl<T> Sender<T> {
    /// How many messages fit now. Looks at the receiver's index, so ask once a batch.
    pub fn room(&mut self) -> usize {
        self.head_seen = self.shared.head.load(Ordering::Acquire);
        self.room_seen()
    }

    /// How many messages fit for certain: the receiver may have made room since we last looked.
    #[inline]
    fn room_seen(&self) -> usize {
        self.shared.slots.len() - self.tail.wrapping_sub(self.head_seen)
    }

    /// Puts a message in; the receiver sees it after [`publish`](Self::publish).
    ///
    /// # Errors
    /// The message, if the ring is full.
    #[inline]
    pub fn push(&mut self, message: T) -> Result<(), T> {
        if self.room_seen() == 0 && self.room() == 0 {
            return Err(message);
        }
        // SAFETY: the slot lies outside head..tail, so it is the sender's alone.
        self.shared.slot(self.tail).with_mut(|slot| unsafe {
            (*slot).write(message);
        });
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Shows the receiver everything pushed so far. True if there was something new.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.shared.tail.load(Ordering::Relaxed) == self.tail {
            return false;
        }
        self.shared.tail.store(self.tail, Ordering::Release);
        true
    }
}

impl<T> Drop for Sender<T> {
    /// What was pushed is not lost: the receiver can still take it.
    fn drop(&mut self) {
        self.publish();
    }
}

impl<T> Receiver<T> {
    /// The next message, if one was published.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: the slot lies inside head..tail, so it holds a message and is the receiver's.
        let message =
            self.shared.slot(self.head).with(|slot| unsafe { (*slot).assume_init_read() });
        self.head = self.head.wrapping_add(1);
        self.shared.head.store(self.head, Ordering::Release);
        Some(message)
    }

    /// True if nothing was published that was not taken.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        if self.head == self.tail_seen {
            self.tail_seen = self.shared.tail.load(Ordering::Acquire);
        }
        self.head == self.tail_seen
    }
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sender(of {})", self.shared.slots.len())
    }
}

impl<T> std::fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Receiver(of {})", self.shared.slots.len())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// `room` used to look at the receiver's index only when its own copy said full, so whoever
    /// waited for room for several messages at once could wait for ever.
    #[test]
    fn room_counts_what_the_receiver_has_taken_before_the_ring_is_full() {
        let (mut sender, mut receiver) = ring(4);
        for n in 0..3 {
            sender.push(n).unwrap();
        }
        sender.publish();
        assert_eq!(sender.room(), 1);
        while receiver.pop().is_some() {}
        assert_eq!(sender.room(), 4);
    }

    proptest! {
        #[test]
        fn it_is_a_bounded_queue(capacity in 1usize..9, steps in prop::collection::vec(0u8..4, 0..200)) {
            let (mut sender, mut receiver) = ring(capacity);
            let capacity = capacity.next_power_of_two();
            let (mut pushed, mut model) = (VecDeque::new(), VecDeque::new());
            for (n, step) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => match sender.push(Box::new(n)) {
                        Ok(()) => pushed.push_back(n),
                        Err(_) => prop_assert_eq!(pushed.len() + model.len(), capacity),
                    },
                    2 => {
                        prop_assert_eq!(sender.publish(), !pushed.is_empty());
                        model.append(&mut pushed);
                    }
                    _ => prop_assert_eq!(receiver.pop().map(|b| *b), model.pop_front()),
                }
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    #[test]
    fn messages_arrive_once_and_in_order_through_a_ring_that_wraps_around() {
        loom::model(|| {
            let (mut sender, mut receiver) = ring(2);
            let producer = loom::thread::spawn(move || {
                let mut next = 0u32;
                while next < 3 {
                    match sender.push(Box::new(next)) {
                        Ok(()) => next += 1,
                        Err(_) => loom::thread::yield_now(),
                    }
                    sender.publish();
                }
            });
            let mut expected = 0;
            while expected < 3 {
                match receiver.pop() {
                    Some(got) => {
                        assert_eq!(*got, expected);
                        expected += 1;
                    }
                    None => loom::thread::yield_now(),
                }
            }
            producer.join().unwrap();
        });
    }

    #[test]
    fn what_is_left_in_the_ring_is_dropped_once() {
        loom::model(|| {
            let (mut sender, mut receiver) = ring(2);
            let message = Arc::new(());
            let sent = Arc::clone(&message);
            let producer = loom::thread::spawn(move || {
                let _ = sender.push(Arc::clone(&sent));
                let _ = sender.push(sent);
            });
            drop(receiver.pop());
            drop(receiver);
            producer.join().unwrap();
            assert_eq!(Arc::strong_count(&message), 1);
        });
    }
}
