//! Whether calls without numbers are the same in all processes: only then the n-th of one is the n-th of
//! the others.

use super::agree::Members;
use super::gather::Said;
use super::regions::Spec;
use crate::comm::Comm;
use crate::failure::Failure;
use rpd_shard::record::wire;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Differences that are told.
const SHOWN: usize = 5;

/// A sequence of one process, in short.
#[derive(Clone, Serialize, Deserialize)]
struct Brief {
    participant: u32,
    place: u32,
    comm: u64,
    len: u64,
    digest: u64,
}

/// What is not the same.
#[derive(Debug, Default)]
pub(super) struct Differences {
    /// Communicators whose calls cannot be compared.
    pub(super) comms: BTreeSet<u64>,
    /// Calls on them, of all processes.
    pub(super) calls: u64,
    /// A line for each of the first ones.
    pub(super) lines: Vec<String>,
    /// All communicators that are known by the order of calls alone.
    pub(super) by_order: BTreeSet<u64>,
}

/// Compares the sequences of all processes, which have the same communicator if they used it as the same
/// how-manieth one.
pub(super) fn compare(comm: &impl Comm, members: &Members, said: &[Said]) -> Result<Differences, Failure> {
    let mut mine = Vec::new();
    for (participant, said) in (members.first..).zip(said) {
        mine.extend(said.sequences.iter().map(|s| Brief {
            participant,
            place: s.place,
            comm: s.comm,
            len: s.len,
            digest: s.digest,
        }));
    }
    let mut by_place: BTreeMap<u32, Vec<Brief>> = BTreeMap::new();
    for message in comm.all_gather(wire::encode(&mine)) {
        let theirs: Vec<Brief> = wire::decode_message(&message).map_err(Failure::message)?;
        theirs.into_iter().for_each(|brief| by_place.entry(brief.place).or_default().push(brief));
    }
    let mut differences = Differences::default();
    let mut pairs = Vec::new();
    for briefs in by_place.values() {
        differences.by_order.extend(briefs.iter().map(|brief| brief.comm));
        let Some((first, others)) = briefs.split_first() else { continue };
        let Some(other) = others.iter().find(|o| (o.digest, o.len) != (first.digest, first.len)) else {
            continue;
        };
        differences.comms.extend(briefs.iter().map(|brief| brief.comm));
        differences.calls += briefs.iter().map(|b| b.len).sum::<u64>();
        if pairs.len() < SHOWN {
            pairs.push((first.clone(), other.clone()));
        }
    }

    // Those of which a difference is told show their calls.
    let asked: BTreeSet<(u32, u32)> =
        pairs.iter().flat_map(|(a, b)| [(a.participant, a.place), (b.participant, b.place)]).collect();
    let mut mine: Vec<(u32, u32, Vec<Spec>)> = Vec::new();
    for (participant, said) in (members.first..).zip(said) {
        let shown = said.sequences.iter().filter(|s| asked.contains(&(participant, s.place)));
        mine.extend(shown.map(|s| (participant, s.place, s.specs.clone())));
    }
    let mut specs: BTreeMap<(u32, u32), Vec<Spec>> = BTreeMap::new();
    for message in comm.all_gather(wire::encode(&mine)) {
        let theirs: Vec<(u32, u32, Vec<Spec>)> = wire::decode_message(&message).map_err(Failure::message)?;
        specs.extend(theirs.into_iter().map(|(participant, place, specs)| ((participant, place), specs)));
    }
    let none = Vec::new();
    let specs_of = |b: &Brief| specs.get(&(b.participant, b.place)).unwrap_or(&none);
    let line = |(a, b): &(Brief, Brief)| {
        let names = (members.name(a.participant), members.name(b.participant));
        difference((&names.0, a.len, specs_of(a)), (&names.1, b.len, specs_of(b)))
    };
    differences.lines = pairs.iter().map(line).collect();
    Ok(differences)
}

/// Where two processes first did not call the same: name, number of calls, the first calls.
fn difference(a: (&str, u64, &[Spec]), b: (&str, u64, &[Spec])) -> String {
    let ((a, a_len, a_specs), (b, b_len, b_specs)) = (a, b);
    let place = a_specs.iter().zip(b_specs).position(|(x, y)| x != y);
    match place.and_then(|i| Some((i + 1, a_specs.get(i)?, b_specs.get(i)?))) {
        Some((n, x, y)) if x.words() == y.words() => {
            format!("{b}'s collective {n}, {}, has another datatype than {a}'s", y.words())
        }
        Some((n, x, y)) => format!("{b}'s collective {n} is {}, {a}'s is {}", y.words(), x.words()),
        None if a_len != b_len => format!("{b} has {b_len} collectives, {a} has {a_len}"),
        None => format!("{a}'s and {b}'s collectives differ behind the {}th", a_specs.len()),
    }
}
