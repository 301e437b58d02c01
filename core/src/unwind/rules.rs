//! Rules: cached unwind rules by return address, in eight bytes each.
//!
//! Glossary: rule.
//!
//! A rule tells how to get from a frame to its caller. Nearly every frame uses one of three ways,
//! and always the same one for one return address:
//!
//! | kind | stack pointer of the caller | frame pointer's register of the caller |
//! | --- | --- | --- |
//! | [`PassesOn`](Kind::PassesOn) | `sp + 8 * up` | unchanged |
//! | [`Restores`](Kind::Restores) | `sp + 8 * up` | the word at `sp + 8 * saved` |
//! | [`ByRegister`](Kind::ByRegister) | `bp + 16` | the word at `bp` |
//!
//! The return address is the word below the caller's stack pointer. An unwinder that knows the
//! tables runs once for each address, on synthetic register and stack values ([`Rule::ask`]). The
//! values that reappear as the caller's identify the rule.
//!
//! The table consists of buckets: the rules of four addresses share a cache line. The table grows
//! if rules displace each other.
//!
//! Not here: unwind tables, and frames of other kinds.

use crate::unwind::kinds::{Cursor, Kind};

/// The way from a frame to its caller, and the frame's module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Distance in words. 0: the caller is not found from the stack pointer.
    up: u16,
    /// Distance in words. [`NOT_SAVED`]: the register is passed on; without `up` there is no rule.
    saved: i16,
    /// Number of the module plus one; 0: no module.
    module: u32,
}

const _: () = assert!(size_of::<Rule>() == 8);

const NOT_SAVED: i16 = i16::MIN;

/// Registers of [`Rule::ask`].
const ASKED_SP: u64 = 0x1000_0000_0000;
const ASKED_BP: u64 = 0x2000_0000_0000;
/// Bit that is set in every word of [`Rule::ask`]. The rest of a word is its address.
const WORD: u64 = 0x4000_0000_0000;

impl Rule {
    /// Returns the rule of a frame of another kind.
    #[must_use]
    pub const fn other(module: u32) -> Rule {
        Rule {
            up: 0,
            saved: NOT_SAVED,
            module,
        }
    }

    /// Returns the rule by which `unwind` unwinds frames at one address. `unwind` gets a stack
    /// pointer, a value of the frame pointer's register, and a function that reads a word of the
    /// stack. It returns the caller's registers.
    ///
    /// `unwind` must compute those in one of the three ways, or read elsewhere. An unwinder that
    /// does arithmetic (aligns the stack pointer, say) may give the answer of a rule, and act
    /// differently for other registers.
    pub fn ask(
        module: u32,
        unwind: impl FnOnce(u64, u64, fn(u64) -> u64) -> Option<Cursor>,
    ) -> Rule {
        let caller = unwind(ASKED_SP, ASKED_BP, |address| address | WORD);
        let rule = caller.and_then(|caller| Rule::rule_for_caller(module, caller));
        rule.unwrap_or(Rule::other(module))
    }

    /// Returns a rule by the stack pointer: the caller's is `up` bytes up. The caller's frame
    /// pointer is the word `saved` bytes up, or passed on. Returns `None` if there is no such rule.
    pub(crate) fn by_stack(module: u32, up: i32, saved: Option<i32>) -> Option<Rule> {
        let words = |bytes: i32| (bytes % 8 == 0).then_some(bytes / 8);
        let up = u16::try_from(words(up)?).ok().filter(|&up| up > 0)?;
        let saved = match saved {
            Some(saved) => i16::try_from(words(saved)?).ok()?,
            None => NOT_SAVED,
        };
        Some(Rule { up, saved, module })
    }

    /// Returns the rule of functions that keep a frame pointer.
    pub(crate) fn by_register(module: u32) -> Rule {
        let (up, saved) = (0, 0);
        Rule { up, saved, module }
    }

    fn rule_for_caller(module: u32, caller: Cursor) -> Option<Rule> {
        if caller.address != caller.sp.checked_sub(8)? | WORD {
            return None;
        }
        if caller.sp == ASKED_BP + 16 && caller.bp == ASKED_BP | WORD {
            let (up, saved) = (0, 0);
            return Some(Rule { up, saved, module });
        }
        let words_up = |address: u64| {
            let distance = address.wrapping_sub(ASKED_SP) as i64;
            (distance % 8 == 0).then_some(distance / 8)
        };
        let up = u16::try_from(words_up(caller.sp)?).ok()?;
        let saved = match caller.bp {
            ASKED_BP => NOT_SAVED,
            word if word & WORD != 0 => i16::try_from(words_up(word & !WORD)?).ok()?,
            _ => return None,
        };
        let is_one = up > 0 && (caller.bp == ASKED_BP || saved != NOT_SAVED);
        is_one.then_some(Rule { up, saved, module })
    }

    /// Returns the kind of the rule.
    #[inline(always)]
    #[must_use]
    pub fn kind(self) -> Kind {
        match (self.up, self.saved) {
            (0, NOT_SAVED) => Kind::Other,
            (0, _) => Kind::ByRegister,
            (_, NOT_SAVED) => Kind::PassesOn,
            _ => Kind::Restores,
        }
    }

    /// Returns the number of the frame's module plus one, or 0.
    #[inline(always)]
    #[must_use]
    pub fn module(self) -> u32 {
        self.module
    }

    /// Returns the distance from the stack pointer to the caller's, in bytes. It is undefined for
    /// [`Kind::ByRegister`].
    #[inline(always)]
    pub(crate) fn up(self) -> u64 {
        8 * u64::from(self.up)
    }

    /// Returns the distance from the stack pointer to the saved register, for [`Kind::Restores`]
    /// only.
    #[inline(always)]
    pub(crate) fn saved(self) -> i64 {
        8 * i64::from(self.saved)
    }
}

const BUCKET: usize = 4;

/// Rules of some addresses, each with its key; 0: empty.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Bucket([(u64, Rule); BUCKET]);

const EMPTY: Bucket = Bucket([(0, Rule::other(0)); BUCKET]);
const _: () = assert!(size_of::<Bucket>() == 64);

/// Return addresses have fewer bits.
const ADDRESS_BITS: u32 = 48;

/// See the module's text.
#[derive(Debug)]
pub struct Rules {
    /// Its length is a power of two.
    buckets: Vec<Bucket>,
    era: u32,
    displaced: u64,
}

impl Rules {
    /// Returns an empty table for at most `addresses` addresses, a power of two and at least four.
    #[must_use]
    pub fn with_room_for(addresses: usize) -> Rules {
        let buckets = (addresses / BUCKET).max(1).next_power_of_two();
        Rules {
            buckets: vec![EMPTY; buckets],
            era: 0,
            displaced: 0,
        }
    }

    /// Returns the number of addresses for which there is room.
    #[must_use]
    pub fn room(&self) -> usize {
        self.buckets.len() * BUCKET
    }

    /// Changes the era, because code may have changed: rules of other eras are not found. Returns
    /// true if the era was another one.
    #[inline]
    pub fn set_era(&mut self, era: u32) -> bool {
        let is_another = self.era != era;
        if is_another {
            self.change_era(era);
        }
        is_another
    }

    #[cold]
    fn change_era(&mut self, era: u32) {
        // Keys have the lower half of the era. (Clearing the table in each era would be work for
        // programs that load and unload all the time.)
        if self.era >> 16 != era >> 16 {
            self.buckets.fill(EMPTY);
        }
        self.era = era;
    }

    /// Returns the key of an address in the era, or `None` if it is no address of a program.
    #[inline(always)]
    fn key(&self, address: u64) -> Option<u64> {
        let is_one = address != 0 && address >> ADDRESS_BITS == 0;
        is_one.then_some(address | u64::from(self.era) << ADDRESS_BITS)
    }

    #[inline(always)]
    fn bucket(&self, address: u64) -> usize {
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        hash as usize & (self.buckets.len() - 1)
    }

    /// Returns the rule of a return address.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, address: u64) -> Option<Rule> {
        let key = self.key(address)?;
        let Bucket(entries) = &self.buckets[self.bucket(address)];
        let found = entries.iter().find(|entry| entry.0 == key);
        found.map(|&(_, rule)| rule)
    }

    /// Inserts the rule of an address, possibly in place of another one. 0 and numbers that are no
    /// addresses are not inserted.
    pub fn insert(&mut self, address: u64, rule: Rule) {
        let Some(key) = self.key(address) else {
            return;
        };
        let bucket = self.bucket(address);
        let Bucket(entries) = &mut self.buckets[bucket];
        let is_free =
            |&(old, _): &(u64, Rule)| old == 0 || old >> ADDRESS_BITS != key >> ADDRESS_BITS;
        let same = entries.iter().position(|entry| entry.0 == key);
        let place = same.or_else(|| entries.iter().position(is_free));
        let place = place.unwrap_or_else(|| {
            self.displaced += 1;
            self.displaced as usize % BUCKET
        });
        entries[place] = (key, rule);
    }

    /// Returns the number of rules that others displaced so far.
    #[must_use]
    pub fn displaced(&self) -> u64 {
        self.displaced
    }

    /// Moves all rules to `larger`, which has more room, and exchanges the two tables.
    pub fn move_to(&mut self, larger: &mut Rules) {
        larger.era = self.era;
        for &(key, rule) in self.buckets.iter().flat_map(|Bucket(entries)| entries) {
            let address = key & ((1 << ADDRESS_BITS) - 1);
            if larger.key(address) == Some(key) {
                larger.insert(address, rule);
            }
        }
        larger.displaced = self.displaced;
        std::mem::swap(self, larger);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::rng::Rng;
    use proptest::prelude::*;

    /// Unwinds like an unwinder, by the table in the module's text.
    fn unwound(
        up: Option<u64>,
        saved: Option<i64>,
        sp: u64,
        bp: u64,
        word: fn(u64) -> u64,
    ) -> Cursor {
        let (cfa, bp) = match (up, saved) {
            (None, _) => (bp + 16, word(bp)),
            (Some(up), None) => (sp + 8 * up, bp),
            (Some(up), Some(saved)) => (sp + 8 * up, word(sp.wrapping_add_signed(8 * saved))),
        };
        Cursor {
            address: word(cfa - 8),
            returns: true,
            sp: cfa,
            bp,
        }
    }

    proptest! {
        #[test]
        fn what_an_unwinder_does_is_found_out(up in 1..=65535u64, saved in prop::option::of(-32767..=32767i64)) {
            let rule = Rule::ask(7, |sp, bp, word| Some(unwound(Some(up), saved, sp, bp, word)));
            let kind = if saved.is_some() { Kind::Restores } else { Kind::PassesOn };
            prop_assert_eq!((rule.kind(), rule.up(), rule.module()), (kind, 8 * up, 7));
            if let Some(saved) = saved {
                prop_assert_eq!(rule.saved(), 8 * saved);
            }
        }
    }

    #[test]
    fn by_the_register() {
        let rule = Rule::ask(3, |sp, bp, word| Some(unwound(None, None, sp, bp, word)));
        assert_eq!((rule.kind(), rule.module()), (Kind::ByRegister, 3));
    }

    #[test]
    fn other_ways_are_none_of_the_three() {
        type Change = fn(&mut Cursor, fn(u64) -> u64);
        let change = |what: Change| {
            Rule::ask(1, |sp, bp, word| {
                let mut caller = unwound(Some(4), Some(2), sp, bp, word);
                what(&mut caller, word);
                Some(caller)
            })
        };
        assert_eq!(change(|_, _| ()).kind(), Kind::Restores);
        let others: [Change; 7] = [
            |caller, word| caller.address = word(caller.sp), // the return address is elsewhere
            |caller, word| {
                caller.sp = word(caller.sp); // a word has the frame's address
                caller.address = word(caller.sp - 8);
            },
            |caller, word| {
                caller.sp += 1;
                caller.address = word(caller.sp - 8);
            },
            |caller, word| {
                caller.sp -= 32; // it does not rise
                caller.address = word(caller.sp - 8);
            },
            |caller, _| caller.bp = caller.sp, // computed, not read
            |caller, _| caller.bp += 4,
            |caller, word| caller.bp = word(ASKED_SP + (1 << 20)),
        ];
        for other in others {
            assert_eq!(change(other), Rule::other(1));
        }
        assert_eq!(Rule::ask(1, |_, _, _| None), Rule::other(1));
        assert_eq!(Rule::other(1).kind(), Kind::Other);
    }

    fn numbered(module: u32) -> Rule {
        Rule {
            up: 1,
            saved: NOT_SAVED,
            module,
        }
    }

    #[test]
    fn finds_what_was_inserted_last() {
        let mut rules = Rules::with_room_for(16);
        assert_eq!(rules.get(0x1000), None);
        rules.insert(0x1000, numbered(1));
        rules.insert(0x1000, numbered(2));
        assert_eq!(rules.get(0x1000), Some(numbered(2)));
        assert_eq!((rules.get(0x1001), rules.displaced()), (None, 0));
    }

    #[test]
    fn what_is_no_address_has_no_rule() {
        let mut rules = Rules::with_room_for(16);
        for none in [0, 1 << 48, 0x1000 | 1 << 48, u64::MAX] {
            rules.insert(none, numbered(1));
            assert_eq!(rules.get(none), None);
        }
        assert_eq!(rules.get(0x1000), None);
    }

    #[test]
    fn another_era_knows_nothing() {
        let mut rules = Rules::with_room_for(16);
        for era in [1, 2, 0x1_0000, 0x1_0001, 0x2_0001, 0] {
            rules.set_era(era);
            assert_eq!(rules.get(0x1000), None, "era {era}");
            rules.insert(0x1000, numbered(era));
            assert_eq!(rules.get(0x1000), Some(numbered(era)));
        }
        assert_eq!(
            rules.displaced(),
            0,
            "rules of the past are in nobody's way"
        );
    }

    #[test]
    fn grows_with_its_rules() {
        let mut rng = Rng::new(1);
        let (count, room) = if cfg!(miri) { (100, 16) } else { (1000, 64) };
        let mut rules = Rules::with_room_for(room);
        rules.set_era(5);
        let addresses: Vec<u64> = (0..count).map(|_| 1 + rng.next_u64() % (1 << 47)).collect();
        let known = |rules: &Rules| {
            let known = addresses.iter().enumerate();
            let known =
                known.filter(|&(i, &address)| rules.get(address) == Some(numbered(i as u32)));
            known.count()
        };
        let insert = |rules: &mut Rules| {
            for (i, &address) in addresses.iter().enumerate() {
                rules.insert(address, numbered(i as u32));
            }
        };
        insert(&mut rules);
        assert_eq!(
            (known(&rules), rules.room()),
            (room, room),
            "all places are taken"
        );
        assert_eq!(rules.displaced() as usize, count - room);
        let mut larger = Rules::with_room_for(64 * room);
        rules.move_to(&mut larger);
        assert_eq!((known(&rules), rules.room()), (room, 64 * room));
        assert_eq!(larger.room(), room);
        insert(&mut rules);
        assert!(known(&rules) >= count - count / 200, "{}", known(&rules));
    }
}
