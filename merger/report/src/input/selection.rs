//! The part of a run that is reported.

use rpd_run::RunProcess;
use std::collections::HashMap;

/// Selected processes and times.
#[derive(Debug)]
pub(crate) struct Selection {
    /// For each process of the run, whether it is selected.
    processes: Vec<bool>,
    /// First time, ns in job time, and first time after the window.
    from: Option<i64>,
    to: Option<i64>,
    /// Name of the ranges within which rows start.
    pub(crate) step: Option<String>,
}

impl Selection {
    /// Selects processes of the hosts `nodes` among those with selected ranks, and the times of a window.
    pub(crate) fn new(
        processes: &[RunProcess],
        nodes: Option<&[String]>,
        (from, to): (Option<i64>, Option<i64>),
        step: Option<&str>,
    ) -> Selection {
        let is_of_nodes = |process: &RunProcess| nodes.is_none_or(|nodes| nodes.contains(&process.info.host));
        let is_selected = |process: &RunProcess| process.is_selected && is_of_nodes(process);
        let processes = processes.iter().map(is_selected).collect();
        Selection { processes, from, to, step: step.map(str::to_owned) }
    }

    /// Returns whether no process is selected although the run has some.
    pub(crate) fn is_empty(&self) -> bool {
        !self.processes.is_empty() && !self.processes.contains(&true)
    }

    /// Returns whether the process at a place is selected.
    #[inline]
    pub(crate) fn contains(&self, process: u32) -> bool {
        self.processes.get(process as usize).copied().unwrap_or(false)
    }

    /// Returns whether it leaves out a process.
    pub(crate) fn is_restricted(&self) -> bool {
        self.processes.contains(&false)
    }

    /// Returns whether a row that starts at this time is in the window.
    #[inline]
    pub(crate) fn contains_time(&self, start: i64) -> bool {
        self.from.is_none_or(|from| from <= start) && self.to.is_none_or(|to| start < to)
    }

    /// Returns the window, ns in job time: its first time and the first time after it. `None` selects all.
    pub(crate) fn window_ns(&self) -> Option<(i64, i64)> {
        let is_limited = self.from.is_some() || self.to.is_some();
        is_limited.then_some((self.from.unwrap_or(i64::MIN), self.to.unwrap_or(i64::MAX)))
    }

    /// Returns whether a range marks a step: it has the name of `--step`, with or without a number after it.
    pub(crate) fn is_step(&self, name: &str) -> bool {
        let Some(after) = self.step.as_deref().and_then(|step| name.strip_prefix(step)) else { return false };
        let number = after.trim_start_matches([' ', '#', '=', ':', '_', '-']);
        after.is_empty() || (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

/// Division of processes into ranks or nodes.
#[derive(Debug)]
pub(crate) struct ProcessGroups {
    /// The group of each process.
    of_process: Vec<u32>,
    /// The group of rows without a known process. It has no [`ProcessGroup`], unless all processes are one group.
    of_unknown: u32,
    /// The groups, in the order in which they are reported.
    pub(crate) groups: Vec<ProcessGroup>,
}

/// Processes of a rank, or of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ProcessGroup {
    /// The rank; `None` for nodes and for a process without a rank.
    pub(crate) rank: Option<u32>,
    pub(crate) host: String,
    /// Name of its first process.
    pub(crate) name: String,
    /// Place of its first process.
    pub(crate) first: u32,
}

impl ProcessGroups {
    /// Puts all processes into one group.
    pub(crate) fn whole_run(processes: &[RunProcess]) -> ProcessGroups {
        ProcessGroups { of_unknown: 0, ..ProcessGroups::by(processes, |_, _| (0, 0, "")) }
    }

    /// Groups processes by rank. A process without a rank is a group of its own.
    pub(crate) fn by_rank(processes: &[RunProcess]) -> ProcessGroups {
        let alone = |place: usize| place as u64 + 1;
        ProcessGroups::by(processes, |place, process| match process.info.rank {
            Some(rank) => (u64::from(rank), 0, ""),
            None => (u64::MAX, alone(place), ""),
        })
    }

    /// Groups processes by host name.
    pub(crate) fn by_node(processes: &[RunProcess]) -> ProcessGroups {
        let mut groups = ProcessGroups::by(processes, |_, process| (0, 0, process.info.host.as_str()));
        groups.groups.iter_mut().for_each(|group| group.rank = None);
        groups
    }

    fn by<'p>(
        processes: &'p [RunProcess],
        key: impl Fn(usize, &'p RunProcess) -> (u64, u64, &'p str),
    ) -> ProcessGroups {
        let keys: Vec<_> = processes.iter().enumerate().map(|(place, process)| key(place, process)).collect();
        let mut sorted: Vec<_> = keys.iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        let numbers: HashMap<_, _> =
            sorted.iter().enumerate().map(|(number, key)| (**key, number as u32)).collect();
        let of_process: Vec<u32> = keys.iter().map(|key| numbers.get(key).copied().unwrap_or(0)).collect();
        let mut groups: Vec<Option<ProcessGroup>> = vec![None; sorted.len()];
        // The main process of a rank precedes its workers.
        let mut order: Vec<usize> = (0..processes.len()).collect();
        order.sort_by_key(|place| processes.get(*place).map(|process| process.info.order));
        for place in order {
            let (Some(process), Some(number)) = (processes.get(place), of_process.get(place)) else {
                continue;
            };
            if let Some(group @ None) = groups.get_mut(*number as usize) {
                let info = &process.info;
                let (host, name) = (info.host.clone(), info.name.clone());
                *group = Some(ProcessGroup { rank: info.rank, host, name, first: place as u32 });
            }
        }
        ProcessGroups { of_process, of_unknown: u32::MAX, groups: groups.into_iter().flatten().collect() }
    }

    /// Returns the group of a process.
    #[inline]
    pub(crate) fn of(&self, process: u32) -> u32 {
        self.of_process.get(process as usize).copied().unwrap_or(self.of_unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_may_have_a_number() {
        let selection = Selection::new(&[], None, (None, None), Some("step"));
        for name in ["step", "step 17", "step#17", "step=1", "step17", "step_3"] {
            assert!(selection.is_step(name), "{name}");
        }
        for name in ["stepping", "step a", "step ", "my step", "step 1 of 2"] {
            assert!(!selection.is_step(name), "{name}");
        }
        assert!(!Selection::new(&[], None, (None, None), None).is_step("step"));
    }
}
