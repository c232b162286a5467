//! Real records, writes and requests, each kept once: a state holds only references, so that it is
//! small and two equal values are one address.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{PoisonError, RwLock};

use firstclaim::Record;
use firstclaim::protocol::{Request, Write};

/// A value that lives in a [`Pool`]. Equal values of one pool have one address, by which they are
/// compared and hashed.
pub(crate) struct Ref<T: 'static>(&'static T);

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ref<T> {}

impl<T> Ref<T> {
    fn address(self) -> usize {
        std::ptr::from_ref(self.0).addr()
    }
}

impl<T> Deref for Ref<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<T> PartialEq for Ref<T> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl<T> Eq for Ref<T> {}

impl<T> PartialOrd for Ref<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Ref<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.address().cmp(&other.address())
    }
}

impl<T> Hash for Ref<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

impl<T: fmt::Debug> fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The values of one type.
#[derive(Debug)]
pub(crate) struct Pool<T: 'static>(RwLock<HashSet<&'static T>>);

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T: Eq + Hash> Pool<T> {
    /// The one reference for `value`. It is never freed: there are some thousands of them, and the
    /// test's process is short.
    pub(crate) fn keep(&self, value: T) -> Ref<T> {
        if let Some(kept) = read(&self.0).get(&value) {
            return Ref(kept);
        }
        let mut values = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = values.get(&value) {
            return Ref(kept);
        }
        let kept: &'static T = Box::leak(Box::new(value));
        values.insert(kept);
        Ref(kept)
    }
}

/// The pools of one process.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pub(crate) records: Pool<Record>,
    pub(crate) writes: Pool<Write>,
    pub(crate) requests: Pool<Request>,
}

/// What a pure function said before.
#[derive(Debug)]
pub(crate) struct Memo<K, V>(RwLock<HashMap<K, V>>);

impl<K, V> Default for Memo<K, V> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<K: Eq + Hash, V: Copy> Memo<K, V> {
    /// What `make` says about `key`, asked once.
    pub(crate) fn get(&self, key: K, make: impl FnOnce(&K) -> V) -> V {
        if let Some(known) = read(&self.0).get(&key) {
            return *known;
        }
        let value = make(&key);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *known.entry(key).or_insert(value)
    }
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}
