//! Table: a set of items that are never removed, for lookups and insertions without a lock.
//!
//! Model: an array of buckets, each a chain of leaked entries. An insertion puts an entry in front
//! of its chain, if nobody else has changed the chain meanwhile. So an item is in the table once,
//! and a forked child finds the table whole.

use std::sync::atomic::{AtomicPtr, Ordering};

/// Number of buckets: chains stay short for as many items as there may be.
const BUCKETS: usize = 8192;

/// See the module's text.
pub(super) struct Table<T: 'static> {
    buckets: [AtomicPtr<Entry<T>>; BUCKETS],
}

struct Entry<T: 'static> {
    item: T,
    hash: u64,
    next: Option<&'static Entry<T>>,
}

impl<T: Sync> Table<T> {
    pub(super) const fn new() -> Table<T> {
        Table {
            buckets: [const { AtomicPtr::new(std::ptr::null_mut()) }; BUCKETS],
        }
    }

    /// Returns the item of that hash for which `is_it` is true.
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(&T) -> bool) -> Option<&'static T> {
        find_in(self.chain(hash), hash, is_it)
    }

    /// Returns the item of that hash for which `is_it` is true, and makes it if there is none.
    /// `None`: `make` refused. The flag tells that the item is new.
    pub(super) fn find_or_make(
        &self,
        hash: u64,
        is_it: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Option<T>,
    ) -> Option<(&'static T, bool)> {
        if let Some(item) = self.find(hash, &is_it) {
            return Some((item, false));
        }
        let mut entry = Box::new(Entry {
            item: make()?,
            hash,
            next: None,
        });
        let bucket = self.bucket(hash);
        loop {
            let chain = self.chain(hash);
            // Another thread may have made the item after the last look.
            if let Some(item) = find_in(chain, hash, &is_it) {
                return Some((item, false));
            }
            entry.next = chain;
            let expected = chain.map_or(std::ptr::null_mut(), |entry| {
                std::ptr::from_ref(entry).cast_mut()
            });
            let made = Box::into_raw(entry);
            // Release: a thread that finds the entry finds its fields.
            match bucket.compare_exchange(expected, made, Ordering::Release, Ordering::Relaxed) {
                // SAFETY: the entry is in the table, which never frees or changes an entry.
                Ok(_) => return Some((unsafe { &(*made).item }, true)),
                // SAFETY: made by `into_raw` just above, and no other thread has it.
                Err(_) => entry = unsafe { Box::from_raw(made) },
            }
        }
    }

    fn bucket(&self, hash: u64) -> &AtomicPtr<Entry<T>> {
        &self.buckets[(hash >> 32) as usize % BUCKETS]
    }

    fn chain(&self, hash: u64) -> Option<&'static Entry<T>> {
        // SAFETY: null, or an entry that is never freed or changed. Acquire pairs with the Release
        // of its insertion.
        unsafe { self.bucket(hash).load(Ordering::Acquire).as_ref() }
    }
}

fn find_in<T>(
    mut chain: Option<&'static Entry<T>>,
    hash: u64,
    is_it: impl Fn(&T) -> bool,
) -> Option<&'static T> {
    while let Some(entry) = chain {
        if entry.hash == hash && is_it(&entry.item) {
            return Some(&entry.item);
        }
        chain = entry.next;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn threads_that_make_the_same_items_get_the_same_items() {
        static TABLE: Table<u64> = Table::new();
        let made: Vec<(Vec<usize>, usize)> = thread::scope(|scope| {
            let work = || {
                let mut new = 0;
                let item = |n: u64| {
                    // All in few chains.
                    let (item, is_new) = TABLE
                        .find_or_make((n << 32) | (n % 3), |it| *it == n, || Some(n))
                        .unwrap();
                    assert_eq!(*item, n);
                    new += usize::from(is_new);
                    std::ptr::from_ref(item).addr()
                };
                ((0..2000).map(item).collect(), new)
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        assert!(made.iter().all(|(items, _)| *items == made[0].0));
        assert_eq!(made.iter().map(|(_, new)| new).sum::<usize>(), 2000);
        assert!(TABLE.find(9 << 32, |it| *it == 9).is_some());
        assert!(TABLE.find(9 << 32 | 1, |it| *it == 9).is_none());
    }
}
