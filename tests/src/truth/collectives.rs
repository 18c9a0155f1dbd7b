use super::simulation::NEVER;
use rpd_graph::CollectiveWaits;
use std::collections::HashMap;

/// A member that has entered: rank of the job, its request, time of the entry, ns.
type Arrival = (u32, usize, i64);

/// A member of a complete collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CompletedMember {
    pub(super) rank: u32,
    pub(super) request: usize,
    pub(super) at_ns: i64,
    /// Entry of the last member that it depends on, ns.
    pub(super) late_ns: i64,
}

/// Collectives that not all members have entered.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenCollectives(HashMap<(u32, u32), OpenCollective>);

#[derive(Clone, Debug, Default)]
struct OpenCollective {
    arrived: usize,
    /// Time of the last entry, ns.
    latest_ns: i64,
    /// Time at which the root entered, ns.
    root_ns: Option<i64>,
    /// Members that are not complete, with their place in the communicator.
    pending: Vec<(u32, Arrival)>,
    /// Entries of a collective in which members wait for lower ones.
    entries: Vec<(u32, i64)>,
}

impl OpenCollectives {
    /// Adds a member at a place of a communicator of this size. Returns the members that are complete by that.
    pub(super) fn arrive(
        &mut self,
        key: (u32, u32),
        (waits, root): (CollectiveWaits, Option<u32>),
        size: usize,
        place: u32,
        arrival: Arrival,
        cost_ns: i64,
    ) -> Vec<CompletedMember> {
        let (rank, request, enter) = arrival;
        let open = self.0.entry(key).or_default();
        open.arrived += 1;
        open.latest_ns = if open.arrived == 1 { enter } else { open.latest_ns.max(enter) };
        open.pending.push((place, arrival));
        let is_full = open.arrived == size;
        let is_root = root == Some(place);
        let mut done = Vec::new();
        match waits {
            CollectiveWaits::ForAll | CollectiveWaits::Unknown if is_full => {
                let late_ns = if waits == CollectiveWaits::ForAll { open.latest_ns } else { NEVER };
                let at_ns = open.latest_ns + cost_ns;
                done.extend(open.pending.drain(..).map(|(_, (rank, request, _))| CompletedMember {
                    rank,
                    request,
                    at_ns,
                    late_ns,
                }));
            }
            CollectiveWaits::ForAll | CollectiveWaits::Unknown => {}
            CollectiveWaits::ForRoot => {
                if is_root {
                    open.root_ns = Some(enter);
                }
                if let Some(root_ns) = open.root_ns {
                    done.extend(open.pending.drain(..).map(|(_, (rank, request, enter))| CompletedMember {
                        rank,
                        request,
                        at_ns: enter.max(root_ns) + cost_ns,
                        late_ns: root_ns,
                    }));
                }
            }
            CollectiveWaits::RootForAll => {
                if !is_root {
                    open.pending.pop();
                    done.push(CompletedMember { rank, request, at_ns: enter + cost_ns, late_ns: NEVER });
                }
                if is_full {
                    let (at_ns, late_ns) = (open.latest_ns + cost_ns, open.latest_ns);
                    done.extend(open.pending.drain(..).map(|(_, (rank, request, _))| CompletedMember {
                        rank,
                        request,
                        at_ns,
                        late_ns,
                    }));
                }
            }
            CollectiveWaits::ForLower => {
                open.entries.push((place, enter));
                let entries = &open.entries;
                open.pending.retain(|(place, (rank, request, enter))| {
                    let lower = entries.iter().filter(|(other, _)| other < place);
                    let is_complete = lower.clone().count() == *place as usize;
                    if is_complete {
                        let late_ns = lower.map(|(_, at)| *at).max().unwrap_or(NEVER);
                        let at_ns = (*enter).max(late_ns) + cost_ns;
                        let (rank, request) = (*rank, *request);
                        done.push(CompletedMember { rank, request, at_ns, late_ns });
                    }
                    !is_complete
                });
            }
        }
        if is_full {
            self.0.remove(&key);
        }
        done
    }
}
