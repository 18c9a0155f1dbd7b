//! Strings by hash-partitioned exchange.
//!
//! Every string is owned by the rank that its hash says. Owners learn who has it first in merge order
//! and tell; the first holder gives it its id and writes it, so that no text is sent at all. Ids are
//! ordered by (input, id in the input) and do not depend on the number of ranks.
//!
//! A rank keeps each distinct string once, as a hash: an input's own ids are looked up again by their
//! texts when its rows are written. Memory is that of the distinct strings, not of the inputs.

use crate::comm::Comm;
use crate::failure::Failure;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use twox_hash::XxHash3_128;

/// 128 bits stand for a string: two different ones with one hash are not expected in this universe.
pub type Hash = u128;

/// Hash of a string.
pub fn hash(text: &[u8]) -> Hash {
    XxHash3_128::oneshot(text)
}

/// A hash is spread already: its low half is the place in a table.
#[derive(Default, Clone, Copy, Debug)]
pub struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.0 = self.0.rotate_left(8) ^ u64::from(*b));
    }
    fn write_u128(&mut self, hash: u128) {
        self.0 = (hash >> 64) as u64;
    }
}

type ByHash<T> = HashMap<Hash, T, BuildHasherDefault<Spread>>;

/// Where a string of this rank was first seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FirstSeen {
    /// String table of this rank, in merge order.
    pub table: u32,
    /// Place among the strings of that table.
    pub index: u32,
}

/// The distinct strings of this rank, in the order in which they are first seen.
#[derive(Debug, Default)]
pub struct Distinct {
    places: ByHash<u32>,
    hashes: Vec<Hash>,
    seen: Vec<FirstSeen>,
    /// String tables so far.
    tables: u32,
    /// Strings of all tables.
    all: u64,
}

impl Distinct {
    /// Number of distinct strings.
    pub fn len(&self) -> u64 {
        self.hashes.len() as u64
    }

    /// Whether there is no string.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Adds the strings of the next table: hash and place in it.
    pub fn add_table(&mut self, strings: impl Iterator<Item = (u32, Hash)>) -> Result<(), Failure> {
        for (index, hash) in strings {
            self.all += 1;
            let next = u32::try_from(self.hashes.len()).map_err(|_| {
                Failure::Input("the inputs have more than 4,294,967,295 different strings".into())
            })?;
            let place = *self.places.entry(hash).or_insert(next);
            if place == next {
                self.hashes.push(hash);
                self.seen.push(FirstSeen { table: self.tables, index });
            }
        }
        self.tables += 1;
        Ok(())
    }
}

/// Global ids of this rank's strings.
#[derive(Debug, Default)]
pub struct StringIds {
    places: ByHash<u32>,
    /// By place.
    ids: Vec<i64>,
    /// Strings that this rank writes, ascending by global id and by where they were first seen.
    pub written: Vec<(i64, FirstSeen)>,
    /// Distinct strings of the job.
    pub distinct: u64,
    /// Strings of all inputs before.
    pub before: u64,
}

impl StringIds {
    /// The global id of a string of this rank.
    pub fn id(&self, hash: Hash) -> Option<i64> {
        self.places.get(&hash).map(|place| self.ids[*place as usize])
    }
}

/// Numbers the strings of all ranks.
pub fn number(comm: &impl Comm, own: Distinct) -> Result<StringIds, Failure> {
    let ranks = comm.size();
    let Distinct { places, hashes, seen, all: own_strings, .. } = own;

    // Claims go to the owners. Ranks hold the inputs in order, so the lowest rank is the first holder.
    let owner = |hash: Hash| (hash % ranks as u128) as usize;
    let mut claims: Vec<Vec<u8>> = vec![Vec::new(); ranks];
    let mut claimed: Vec<Vec<u32>> = vec![Vec::new(); ranks];
    for (place, hash) in (0u32..).zip(&hashes) {
        claims[owner(*hash)].extend_from_slice(&hash.to_le_bytes());
        claimed[owner(*hash)].push(place);
    }
    drop(hashes);
    let claims = comm.all_to_all(claims);
    let mut holder: ByHash<u32> = ByHash::default();
    for (rank, claims) in (0u32..).zip(&claims) {
        for hash in hashes_of(claims)? {
            holder.entry(hash).or_insert(rank);
        }
    }
    let mut verdicts: Vec<Vec<u8>> = Vec::with_capacity(ranks);
    for (rank, claims) in (0u32..).zip(&claims) {
        verdicts.push(hashes_of(claims)?.map(|hash| u8::from(holder[&hash] == rank)).collect());
    }
    drop(holder);
    let verdicts = comm.all_to_all(verdicts);
    let mut is_first = vec![false; seen.len()];
    for (claimed, verdicts) in claimed.iter().zip(&verdicts) {
        claimed.iter().zip(verdicts).for_each(|(i, verdict)| is_first[*i as usize] = *verdict == 1);
    }

    // First holders number their strings, rank behind rank.
    let mine = is_first.iter().filter(|f| **f).count() as u64;
    let all = sums(comm, &[mine, own_strings])?;
    let base: u64 = all[..comm.rank()].iter().map(|s| s[0]).sum();
    let mut ids = vec![0i64; seen.len()];
    let firsts = ids.iter_mut().zip(&is_first).filter(|(_, first)| **first);
    firsts.zip(base as i64 + 1..).for_each(|((id, _), next)| *id = next);

    // Owners learn the ids from the first holders and pass them on to all who asked.
    let told =
        claimed.iter().map(|c| c.iter().flat_map(|i| ids[*i as usize].to_le_bytes()).collect()).collect();
    let told = comm.all_to_all(told);
    let mut id_of: ByHash<i64> = ByHash::default();
    for (claims, told) in claims.iter().zip(&told) {
        for (hash, id) in hashes_of(claims)?.zip(ids_of(told)).filter(|(_, id)| *id != 0) {
            id_of.insert(hash, id);
        }
    }
    let mut answers: Vec<Vec<u8>> = Vec::with_capacity(ranks);
    for claims in &claims {
        answers.push(hashes_of(claims)?.flat_map(|hash| id_of[&hash].to_le_bytes()).collect());
    }
    let answers = comm.all_to_all(answers);
    for (claimed, answers) in claimed.iter().zip(&answers) {
        claimed.iter().zip(ids_of(answers)).for_each(|(i, id)| ids[*i as usize] = id);
    }

    let written = seen.iter().zip(&is_first).zip(&ids).filter(|((_, first), _)| **first);
    Ok(StringIds {
        written: written.map(|((seen, _), id)| (*id, *seen)).collect(),
        places,
        ids,
        distinct: all.iter().map(|s| s[0]).sum(),
        before: all.iter().map(|s| s[1]).sum(),
    })
}

/// Every rank's numbers, by rank.
pub fn sums(comm: &impl Comm, mine: &[u64]) -> Result<Vec<Vec<u64>>, Failure> {
    let bytes = mine.iter().flat_map(|n| n.to_le_bytes()).collect();
    let all = comm.all_gather(bytes);
    let numbers = |b: &Vec<u8>| b.as_chunks::<8>().0.iter().map(|c| u64::from_le_bytes(*c)).collect();
    match all.iter().all(|b| b.len() == mine.len() * 8) {
        true => Ok(all.iter().map(numbers).collect()),
        false => Err(Failure::message("numbers of different length")),
    }
}

fn hashes_of(bytes: &[u8]) -> Result<impl Iterator<Item = Hash> + '_, Failure> {
    match bytes.as_chunks::<16>() {
        (hashes, []) => Ok(hashes.iter().map(|h| Hash::from_le_bytes(*h))),
        _ => Err(Failure::message("half a hash")),
    }
}

fn ids_of(bytes: &[u8]) -> impl Iterator<Item = i64> + '_ {
    bytes.as_chunks::<8>().0.iter().map(|id| i64::from_le_bytes(*id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::threads;
    use proptest::prelude::*;

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
                let mut distinct = Distinct::default();
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
                written.extend(ids.written.iter().map(|(id, at)| (*id, text(at))));
                prop_assert_eq!(ids.distinct, wanted.len() as u64);
            }
            prop_assert!(written.is_sorted());
            prop_assert_eq!(written.into_iter().map(|(id, t)| (t, id)).collect::<HashMap<_, _>>(), wanted);
        }
    }
}
