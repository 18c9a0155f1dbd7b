//! Recognises calls of collectives, which are connected across ranks.

use super::JobRows;
use super::unit_source::UnitSource;
use crate::item::{ArgValue, COLLECTIVE_BIT, TextId, TextTable};
use rpd_collectives::{CollectiveFunction, is_shared_communicator};
use rpd_console::Failure;
use rpd_run::RowUnit;
use rpd_shard::model::rocpd;
use std::borrow::Cow;
use std::collections::HashMap;
use twox_hash::XxHash3_64;

/// Recognises texts that are names of collectives.
#[derive(Debug)]
pub(super) struct CollectiveFlows {
    /// By the number of the text: `None` if it was not checked, otherwise the function if it is one.
    functions: Vec<Option<Option<CollectiveFunction>>>,
    communicator: TextId,
    seq: TextId,
    /// Name of the arg with the collective of a call that PyTorch recorded.
    collective: TextId,
    /// Number of earlier programs of this rank that made such calls.
    earlier: u32,
}

/// Categories of events that are calls of MPI or RCCL.
const CALL_CATEGORIES: [&str; 2] = ["MPI_API", "RCCL_API"];

/// Returns whether a unit has calls of MPI or RCCL.
fn has_calls(job: &JobRows, unit: &RowUnit) -> Result<bool, Failure> {
    let (tables, ids) = (&job.run.tables, unit.ids(rocpd::EVENT));
    let is_call = |id| job.run.strings.get(id).is_some_and(|name| CALL_CATEGORIES.contains(&name.as_ref()));
    let mut known: HashMap<i64, bool> = HashMap::new();
    for piece in tables.pieces_with(rocpd::EVENT, ids)? {
        let mut found = false;
        tables.read_pieces(rocpd::EVENT, &[piece], ids, &["category_id"], &mut |_, rows, mut places| {
            let categories = rows.column("category_id");
            let mut names_call = |id| *known.entry(id).or_insert_with(|| is_call(id));
            found |= places.any(|i| categories.int(i).is_some_and(&mut names_call));
            Ok(())
        })?;
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

impl CollectiveFlows {
    /// Returns the number of earlier units of the same rank with calls of MPI or RCCL; 0 without flows. If a rank
    /// runs several programs one after another, each has communicators with the same names.
    pub(super) fn count_earlier(source: &UnitSource<'_>) -> Result<u32, Failure> {
        let job = source.job;
        let of = |unit: &RowUnit| {
            let process = unit.processes.first().filter(|_| !unit.is_unclaimed);
            process.and_then(|place| job.run.processes.get(*place as usize)).map(|process| &process.info)
        };
        let own = of(source.unit).filter(|own| own.rank.is_some() && source.asked.flows);
        let Some(own) = own else { return Ok(0) };
        // Units are in the order of their ranks, so those of a rank are adjacent.
        let units = &job.run.units;
        let first = units.partition_point(|unit| of(unit).is_some_and(|other| other.order.0 < own.order.0));
        let of_rank =
            units[first..].iter().take_while(|unit| of(unit).is_some_and(|other| other.rank == own.rank));
        let before = |other: &&RowUnit| of(other).is_some_and(|other| other.id < own.id);
        let mut earlier = 0;
        for other in of_rank.filter(before) {
            earlier += u32::from(has_calls(job, other)?);
        }
        Ok(earlier)
    }

    pub(super) fn new(texts: &mut TextTable, earlier: u32) -> CollectiveFlows {
        let [communicator, seq, collective] = ["comm", "seq", "collective"].map(|name| texts.add(name));
        CollectiveFlows { functions: Vec::new(), communicator, seq, collective, earlier }
    }

    /// Returns the collective function of this name.
    #[inline]
    pub(super) fn function(&mut self, name: TextId, texts: &TextTable) -> Option<CollectiveFunction> {
        let place = name.0 as usize;
        if place >= self.functions.len() {
            self.functions.resize(place + 1, None);
        }
        let known = self.functions.get_mut(place)?;
        *known.get_or_insert_with(|| CollectiveFunction::named(texts.get(name).as_bytes()))
    }

    /// Returns the number that a call with these args has on all ranks. Returns `None` if its communicator or
    /// its number is not recorded, or if other ranks may use the communicator's name for another one.
    pub(super) fn number<'a>(
        &self,
        mut function: CollectiveFunction,
        args: impl Iterator<Item = (TextId, ArgValue<'a>)>,
        texts: &'a TextTable,
    ) -> Option<u64> {
        let text_of = |value: ArgValue<'a>| match value {
            ArgValue::Known(text) => Some(Cow::Borrowed(texts.get(text))),
            ArgValue::Text(text) => Some(Cow::Borrowed(text)),
            // PyTorch's process groups are called 0, 1 and so on.
            ArgValue::Int(number) => Some(Cow::Owned(number.to_string())),
            _ => None,
        };
        let (mut communicator, mut seq) = (None, None);
        for (name, value) in args {
            if name == self.communicator {
                communicator = text_of(value);
            } else if name == self.collective && function.is_by_args() {
                // PyTorch also records messages and waits in this way.
                function = CollectiveFunction::of_torch(&text_of(value)?)?;
            } else if name == self.seq {
                seq = match value {
                    ArgValue::Int(seq) => u64::try_from(seq).ok(),
                    ArgValue::Uint(seq) => Some(seq),
                    _ => None,
                };
            }
        }
        let communicator = communicator.filter(|name| !name.is_empty() && is_shared_communicator(name))?;
        let seq = seq.filter(|_| !function.is_by_args())?;
        let names = [communicator.as_bytes(), function.name().as_bytes()].map(XxHash3_64::oneshot);
        let mut bytes = [0; 28];
        bytes[..8].copy_from_slice(&names[0].to_le_bytes());
        bytes[8..16].copy_from_slice(&names[1].to_le_bytes());
        bytes[16..24].copy_from_slice(&seq.to_le_bytes());
        bytes[24..].copy_from_slice(&self.earlier.to_le_bytes());
        Some(XxHash3_64::oneshot(&bytes) | COLLECTIVE_BIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_one_collective_have_one_number() {
        let mut texts = TextTable::default();
        let mut collectives = CollectiveFlows::new(&mut texts, 0);
        let [reduce, reduce_c, bcast, send] =
            ["MPI_Allreduce", "MPI_Allreduce_c", "MPI_Bcast", "MPI_Send"].map(|name| texts.add(name));
        let (comm, seq) = (texts.add("comm"), texts.add("seq"));
        let mut of = |name, on: &str, number| {
            let function = collectives.function(name, &texts)?;
            let args = [(comm, ArgValue::Text(on)), (seq, ArgValue::Int(number))];
            collectives.number(function, args.into_iter(), &texts)
        };
        let one = of(reduce, "MPI_COMM_WORLD", 3).unwrap();
        assert_eq!(one >> 63, 1);
        assert_eq!(of(reduce_c, "MPI_COMM_WORLD", 3), Some(one));
        assert_ne!(of(reduce, "MPI_COMM_WORLD", 4), Some(one));
        assert_ne!(of(bcast, "MPI_COMM_WORLD", 3), Some(one));
        assert_ne!(of(reduce, "MPI_COMM_WORLD/1@0", 3), Some(one));
        assert_eq!(of(send, "MPI_COMM_WORLD", 3), None);
        for own in ["MPI_COMM_SELF", "comm-3", "nccl-local-1", ""] {
            assert_eq!(of(reduce, own, 3), None, "{own}");
        }
        assert_eq!(of(reduce, "MPI_COMM_WORLD", -1), None);
        collectives.earlier = 1;
        let args = [(comm, ArgValue::Text("MPI_COMM_WORLD")), (seq, ArgValue::Int(3))];
        let function = collectives.function(reduce, &texts).unwrap();
        assert_ne!(collectives.number(function, args.into_iter(), &texts), Some(one));
    }
}
