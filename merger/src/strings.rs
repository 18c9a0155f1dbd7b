//! Strings by hash-partitioned exchange.
//!
//! Every string is owned by the rank that its hash says. Owners learn who has it first in merge order
//! and tell; the first holder gives it its id and writes it, so that no text is sent at all. Ids are
//! ordered by (input, id in the input) and do not depend on the number of ranks.
//!
//! A rank keeps each distinct string once, as a hash: an input's own ids are looked up again by their
//! texts when its rows are written. Memory is that of the distinct strings, not of the inputs.

use rpd_comm::{Comm, gather_counts};
use rpd_console::Failure;
use std::ops::Range;
use twox_hash::XxHash3_128;

/// 128 bits stand for a string: two different ones with one hash are not expected in this universe.
pub(crate) type StringHash = u128;

/// Hash of a string.
pub(crate) fn hash(text: &[u8]) -> StringHash {
    XxHash3_128::oneshot(text)
}

/// Different hashes, numbered in the order in which they come: 16 bytes for each, and a table of 5 to 11.
#[derive(Debug, Default)]
struct Numbered {
    hashes: Vec<StringHash>,
    /// Numbers plus one, at the place that the hash says or behind it; 0 where there is none.
    slots: Vec<u32>,
}

impl Numbered {
    /// The slot where this hash is, or would be.
    fn slot(&self, hash: StringHash) -> usize {
        let mask = self.slots.len() - 1;
        // A hash is spread already; its low half says who owns it.
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

    /// The number of a hash, and whether it is new.
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

    /// Twice as many slots. The old ones are gone before there are new ones.
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

/// Adds to a long list that has no room for twice its length.
fn push<T>(list: &mut Vec<T>, value: T) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / 4 + 64);
    }
    list.push(value);
}

/// Where a string of this rank was first seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FirstSeen {
    /// String table of this rank, in merge order.
    pub table: u32,
    /// Place among the strings of that table.
    pub index: u32,
}

/// The distinct strings of this rank, in the order in which they are first seen.
#[derive(Debug, Default)]
pub(crate) struct DistinctStrings {
    strings: Numbered,
    seen: Vec<FirstSeen>,
    /// String tables so far.
    tables: u32,
    /// Strings of all tables.
    all: u64,
}

impl DistinctStrings {
    /// Number of distinct strings.
    pub(crate) fn len(&self) -> u64 {
        self.seen.len() as u64
    }

    /// Adds the strings of the next table: hash and place in it.
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
    /// By number; where there is one rank, the number plus one.
    ids: Option<Vec<i64>>,
    seen: Vec<FirstSeen>,
    /// Ids of the strings that this rank writes.
    own: Range<i64>,
    /// Distinct strings of the job.
    pub distinct: u64,
    /// Strings of all inputs before.
    pub before: u64,
}

impl StringIds {
    /// The global id of a string of this rank.
    pub(crate) fn id(&self, hash: StringHash) -> Option<i64> {
        self.strings.number(hash).map(|number| self.id_of(number as usize))
    }

    fn id_of(&self, number: usize) -> i64 {
        self.ids.as_ref().map_or(number as i64 + 1, |ids| ids[number])
    }

    /// The strings that this rank writes, ascending by global id and by where they were first seen.
    pub(crate) fn written(&self) -> impl Iterator<Item = (i64, FirstSeen)> + '_ {
        let all = self.seen.iter().enumerate().map(|(number, seen)| (self.id_of(number), *seen));
        all.filter(|(id, _)| self.own.contains(id))
    }

    /// Whether this rank writes any.
    pub(crate) fn writes_any(&self) -> bool {
        !self.own.is_empty()
    }
}

/// Numbers the strings of all ranks.
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

    // Claims go to the owners. Ranks hold the inputs in order, so the lowest rank is the first holder.
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
        // Who claims a string that nobody has claimed before is its first holder.
        let first = |hash| Ok(u8::from(known.add(hash)?.1));
        verdicts.push(hashes_of(claims)?.map(first).collect::<Result<_, Failure>>()?);
    }
    let verdicts = comm.all_to_all(verdicts);
    let mut is_first = vec![false; seen.len()];
    for (claimed, verdicts) in claimed.iter().zip(&verdicts) {
        claimed.iter().zip(verdicts).for_each(|(i, verdict)| is_first[*i as usize] = *verdict == 1);
    }
    drop(verdicts);

    // First holders number their strings, rank behind rank.
    let mine = is_first.iter().filter(|f| **f).count() as u64;
    let all = gather_counts(comm, &[mine, own_strings])?;
    let base = all[..comm.rank()].iter().map(|s| s[0]).sum::<u64>() as i64;
    let mut ids = vec![0i64; seen.len()];
    let firsts = ids.iter_mut().zip(&is_first).filter(|(_, first)| **first);
    firsts.zip(base + 1..).for_each(|((id, _), next)| *id = next);

    // Owners learn the ids from the first holders and pass them on to all who asked.
    let told = |claimed: &Vec<u32>| {
        let mut told = Vec::with_capacity(claimed.len() * 8);
        claimed.iter().for_each(|i| told.extend_from_slice(&ids[*i as usize].to_le_bytes()));
        told
    };
    let told = comm.all_to_all(claimed.iter().map(told).collect());
    let mut id_of = vec![0i64; known.hashes.len()];
    for (claims, told) in claims.iter().zip(&told) {
        for (hash, id) in hashes_of(claims)?.zip(ids_of(told)).filter(|(_, id)| *id != 0) {
            if let Some(number) = known.number(hash) {
                id_of[number as usize] = id;
            }
        }
    }
    drop(told);
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
        _ => Err(Failure::message("half a hash")),
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

    /// Global id of every string, as one rank that sees everything would give it.
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
