//! The CPUs that the collector process runs on.
//!
//! The collector process changes its own affinity before it starts a second thread. The traced program keeps
//! its affinity.

use super::process;
use rpd_configs::SettingOrigin;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::iter;
use std::str::FromStr;

/// Name of the option.
pub(crate) const OPTION: &str = "collector-cpus";

/// CPU numbers, written as `0,4-7`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CpuList(BTreeSet<usize>);

/// The CPUs that the user wants for the collector.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CollectorCpus {
    /// CPUs that the job may use and that no known rank of this node is bound to.
    Auto,
    /// These CPUs.
    List(CpuList),
}

/// A list without any CPU that the job may use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the job may run on none of the CPUs {asked}; it may run on {allowed}")]
pub(crate) struct NotAllowedError {
    asked: CpuList,
    allowed: CpuList,
}

/// Result of the option.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CpuPlacement {
    /// The CPUs; `None` for those of the command.
    pub cpus: Option<CpuList>,
    /// A line for the log: a warning or a note.
    pub line: Option<String>,
}

/// The CPUs of this node as this process sees them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NodeCpus {
    /// CPUs that the job may use, whatever its ranks are bound to.
    allowed: CpuList,
    /// CPUs of this rank.
    own: CpuList,
    /// Other processes of the launcher that are bound to CPUs.
    siblings: Vec<BoundSibling>,
}

/// A process of the launcher that may run on some of the job's CPUs only.
#[derive(Clone, PartialEq, Eq, Debug)]
struct BoundSibling {
    cpus: CpuList,
    /// It is a rank under rpd-collect.
    is_rank: bool,
}

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<CpuList, String> {
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',') {
            cpus.extend(numbers(part.trim()).ok_or_else(|| {
                format!(
                    "CPUs are a list as 0,4-7 of numbers below {}, or auto, not {text:?}",
                    CpuSet::MAX_CPU
                )
            })?);
        }
        Ok(CpuList(cpus))
    }
}

/// Parses `3`, `4-7`, or a range with a step: `0-14:2`.
fn numbers(part: &str) -> Option<impl Iterator<Item = usize>> {
    let (range, step) = part.split_once(':').map_or((part, Some(1)), |(range, step)| (range, number(step)));
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last, step) = (number(first)?, number(last)?, step?);
    (first <= last && last < CpuSet::MAX_CPU && step > 0).then(|| (first..=last).step_by(step))
}

fn number(text: &str) -> Option<usize> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut between, mut rest) = ("", self.0.iter().copied().peekable());
        while let Some(first) = rest.next() {
            let mut last = first;
            while rest.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            match last - first {
                0 => write!(f, "{between}{first}")?,
                _ => write!(f, "{between}{first}-{last}")?,
            }
            between = ",";
        }
        Ok(())
    }
}

impl CpuList {
    /// Reads a set of the system.
    fn of(set: &CpuSet) -> CpuList {
        CpuList((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
    }

    /// Binds the calling thread, and the threads that it starts, to these CPUs.
    ///
    /// # Errors
    /// If the system refuses, for example because the job may use none of them.
    pub fn apply(&self) -> io::Result<()> {
        let mut set = CpuSet::new();
        self.0.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
        Ok(sched_setaffinity(None, &set)?)
    }

    fn without(&self, others: &CpuList) -> CpuList {
        CpuList(self.0.difference(&others.0).copied().collect())
    }
}

impl FromStr for CollectorCpus {
    type Err = String;

    fn from_str(text: &str) -> Result<CollectorCpus, String> {
        match text.trim() {
            "auto" => Ok(CollectorCpus::Auto),
            list => list.parse().map(CollectorCpus::List),
        }
    }
}

impl NodeCpus {
    /// Reads the CPUs of this process. `None` if the system does not provide them, for example on a node with
    /// more CPUs than a set can hold.
    pub(crate) fn of_this_process() -> Option<NodeCpus> {
        let own = CpuList::of(&sched_getaffinity(None).ok()?);
        let allowed = allowed()?;
        let siblings = bound_siblings(&allowed);
        Some(NodeCpus { allowed, own, siblings })
    }

    /// Chooses the CPUs of the collector.
    ///
    /// # Errors
    /// If the job may use no CPU of the list.
    pub(crate) fn place(&self, wanted: &CollectorCpus) -> Result<CpuPlacement, NotAllowedError> {
        match wanted {
            CollectorCpus::Auto => Ok(self.beside()),
            CollectorCpus::List(list) => self.on(list),
        }
    }

    fn beside(&self) -> CpuPlacement {
        let free = self.allowed.without(&self.own);
        let free = self.siblings.iter().fold(free, |free, sibling| free.without(&sibling.cpus));
        if !free.0.is_empty() {
            return CpuPlacement { cpus: Some(free), line: None };
        }
        let line = format!(
            "note: --{OPTION} auto changes nothing: of the CPUs {} that the job may run on, none is free of \
             ranks; the collector runs where the command does",
            self.allowed
        );
        CpuPlacement { cpus: None, line: Some(line) }
    }

    /// Returns a warning if more ranks are bound to the CPUs of this one than there are, or a note if this node has more ranks
    /// than CPUs that the job may use. Ranks that may run on every CPU of the job are not bound.
    fn crowding(&self, ranks_of_node: Option<u32>) -> Option<String> {
        let is_inside =
            |sibling: &&BoundSibling| sibling.is_rank && sibling.cpus.without(&self.own).0.is_empty();
        let bound = 1 + self.siblings.iter().filter(is_inside).count();
        let (own, allowed) = (&self.own, &self.allowed);
        if !allowed.without(own).0.is_empty() && bound > own.0.len() {
            let s = if own.0.len() == 1 { "" } else { "s" };
            return Some(format!(
                "warning: {bound} ranks are bound to CPU{s} {own}, so that they take turns; bind each rank to CPUs of its own \
                 (mpirun --bind-to core, srun --cpu-bind=cores)"
            ));
        }
        // A cpuset for each rank allows others other CPUs.
        let has_own_cpuset = |sibling: &BoundSibling| !sibling.cpus.without(allowed).0.is_empty();
        if allowed.0.is_empty() || self.siblings.iter().any(has_own_cpuset) {
            return None;
        }
        let ranks = ranks_of_node.filter(|ranks| *ranks as usize > allowed.0.len())?;
        let cpus = match allowed.0.len() {
            1 => format!("CPU {allowed}"),
            count => format!("the {count} CPUs {allowed}"),
        };
        Some(format!(
            "note: this node has {ranks} ranks, but the cpuset of this rank has only {cpus}, so that ranks which share it take \
             turns; start fewer ranks per node, or request a CPU for each (srun --ntasks-per-node, --cpus-per-task)"
        ))
    }

    fn on(&self, list: &CpuList) -> Result<CpuPlacement, NotAllowedError> {
        let missing = list.without(&self.allowed);
        let cpus = list.without(&missing);
        if cpus.0.is_empty() {
            return Err(NotAllowedError { asked: list.clone(), allowed: self.allowed.clone() });
        }
        let line = (!missing.0.is_empty()).then(|| {
            format!(
                "warning: --{OPTION}: the job may not run on CPUs {missing}; the collector runs on {cpus}"
            )
        });
        Ok(CpuPlacement { cpus: Some(cpus), line })
    }
}

/// Returns the CPUs that the job may use. Asks for all CPUs in a thread of its own: the kernel reduces the
/// set to the CPUs that the cgroup allows.
fn allowed() -> Option<CpuList> {
    let tried = std::thread::Builder::new().name("rpd-cpus".to_owned()).spawn(|| {
        CpuList((0..CpuSet::MAX_CPU).collect()).apply().ok()?;
        sched_getaffinity(None).ok().as_ref().map(CpuList::of)
    });
    tried.ok()?.join().ok()?
}

/// Wrappers between the launcher and this process that are skipped.
const MAX_WRAPPERS: usize = 4;

/// Returns the other processes that the launcher started, if they are bound by now. A process
/// that may run on every CPU of the job counts as not bound. The launcher is the first process above this one
/// with several children: a wrapper such as a shell has one.
fn bound_siblings(allowed: &CpuList) -> Vec<BoundSibling> {
    let parent = std::os::unix::process::parent_id() as i32;
    let parents: Vec<i32> =
        iter::once(parent).chain(process::ancestors(parent)).take(1 + MAX_WRAPPERS).collect();
    let own = iter::once(std::process::id() as i32).chain(parents.iter().copied());
    let mut siblings = parents.iter().zip(own).map(|(parent, own)| {
        let mut children = process::children(*parent);
        children.retain(|pid| *pid != own);
        children
    });
    let siblings = siblings.find(|siblings| !siblings.is_empty()).unwrap_or_default();
    let bound = siblings.into_iter().filter_map(|pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let list = status.lines().find_map(|line| line.strip_prefix(ALLOWED))?;
        let cpus = list.parse::<CpuList>().ok().filter(|list| !allowed.without(list).0.is_empty())?;
        let name = status.lines().find_map(|line| line.strip_prefix("Name:")).unwrap_or_default();
        Some(BoundSibling { cpus, is_rank: name.trim() == PROGRAM })
    });
    bound.collect()
}

/// Line of the status of a thread with its CPUs.
const ALLOWED: &str = "Cpus_allowed_list:";
/// Name of the program that starts a rank.
const PROGRAM: &str = "rpd-collect";

/// Returns the CPUs that a thread may run on, as `0,4-7`. `None` if the thread has ended.
pub(crate) fn cpus_of_thread(pid: i32, tid: i32) -> Option<CpuList> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(ALLOWED))?.parse().ok()
}

/// Returns a warning if more ranks of this node are bound to the CPUs of this one than there are, or a note if `ranks_of_node`
/// ranks are more than the CPUs that the job may use here.
pub(crate) fn crowding(ranks_of_node: Option<u32>) -> Option<String> {
    NodeCpus::of_this_process()?.crowding(ranks_of_node)
}

/// Applies the option of a call, which comes from `origin`. A list that was typed must be possible; one from
/// any other origin never stops a job.
///
/// # Errors
/// If the job may use no CPU of a list that was typed.
pub(crate) fn placement(
    wanted: Option<&CollectorCpus>,
    origin: &SettingOrigin,
) -> Result<CpuPlacement, NotAllowedError> {
    let Some(wanted) = wanted else { return Ok(CpuPlacement::default()) };
    let Some(node) = NodeCpus::of_this_process() else {
        let line = format!("warning: --{OPTION}: the CPUs of this node are not known; it is ignored");
        return Ok(CpuPlacement { cpus: None, line: Some(line) });
    };
    match (node.place(wanted), origin) {
        (Err(error), SettingOrigin::Typed) => Err(error),
        (Err(error), origin) => {
            let line = format!("warning: --{OPTION} ({origin}): {error}; it is ignored");
            Ok(CpuPlacement { cpus: None, line: Some(line) })
        }
        (placed, _) => placed,
    }
}

/// Describes for `rpd-collect doctor` where the command and the collector would run.
///
/// # Errors
/// If the job may use no CPU of the list.
pub(crate) fn describe(wanted: Option<&CollectorCpus>) -> Result<CpuPlacement, NotAllowedError> {
    let Some(node) = NodeCpus::of_this_process() else { return Ok(CpuPlacement::default()) };
    let placed = wanted.map_or_else(|| Ok(CpuPlacement::default()), |wanted| node.place(wanted))?;
    let collector = placed.cpus.as_ref().unwrap_or(&node.own);
    let both = format!("the command runs on {}, the collector on {collector}", node.own);
    let line = placed.line.map_or_else(|| both.clone(), |line| format!("{both}; {line}"));
    Ok(CpuPlacement { line: Some(line), ..placed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    fn bound(text: &str) -> BoundSibling {
        BoundSibling { cpus: list(text), is_rank: true }
    }

    #[test]
    fn ranks_that_have_too_few_cpus_are_counted() {
        let of_node = "this node has 3 ranks, but the cpuset of this rank has only the 2 CPUs 0-1,";
        for (allowed, own, siblings, ranks_of_node, ranks) in [
            ("0-7", "0", &["0", "1"][..], Some(3), Some("2 ranks are bound to CPU 0,")),
            ("0-7", "0-1", &["0", "1", "2"], None, Some("3 ranks are bound to CPUs 0-1,")),
            ("0-7", "0-1", &["0", "1-2", "2"], Some(4), None),
            ("0-7", "0-7", &["0", "1", "0-6", "0-6", "1", "1", "1", "1", "1"], None, None),
            ("0", "0", &[], None, None),
            ("0", "0", &[], Some(1), None),
            (
                "0",
                "0",
                &[],
                Some(2),
                Some("this node has 2 ranks, but the cpuset of this rank has only CPU 0,"),
            ),
            ("0-1", "0-1", &[], Some(2), None),
            ("0-1", "0-1", &[], Some(3), Some(of_node)),
            ("0-1", "0", &["1"], Some(3), Some(of_node)),
            ("0-1", "0-1", &["2-3", "4-5"], Some(3), None),
            ("", "", &[], Some(3), None),
        ] {
            let siblings = siblings.iter().map(|text| bound(text)).collect();
            let [allowed, own] =
                [allowed, own].map(|text| if text.is_empty() { CpuList::default() } else { list(text) });
            let node = NodeCpus { allowed, own, siblings };
            let own = &node.own;
            match (node.crowding(ranks_of_node), ranks) {
                (None, None) => {}
                (Some(line), Some(ranks)) => assert!(line.contains(ranks), "{line}"),
                other => panic!("{own}: {other:?}"),
            }
        }
        let other = BoundSibling { is_rank: false, ..bound("0") };
        let node = NodeCpus { allowed: list("0-7"), own: list("0"), siblings: vec![other] };
        assert_eq!(node.crowding(None), None, "another program of the launcher");
    }

    #[test]
    fn lists_are_those_of_taskset() {
        for (text, shown) in [
            ("0", "0"),
            ("0,4-7", "0,4-7"),
            (" 3 , 1-2 ", "1-3"),
            ("0-6:2", "0,2,4,6"),
            ("5-5,1023", "5,1023"),
            ("0-3,2-4", "0-4"),
        ] {
            assert_eq!(list(text).to_string(), shown);
        }
        for text in [
            "", ",", "1,", "a", "-1", "+1", "3-2", "0-1024", "1024", "0-3:0", "0-3:x", "1-2-3", "0x1",
            "autos",
        ] {
            assert!(text.parse::<CollectorCpus>().is_err(), "{text}");
        }
        assert_eq!("auto".parse(), Ok(CollectorCpus::Auto));
    }

    #[test]
    fn a_list_is_taken_as_far_as_the_job_may_run_there() {
        let node = NodeCpus { allowed: list("0-7"), own: list("0-1"), siblings: vec![bound("2-3")] };
        let place = |text: &str| node.place(&text.parse().unwrap());
        let on = |text: &str| place(text).map(|placed| (placed.cpus, placed.line));
        assert_eq!(on("7"), Ok((Some(list("7")), None)));
        let (cpus, line) = on("6-9").unwrap();
        assert_eq!(cpus, Some(list("6-7")));
        assert_eq!(
            line.unwrap(),
            "warning: --collector-cpus: the job may not run on CPUs 8-9; the collector runs on 6-7"
        );
        let error = on("8-9").unwrap_err();
        assert_eq!(error.to_string(), "the job may run on none of the CPUs 8-9; it may run on 0-7");
        assert_eq!(on("auto"), Ok((Some(list("4-7")), None)));
    }

    #[test]
    fn auto_takes_no_cpu_of_a_rank() {
        for (own, siblings) in [("0-7", "0"), ("0-3", "4-7")] {
            let node = NodeCpus { allowed: list("0-7"), own: list(own), siblings: vec![bound(siblings)] };
            let placed = node.place(&CollectorCpus::Auto).unwrap();
            assert!(
                placed.cpus.is_none()
                    && placed.line.unwrap().starts_with("note: --collector-cpus auto changes nothing")
            );
        }
    }

    proptest! {
        #[test]
        fn a_list_survives_its_text(cpus in proptest::collection::btree_set(0usize..1024, 1..40)) {
            let list = CpuList(cpus);
            prop_assert_eq!(list.to_string().parse::<CpuList>(), Ok(list));
        }

        #[test]
        fn no_text_does_harm(text in "[0-9,:a-]{0,20}") {
            let _ = text.parse::<CollectorCpus>();
        }
    }
}
