//! Persistent operations: the call that starts one has neither communicator nor peer; those are of the call that
//! created its request.

use crate::call_values::NO_COMMUNICATOR;
use crate::functions::FunctionKind;
use crate::operations::ProcessOperations;
use crate::region_names::RegionNames;
use crate::thread_calls::ThreadTimeline;
use crate::unit_rows::{CallRow, SampleRow};
use rpd_graph::{BegunOperation, MessageEnd, MessageRole};
use std::collections::{HashMap, HashSet};

impl ProcessOperations {
    /// Adds the messages of persistent operations to the calls that start them. The completion of an operation names
    /// both calls, so an operation that never completed stays unknown.
    pub(crate) fn begin_persistent<'a>(
        &mut self,
        requests: impl Iterator<Item = &'a SampleRow>,
        calls: impl Iterator<Item = &'a CallRow>,
        names: &RegionNames,
        timelines: &mut [ThreadTimeline],
    ) {
        if self.starts.is_empty() {
            return;
        }
        let role_of = |call: &CallRow| match names.kind(call.function) {
            FunctionKind::Prepare(role) if call.values.communicator != NO_COMMUNICATOR => Some(role),
            _ => None,
        };
        let creations: HashMap<i64, (MessageRole, &CallRow)> =
            calls.filter_map(|call| Some((call.stack, (role_of(call)?, call)))).collect();
        let mut known: HashSet<i64> = HashSet::new();
        // The ends of each thread with their old places; new ones follow.
        let mut added: Vec<Vec<MessageEnd>> = timelines.iter().map(|_| Vec::new()).collect();
        for sample in requests {
            let operation = creations
                .get(&sample.values.other_stack)
                .zip(self.starts.get(&sample.stack))
                .map(|((role, creation), (thread, call))| {
                    known.insert(sample.stack);
                    let values = &creation.values;
                    let lists = &mut added[*thread as usize];
                    let old = timelines[*thread as usize].operations.message_ends.len();
                    lists.push(MessageEnd {
                        call: *call,
                        communicator: values.communicator,
                        peer: values.peer,
                        tag: values.tag,
                        bytes: values.bytes,
                        role: *role,
                        is_blocking: false,
                    });
                    (*thread, BegunOperation::Message((old + lists.len() - 1) as u32))
                });
            self.persistent.push(operation);
        }
        self.notes.unknown_starts = self.starts.keys().filter(|stack| !known.contains(stack)).count() as u64;
        let places: Vec<Vec<u32>> = timelines
            .iter_mut()
            .zip(added)
            .map(|(timeline, added)| insert_by_call(&mut timeline.operations.message_ends, added))
            .collect();
        let operations = self.begun.values_mut().chain(self.persistent.iter_mut().flatten());
        for (thread, operation) in operations {
            if let BegunOperation::Message(end) = operation
                && let Some(place) = places.get(*thread as usize).and_then(|places| places.get(*end as usize))
            {
                *end = *place;
            }
        }
    }
}

/// Adds ends to others that are in the order of calls, and keeps that order. Returns the new place of each.
fn insert_by_call(ends: &mut Vec<MessageEnd>, added: Vec<MessageEnd>) -> Vec<u32> {
    if added.is_empty() {
        return Vec::new();
    }
    ends.extend(added);
    let mut order: Vec<u32> = (0..ends.len() as u32).collect();
    order.sort_by_key(|place| ends[*place as usize].call);
    let mut places = vec![0; ends.len()];
    for (new, old) in (0u32..).zip(&order) {
        places[*old as usize] = new;
    }
    *ends = order.iter().map(|old| ends[*old as usize]).collect();
    places
}
