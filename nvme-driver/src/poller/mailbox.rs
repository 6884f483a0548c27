//! The mailbox between cores: a pair of rings for each pair of pollers.
//!
//! A request reserves the slot of its answer before it is sent, so an answer never waits for room
//! and full rings are back-pressure, never a deadlock. A poll drains what came in before it sends.

use super::ring::{Receiver, Sender, ring};
use super::waker::Waker;

/// What came in: at most one step of work for whoever drains the mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mail<Q, A> {
    /// Endpoint `from` asks; answer it with [`Endpoint::answer`].
    Request {
        /// Who asks.
        from: usize,
        /// What.
        message: Q,
    },
    /// Endpoint `from` answers a request sent to it.
    Answer {
        /// Who answers.
        from: usize,
        /// What.
        message: A,
    },
}

/// One poller's post office: sends to and receives from every other endpoint of the mesh.
#[derive(Debug)]
pub struct Endpoint<Q, A> {
    /// By the other endpoint's number; `None` for its own.
    links: Vec<Option<Link<Q, A>>>,
    capacity: usize,
    /// Where the next drain starts, so that no neighbour starves another.
    next: usize,
}

#[derive(Debug)]
struct Link<Q, A> {
    requests_out: Sender<Q>,
    requests_in: Receiver<Q>,
    answers_out: Sender<A>,
    answers_in: Receiver<A>,
    /// Requests sent whose answer was not received: each holds a slot in the ring of answers.
    unanswered: usize,
    waker: Waker,
}

/// Connects the pollers that `wakers` wake; each pair has up to `capacity` requests outstanding
/// in each direction. Endpoints are in the order of the wakers.
#[must_use]
pub fn mesh<Q, A>(wakers: &[Waker], capacity: usize) -> Vec<Endpoint<Q, A>> {
    let n = wakers.len();
    let capacity = capacity.max(1).next_power_of_two();
    let endpoint = |_| Endpoint { links: (0..n).map(|_| None).collect(), capacity, next: 0 };
    let mut endpoints: Vec<Endpoint<Q, A>> = (0..n).map(endpoint).collect();
    for a in 0..n {
        for b in a + 1..n {
            let (requests_ab, requests_at_b) = ring(capacity);
            let (requests_ba, requests_at_a) = ring(capacity);
            let (answers_ab, answers_at_b) = ring(capacity);
            let (answers_ba, answers_at_a) = ring(capacity);
            endpoints[a].links[b] = Some(Link {
                requests_out: requests_ab,
                requests_in: requests_at_a,
                answers_out: answers_ab,
                answers_in: answers_at_a,
                unanswered: 0,
                waker: wakers[b].clone(),
            });
            endpoints[b].links[a] = Some(Link {
                requests_out: requests_ba,
                requests_in: requests_at_b,
                answers_out: answers_ba,
                answers_in: answers_at_b,
                unanswered: 0,
                waker: wakers[a].clone(),
            });
        }
    }
    endpoints
}

impl<Q, A> Endpoint<Q, A> {
    /// How many requests `to` would take now; 0 for an endpoint that is not there.
    #[must_use]
    pub fn room(&self, to: usize) -> usize {
        let link = self.links.get(to).and_then(Option::as_ref);
        link.map_or(0, |link| self.capacity - link.unanswered)
    }

    /// Sends a request. It leaves with the next [`flush`](Self::flush).
    ///
    /// # Errors
    /// The request, if there is no room for it or for its answer.
    pub fn send(&mut self, to: usize, request: Q) -> Result<(), Q> {
        if self.room(to) == 0 {
            return Err(request);
        }
        let Some(link) = self.links[to].as_mut() else { return Err(request) };
        // Requests in the ring are at most those unanswered, so this only fails with `room` at 0.
        link.requests_out.push(request)?;
        link.unanswered += 1;
        Ok(())
    }

    /// Answers a request that came from `to`. It leaves with the next [`flush`](Self::flush).
    ///
    /// # Errors
    /// The answer, if nobody there waits for one: a mistake of the caller.
    pub fn answer(&mut self, to: usize, answer: A) -> Result<(), A> {
        match self.links.get_mut(to).and_then(Option::as_mut) {
            Some(link) => link.answers_out.push(answer),
            None => Err(answer),
        }
    }

    /// The next piece of mail. Answers come before requests, which may lead to new ones.
    pub fn receive(&mut self) -> Option<Mail<Q, A>> {
        let n = self.links.len();
        for i in 0..n {
            let from = (self.next + i) % n;
            if let Some(link) = self.links[from].as_mut()
                && let Some(message) = link.answers_in.pop()
            {
                link.unanswered -= 1;
                return Some(Mail::Answer { from, message });
            }
        }
        for i in 0..n {
            let from = (self.next + i) % n;
            if let Some(link) = self.links[from].as_mut()
                && let Some(message) = link.requests_in.pop()
            {
                self.next = (from + 1) % n;
                return Some(Mail::Request { from, message });
            }
        }
        None
    }

    /// Shows the others what was sent and answered, and wakes those that sleep. Once a poll.
    pub fn flush(&mut self) {
        for link in self.links.iter_mut().flatten() {
            let requests = link.requests_out.publish();
            let answers = link.answers_out.publish();
            if requests || answers {
                link.waker.wake();
            }
        }
    }

    /// True if there is mail: do not sleep.
    pub fn has_mail(&mut self) -> bool {
        let mut links = self.links.iter_mut().flatten();
        links.any(|link| !link.answers_in.is_empty() || !link.requests_in.is_empty())
    }

    /// Requests sent and not answered yet, over all endpoints.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.links.iter().flatten().map(|link| link.unanswered).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_answer_always_has_room_even_if_both_sides_only_send() {
        // Two endpoints that fill each other's rings and then drain: a mailbox without reserved
        // answer slots deadlocks here.
        let wakers = [Waker::new().unwrap(), Waker::new().unwrap()];
        let mut ends = mesh::<u32, u32>(&wakers, 4);
        let mut b = ends.pop().unwrap();
        let mut a = ends.pop().unwrap();
        for n in 0..4 {
            a.send(1, n).unwrap();
            b.send(0, 10 + n).unwrap();
        }
        assert_eq!((a.send(1, 4), a.room(1)), (Err(4), 0));
        a.flush();
        b.flush();
        let mut answers = 0;
        for _ in 0..2 {
            for end in [&mut a, &mut b] {
                while let Some(mail) = end.receive() {
                    match mail {
                        Mail::Request { from, message } => end.answer(from, message + 100).unwrap(),
                        Mail::Answer { message, .. } => {
                            assert!(message >= 100);
                            answers += 1;
                        }
                    }
                }
                end.flush();
            }
        }
        while a.receive().is_some() {
            answers += 1;
        }
        assert_eq!(answers, 8);
        assert_eq!((a.unanswered(), b.unanswered(), a.room(1)), (0, 0, 4));
        assert_eq!((a.send(0, 1), a.send(7, 1)), (Err(1), Err(1)), "nobody is there");
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    #[test]
    fn a_request_comes_back_answered_while_the_other_side_asks_too() {
        loom::model(|| {
            let wakers = [Waker::new().unwrap(), Waker::new().unwrap()];
            let mut ends = mesh::<u32, u32>(&wakers, 1);
            let b = ends.pop().unwrap();
            let a = ends.pop().unwrap();
            fn run(mut end: Endpoint<u32, u32>, other: usize) {
                end.send(other, 7).unwrap();
                assert_eq!(end.send(other, 8), Err(8));
                end.flush();
                let (mut answered, mut served) = (false, false);
                while !(answered && served) {
                    match end.receive() {
                        Some(Mail::Request { from, message }) => {
                            end.answer(from, message + 1).unwrap();
                            end.flush();
                            served = true;
                        }
                        Some(Mail::Answer { message, .. }) => {
                            assert_eq!(message, 8);
                            answered = true;
                        }
                        None => loom::thread::yield_now(),
                    }
                }
            }
            let other = loom::thread::spawn(move || run(b, 0));
            run(a, 1);
            other.join().unwrap();
        });
    }
}
