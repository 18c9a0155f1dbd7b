//! Assigns ids to strings by a hash-partitioned exchange.
//!
//! The hash of a string selects its owner rank. The owner determines which rank holds the string first in merge
//! order; that rank assigns the id and writes the text. Ranks exchange hashes and ids, never texts. Ids are ordered
//! by input and by id in the input, and do not depend on the number of ranks.
//!
//! A rank keeps each distinct string once, as a hash. When rows of an input are written, the ids of its strings are
//! looked up again by their texts. Memory is proportional to the distinct strings, not to the inputs.

use rpd_comm::{Comm, all_gather_counts};
use rpd_console::Failure;
use std::ops::Range;
use twox_hash::XxHash3_128;

/// A 128-bit hash identifies a string; collisions are not expected in practice.
pub(crate) type StringHash = u128;

/// Returns the hash of a string.
pub(crate) fn hash(text: &[u8]) -> StringHash {
    XxHash3_128::oneshot(text)
}

/// Distinct hashes, numbered in the order in which they are added. Each takes 16 bytes, and 5 to 11 bytes in the hash
/// table.
#[derive(Debug, Default)]
struct Numbered {
    hashes: Vec<StringHash>,
    /// Numbers plus one, at the slot that the hash selects or after it; 0 in an empty slot.
    slots: Vec<u32>,
}

impl Numbered {
    /// Returns the slot that contains this hash, or the empty slot for it.
    fn slot(&self, hash: StringHash) -> usize {
        let mask = self.slots.len() - 1;
        // The hash needs no further mixing. Its low half selects the owner rank, so the slot uses the high half.
        let mut slot = (hash >> 64) as usize & mask;
        while let Some(number) = self.slots[slot].checked_sub(1) {
            if self.hashes[number as usize] == hash {
                break;
            }
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn number(&self, hash: StringHash) -> Option<u32> {
        match self.slots.is_empty() {
            true => None,
            false => self.slots[self.slot(hash)].checked_sub(1),
        }
    }

    /// Returns the number of a hash, and whether it is new.
    fn add(&mut self, hash: StringHash) -> Result<(u32, bool), Failure> {
        let many = || Failure::input("the inputs have more than 4,294,967,294 different strings");
        let next = u32::try_from(self.hashes.len()).ok().filter(|next| *next < u32::MAX).ok_or_else(many)?;
        if self.hashes.len() * 4 >= self.slots.len() * 3 {
            self.grow();
        }
        let slot = self.slot(hash);
        if let Some(known) = self.slots[slot].checked_sub(1) {
            return Ok((known, false));
        }
        push(&mut self.hashes, hash);
        self.slots[slot] = next + 1;
        Ok((next, true))
    }

    /// Doubles the number of slots. Frees the old slots before it allocates new ones, to save memory.
    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(64);
        self.slots = Vec::new();
        self.slots = vec![0; slots];
        for i in 0..self.hashes.len() {
            let slot = self.slot(self.hashes[i]);
            self.slots[slot] = i as u32 + 1;
        }
    }
}

/// Appends to a long list, growing it by a quarter instead of doubling it.
fn push<T>(list: &mut Vec<T>, value: T) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / 4 + 64);
    }
    list.push(value);
}

/// First occurrence of a string of this rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FirstSeen {
    /// String table of this rank, in merge order.
    pub table: u32,
    /// Position among the strings of that table.
    pub index: u32,
}

/// Distinct strings of this rank, in the order of their first occurrence.
#[derive(Debug, Default)]
pub(crate) struct DistinctStrings {
    strings: Numbered,
    seen: Vec<FirstSeen>,
    /// Number of string tables added so far.
    tables: u32,
    /// Number of strings of all tables.
    all: u64,
}

impl DistinctStrings {
    /// Returns the number of distinct strings.
    pub(crate) fn len(&self) -> u64 {
        self.seen.len() as u64
    }

    /// Adds the strings of the next table: position in the table, and hash.
    pub(crate) fn add_table(
        &mut self,
        strings: impl Iterator<Item = (u32, StringHash)>,
    ) -> Result<(), Failure> {
        for (index, hash) in strings {
            self.all += 1;
            let (_, is_new) = self.strings.add(hash)?;
            if is_new {
                push(&mut self.seen, FirstSeen { table: self.tables, index });
            }
        }
        self.tables += 1;
        Ok(())
    }
}

/// Global ids of this rank's strings.
#[derive(Debug, Default)]
pub(crate) struct StringIds {
    strings: Numbered,
    /// Ids by number; `None` if there is one rank, where the id is the number plus one.
    ids: Option<Vec<i64>>,
    seen: Vec<FirstSeen>,
    /// Ids of the strings that this rank writes.
    own: Range<i64>,
    /// Number of distinct strings of the job.
    pub distinct: u64,
    /// Number of strings of all inputs before deduplication.
    pub before: u64,
}

impl StringIds {
    /// Returns the global id of a string of this rank.
    pub(crate) fn id(&self, hash: StringHash) -> Option<i64> {
        self.strings.number(hash).map(|number| self.id_of(number as usize))
    }

    fn id_of(&self, number: usize) -> i64 {
        self.ids.as_ref().map_or(number as i64 + 1, |ids| ids[number])
    }

    /// Returns the strings that this rank writes, ascending by global id and by first occurrence.
    pub(crate) fn written(&self) -> impl Iterator<Item = (i64, FirstSeen)> + '_ {
        let all = self.seen.iter().enumerate().map(|(number, seen)| (self.id_of(number), *seen));
        all.filter(|(id, _)| self.own.contains(id))
    }

    /// Returns whether this rank writes any string.
    pub(crate) fn writes_any(&self) -> bool {
        !self.own.is_empty()
    }
}

/// Assigns ids to the strings of all ranks.
pub(crate) fn number(comm: &impl Comm, own: DistinctStrings) -> Result<StringIds, Failure> {
    let ranks = comm.size();
    let DistinctStrings { mut strings, mut seen, all: own_strings, .. } = own;
    strings.hashes.shrink_to_fit();
    seen.shrink_to_fit();
    if ranks == 1 {
        let distinct = seen.len() as u64;
        let own = 1..distinct as i64 + 1;
        return Ok(StringIds { strings, ids: None, seen, own, distinct, before: own_strings });
    }

    // Each rank sends the hashes of its strings to their owners. Ranks hold the inputs in order, so the lowest rank
    // with a string holds it first.
    let owner = |hash: StringHash| (hash % ranks as u128) as usize;
    let mut counts = vec![0; ranks];
    strings.hashes.iter().for_each(|hash| counts[owner(*hash)] += 1);
    let mut claims: Vec<Vec<u8>> = counts.iter().map(|count| Vec::with_capacity(count * 16)).collect();
    let mut claimed: Vec<Vec<u32>> = counts.iter().map(|count| Vec::with_capacity(*count)).collect();
    for (number, hash) in (0u32..).zip(&strings.hashes) {
        claims[owner(*hash)].extend_from_slice(&hash.to_le_bytes());
        claimed[owner(*hash)].push(number);
    }
    let claims = comm.all_to_all(claims);
    let mut known = Numbered::default();
    let mut verdicts: Vec<Vec<u8>> = Vec::with_capacity(ranks);
    for claims in &claims {
        // The first rank that sends a string is its first holder.
        let first = |hash| Ok(u8::from(known.add(hash)?.1));
        verdicts.push(hashes_of(claims)?.map(first).collect::<Result<_, Failure>>()?);
    }
    let verdicts = comm.all_to_all(verdicts);
    let mut is_first = vec![false; seen.len()];
    for (claimed, verdicts) in claimed.iter().zip(&verdicts) {
        claimed.iter().zip(verdicts).for_each(|(i, verdict)| is_first[*i as usize] = *verdict == 1);
    }
    drop(verdicts);

    // First holders number their strings, one rank after the other.
    let mine = is_first.iter().filter(|f| **f).count() as u64;
    let all = all_gather_counts(comm, &[mine, own_strings])?;
    let base = all[..comm.rank()].iter().map(|s| s[0]).sum::<u64>() as i64;
    let mut ids = vec![0i64; seen.len()];
    let firsts = ids.iter_mut().zip(&is_first).filter(|(_, first)| **first);
    firsts.zip(base + 1..).for_each(|((id, _), next)| *id = next);

    // Owners receive the ids from the first holders and send them to all ranks that have the string.
    let encoded = |claimed: &Vec<u32>| {
        let mut bytes = Vec::with_capacity(claimed.len() * 8);
        claimed.iter().for_each(|i| bytes.extend_from_slice(&ids[*i as usize].to_le_bytes()));
        bytes
    };
    let assigned = comm.all_to_all(claimed.iter().map(encoded).collect());
    let mut id_of = vec![0i64; known.hashes.len()];
    for (claims, assigned) in claims.iter().zip(&assigned) {
        for (hash, id) in hashes_of(claims)?.zip(ids_of(assigned)).filter(|(_, id)| *id != 0) {
            if let Some(number) = known.number(hash) {
                id_of[number as usize] = id;
            }
        }
    }
    drop(assigned);
    let mut answers: Vec<Vec<u8>> = Vec::with_capacity(ranks);
    for claims in claims {
        let mut answer = Vec::with_capacity(claims.len() / 2);
        for hash in hashes_of(&claims)? {
            let id = known.number(hash).map_or(0, |number| id_of[number as usize]);
            answer.extend_from_slice(&id.to_le_bytes());
        }
        answers.push(answer);
    }
    drop((known, id_of));
    let answers = comm.all_to_all(answers);
    for (claimed, answers) in claimed.iter().zip(&answers) {
        claimed.iter().zip(ids_of(answers)).for_each(|(i, id)| ids[*i as usize] = id);
    }
    Ok(StringIds {
        strings,
        ids: Some(ids),
        seen,
        own: base + 1..base + 1 + mine as i64,
        distinct: all.iter().map(|s| s[0]).sum(),
        before: all.iter().map(|s| s[1]).sum(),
    })
}

fn hashes_of(bytes: &[u8]) -> Result<impl Iterator<Item = StringHash> + '_, Failure> {
    match bytes.as_chunks::<16>() {
        (hashes, []) => Ok(hashes.iter().map(|h| StringHash::from_le_bytes(*h))),
        _ => Err(Failure::damaged_message("half a hash")),
    }
}

fn ids_of(bytes: &[u8]) -> impl Iterator<Item = i64> + '_ {
    bytes.as_chunks::<8>().0.iter().map(|id| i64::from_le_bytes(*id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rpd_comm::threads;
    use std::collections::HashMap;

    /// Returns the global ids that a single rank with all strings would assign.
    fn naive(tables: &[Vec<String>]) -> HashMap<String, i64> {
        let mut ids = HashMap::new();
        for text in tables.iter().flatten() {
            let next = ids.len() as i64 + 1;
            ids.entry(text.clone()).or_insert(next);
        }
        ids
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn ids_do_not_depend_on_the_number_of_ranks(
            tables in proptest::collection::vec(proptest::collection::vec("[a-d]{1,2}", 0..12), 1..6),
            ranks in 1usize..5,
        ) {
            let wanted = naive(&tables);
            let piece = tables.len().div_ceil(ranks);
            let results = threads::run(ranks, |comm| {
                let low = (comm.rank() * piece).min(tables.len());
                let own = &tables[low..(low + piece).min(tables.len())];
                let mut distinct = DistinctStrings::default();
                for texts in own {
                    distinct.add_table((0..).zip(texts).map(|(i, t)| (i, hash(t.as_bytes())))).unwrap();
                }
                (own.to_vec(), number(comm, distinct).unwrap())
            });
            let mut written = Vec::new();
            for (own, ids) in &results {
                for text in own.iter().flatten() {
                    prop_assert_eq!(ids.id(hash(text.as_bytes())), Some(wanted[text]));
                }
                let text = |at: &FirstSeen| own[at.table as usize][at.index as usize].clone();
                written.extend(ids.written().map(|(id, at)| (id, text(&at))));
                prop_assert_eq!(ids.distinct, wanted.len() as u64);
            }
            prop_assert!(written.is_sorted());
            prop_assert_eq!(written.into_iter().map(|(id, t)| (t, id)).collect::<HashMap<_, _>>(), wanted);
        }
    }
}
