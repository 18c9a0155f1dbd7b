//! Strings by hash-partitioned exchange.
//!
//! Every string is owned by the rank that its hash says. Owners learn who has it first in merge order
//! and tell; the first holder gives it its id and writes it, so that no text is sent at all. Ids are
//! ordered by (shard, id in the shard) and do not depend on the number of ranks.

use crate::comm::Comm;
use crate::failure::Failure;
use std::collections::HashMap;
use twox_hash::XxHash3_128;

/// 128 bits stand for a string: two different ones with one hash are not expected in this universe.
type Hash = u128;

/// The strings of one shard, in the order of their ids, with holes where they are lost or not used.
pub type ShardHashes = Vec<Option<Hash>>;

/// Hash of a string.
pub fn hash(text: &[u8]) -> Hash {
    XxHash3_128::oneshot(text)
}

/// Global ids of this rank's strings.
#[derive(Debug, Default)]
pub struct StringIds {
    /// Per shard of this rank, per id in the shard (from 0): the global id, 0 where there is none.
    pub maps: Vec<Vec<i64>>,
    /// Strings that this rank writes, ascending by global id: id, shard of this rank, index.
    pub written: Vec<(i64, usize, usize)>,
    /// Distinct strings of the job.
    pub distinct: u64,
    /// Strings of all shards before.
    pub before: u64,
}

/// Numbers the strings of all ranks.
pub fn number(comm: &impl Comm, shards: &[&[Option<Hash>]]) -> Result<StringIds, Failure> {
    let ranks = comm.size();
    // Distinct strings of this rank by first occurrence.
    let mut first: HashMap<Hash, usize> = HashMap::new();
    let mut distinct: Vec<(Hash, usize, usize)> = Vec::new();
    for (shard, hashes) in shards.iter().enumerate() {
        for (index, hash) in hashes.iter().enumerate().filter_map(|(i, h)| Some((i, (*h)?))) {
            first.entry(hash).or_insert_with(|| {
                distinct.push((hash, shard, index));
                distinct.len() - 1
            });
        }
    }

    // Claims go to the owners. Ranks hold the shards in order, so the lowest rank is the first holder.
    let owner = |hash: Hash| (hash % ranks as u128) as usize;
    let mut claims: Vec<Vec<u8>> = vec![Vec::new(); ranks];
    let mut claimed: Vec<Vec<usize>> = vec![Vec::new(); ranks];
    for (i, (hash, _, _)) in distinct.iter().enumerate() {
        claims[owner(*hash)].extend_from_slice(&hash.to_le_bytes());
        claimed[owner(*hash)].push(i);
    }
    let claims = comm.all_to_all(claims);
    let mut holder: HashMap<Hash, usize> = HashMap::new();
    for (rank, claims) in claims.iter().enumerate() {
        for hash in hashes_of(claims)? {
            holder.entry(hash).or_insert(rank);
        }
    }
    let mut verdicts: Vec<Vec<u8>> = Vec::with_capacity(ranks);
    for (rank, claims) in claims.iter().enumerate() {
        verdicts.push(hashes_of(claims)?.map(|hash| u8::from(holder[&hash] == rank)).collect());
    }
    let verdicts = comm.all_to_all(verdicts);
    let mut is_first = vec![false; distinct.len()];
    for (claimed, verdicts) in claimed.iter().zip(&verdicts) {
        claimed.iter().zip(verdicts).for_each(|(i, verdict)| is_first[*i] = *verdict == 1);
    }

    // First holders number their strings, rank behind rank.
    let mine = is_first.iter().filter(|f| **f).count() as u64;
    let all = sums(comm, &[mine, shards.iter().flat_map(|hashes| *hashes).flatten().count() as u64])?;
    let base: u64 = all[..comm.rank()].iter().map(|s| s[0]).sum();
    let mut ids = vec![0i64; distinct.len()];
    let firsts = ids.iter_mut().zip(&is_first).filter(|(_, first)| **first);
    firsts.zip(base as i64 + 1..).for_each(|((id, _), next)| *id = next);

    // Owners learn the ids from the first holders and pass them on to all who asked.
    let told = claimed.iter().map(|c| c.iter().flat_map(|i| ids[*i].to_le_bytes()).collect()).collect();
    let told = comm.all_to_all(told);
    let mut id_of: HashMap<Hash, i64> = HashMap::new();
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
        claimed.iter().zip(ids_of(answers)).for_each(|(i, id)| ids[*i] = id);
    }

    let id = |hash: &Option<Hash>| hash.map_or(0, |h| ids[first[&h]]);
    let written = distinct.iter().zip(&is_first).zip(&ids);
    Ok(StringIds {
        maps: shards.iter().map(|hashes| hashes.iter().map(id).collect()).collect(),
        written: written
            .filter(|((_, first), _)| **first)
            .map(|(((_, s, i), _), id)| (*id, *s, *i))
            .collect(),
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
    fn naive(shards: &[Vec<String>]) -> HashMap<String, i64> {
        let mut ids = HashMap::new();
        for text in shards.iter().flatten() {
            let next = ids.len() as i64 + 1;
            ids.entry(text.clone()).or_insert(next);
        }
        ids
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn ids_do_not_depend_on_the_number_of_ranks(
            shards in proptest::collection::vec(proptest::collection::vec("[a-d]{1,2}", 0..12), 1..6),
            ranks in 1usize..5,
        ) {
            let wanted = naive(&shards);
            let piece = shards.len().div_ceil(ranks);
            let results = threads::run(ranks, |comm| {
                let low = (comm.rank() * piece).min(shards.len());
                let own = &shards[low..(low + piece).min(shards.len())];
                let hashes: Vec<ShardHashes> =
                    own.iter().map(|s| s.iter().map(|t| Some(hash(t.as_bytes()))).collect()).collect();
                let hashes: Vec<&[Option<Hash>]> = hashes.iter().map(Vec::as_slice).collect();
                let ids = number(comm, &hashes).unwrap();
                (own.to_vec(), ids)
            });
            let mut written = Vec::new();
            for (own, ids) in &results {
                for (texts, map) in own.iter().zip(&ids.maps) {
                    for (text, id) in texts.iter().zip(map) {
                        prop_assert_eq!(*id, wanted[text]);
                    }
                }
                written.extend(ids.written.iter().map(|(id, shard, index)| (*id, own[*shard][*index].clone())));
                prop_assert_eq!(ids.distinct, wanted.len() as u64);
            }
            prop_assert!(written.is_sorted());
            prop_assert_eq!(written.into_iter().map(|(id, t)| (t, id)).collect::<HashMap<_, _>>(), wanted);
        }
    }
}
