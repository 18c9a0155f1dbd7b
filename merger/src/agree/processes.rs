//! Ids of the job's processes, and whether AMD's tools can distinguish them.

use super::process_places::{ProcessPlace, own_processes, process_ids};
use crate::input::survey::InputSurvey;
use rpd_comm::{Comm, all_gather_values};
use rpd_console::Failure;
use std::collections::HashSet;

/// For each source of a merge rank, the ids of its processes by their numbers.
pub(crate) type IdsBySource = Vec<Box<[i64]>>;

/// Properties of all processes of the job; the same on all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobProcesses {
    /// Number of processes besides the collectors.
    pub recorded: usize,
    /// Whether each of these is the only one in its id space and the only one with its process id.
    pub are_apart: bool,
}

/// Returns, for each source of this rank in merge order, the ids of its processes by their numbers. Also returns the
/// properties of all processes.
pub(crate) fn number(
    comm: &impl Comm,
    surveys: &[InputSurvey],
) -> Result<(IdsBySource, JobProcesses), Failure> {
    let sources = surveys.iter().flat_map(|survey| survey.sources.iter().map(move |source| (survey, source)));
    let own: Vec<Vec<ProcessPlace>> =
        sources.map(|(survey, source)| own_processes(&survey.input, source)).collect();
    let by_rank = all_gather_values(comm, &own)?;
    let before = by_rank[..comm.rank()].iter().flatten().map(Vec::len).sum();
    let all = by_rank.concat();
    let mut ids = process_ids(&all.concat()).into_iter().skip(before);
    let ids = own.iter().map(|places| ids.by_ref().take(places.len()).collect()).collect();
    Ok((ids, JobProcesses::of(&all)))
}

impl JobProcesses {
    /// Derives the properties from the processes of each source.
    fn of(sources: &[Vec<ProcessPlace>]) -> JobProcesses {
        let recorded = |places: &[ProcessPlace]| places.iter().filter(|place| !place.is_collector).count();
        let mut pids = HashSet::new();
        let mut all = sources.iter().flatten().filter(|place| !place.is_collector);
        JobProcesses {
            recorded: sources.iter().map(|places| recorded(places)).sum(),
            are_apart: sources.iter().all(|places| recorded(places) <= 1)
                && all.all(|place| pids.insert(place.pid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(pid: i64) -> ProcessPlace {
        ProcessPlace { pid, ..ProcessPlace::default() }
    }

    #[test]
    fn processes_are_apart_if_each_has_its_own_id_space_and_pid() {
        let collector = ProcessPlace { is_collector: true, ..place(7) };
        let of = JobProcesses::of;
        assert_eq!(
            of(&[vec![place(7)], vec![place(8), collector]]),
            JobProcesses { recorded: 2, are_apart: true }
        );
        assert!(!of(&[vec![place(7)], vec![place(7)]]).are_apart);
        assert!(!of(&[vec![place(7), place(8)]]).are_apart);
        assert_eq!(of(&[]), JobProcesses { recorded: 0, are_apart: true });
    }
}
