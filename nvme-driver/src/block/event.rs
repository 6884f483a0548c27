//! What changed about a device, told to whoever watches.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::limits::Limits;

/// A change.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// New limits hold from the next epoch on (resize, format, replaced member).
    LimitsChanged(Arc<Limits>),
    /// It takes no writes any more.
    ReadOnly,
    /// It is not there any more.
    Gone,
    /// Its health changed.
    Health(Health),
}

/// How a device feels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// All is well.
    Good,
    /// It works, but says that it will fail or lacks a part.
    Degraded,
    /// It does not work.
    Failed,
}

/// One watcher's view. Unread changes of a kind are merged into the latest, so a watcher that
/// never reads costs nothing.
#[derive(Clone, Debug)]
pub struct Events {
    unread: Arc<Mutex<Unread>>,
}

#[derive(Debug, Default)]
struct Unread {
    limits: Option<Arc<Limits>>,
    read_only: bool,
    gone: bool,
    health: Option<Health>,
}

impl Events {
    /// The next change, if there is one.
    pub fn next_event(&self) -> Option<Event> {
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limits) = unread.limits.take() {
            return Some(Event::LimitsChanged(limits));
        }
        if std::mem::take(&mut unread.read_only) {
            return Some(Event::ReadOnly);
        }
        if std::mem::take(&mut unread.gone) {
            return Some(Event::Gone);
        }
        unread.health.take().map(Event::Health)
    }
}

/// A device's list of watchers.
#[derive(Debug, Default)]
pub struct EventsBook {
    watchers: Mutex<Vec<Weak<Mutex<Unread>>>>,
}

impl EventsBook {
    /// A new watcher.
    pub fn watch(&self) -> Events {
        let unread = Arc::new(Mutex::new(Unread::default()));
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|w| w.strong_count() > 0);
        watchers.push(Arc::downgrade(&unread));
        Events { unread }
    }

    /// Makes a watcher of another device watch this one too: a wrapper's own changes and those of
    /// what it wraps come as one.
    pub fn join(&self, events: Events) -> Events {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|w| w.strong_count() > 0);
        watchers.push(Arc::downgrade(&events.unread));
        events
    }

    /// Tells every watcher.
    pub fn tell(&self, event: &Event) {
        let watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        for watcher in watchers.iter().filter_map(Weak::upgrade) {
            let mut unread = watcher.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Event::LimitsChanged(limits) => unread.limits = Some(Arc::clone(limits)),
                Event::ReadOnly => unread.read_only = true,
                Event::Gone => unread.gone = true,
                Event::Health(health) => unread.health = Some(*health),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watcher_that_joined_hears_both() {
        let (inner, outer) = (EventsBook::default(), EventsBook::default());
        let events = outer.join(inner.watch());
        inner.tell(&Event::ReadOnly);
        outer.tell(&Event::Gone);
        assert_eq!(events.next_event(), Some(Event::ReadOnly));
        assert_eq!(events.next_event(), Some(Event::Gone));
    }

    #[test]
    fn unread_changes_of_a_kind_are_merged_into_the_latest() {
        let book = EventsBook::default();
        let events = book.watch();
        book.tell(&Event::Health(Health::Degraded));
        book.tell(&Event::Health(Health::Failed));
        book.tell(&Event::Gone);
        assert_eq!(events.next_event(), Some(Event::Gone));
        assert_eq!(events.next_event(), Some(Event::Health(Health::Failed)));
        assert_eq!(events.next_event(), None);
    }
}
