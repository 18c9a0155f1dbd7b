//! Checks the environment of the command: variables, clocks, launcher, MPI, ROCm.

use super::finding::CheckFinding;
use super::{library, python};
use crate::child;
use crate::child::program::ProgramFile;
use crate::clock_probe::{self, ProbeChoice};
use crate::command_line::{CollectOptions, EventClock};
use crate::host::{cpus, tick_source};
use crate::launcher::{LauncherEnvironment, is_on_one_node, ranks_of_node};
use crate::node_metrics::{amd_devices, waits_are_counted, why_not_followed};
use crate::session::SessionIdentity;
use rustix::process::{Resource, getrlimit};
use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Reports variables that are invalid.
pub(super) fn variables(warnings: &[String]) -> Vec<CheckFinding> {
    let text = |warning: &String| warning.trim_start_matches("warning: ").to_owned();
    warnings.iter().map(|warning| CheckFinding::problem(text(warning), "correct it, or unset it")).collect()
}

/// Reports where the command and the collector run.
pub(super) fn cpus(options: &CollectOptions, environment: &LauncherEnvironment) -> Vec<CheckFinding> {
    let crowding = cpus::crowding(ranks_of_node(environment)).map(|line| {
        if let Some(note) = line.strip_prefix("note: ") {
            return CheckFinding::Note(note.to_owned());
        }
        let (what, next) = line.rsplit_once("; ").unwrap_or((&line, "bind each rank to CPUs of its own"));
        CheckFinding::problem(what.trim_start_matches("warning: "), next)
    });
    let mut found = match cpus::describe(options.collector_cpus.as_ref()) {
        Ok(cpus::CpuPlacement { line: Some(line), .. }) => vec![CheckFinding::Ok(line)],
        Ok(_) => vec![CheckFinding::Note("not known here, so that --collector-cpus is ignored".to_owned())],
        Err(error) => vec![CheckFinding::problem(error, "name others with --collector-cpus")],
    };
    found.extend(crowding);
    found
}

/// Open files that recording needs at least, and those that many processes and threads below a collector need.
const LEAST_FILES: u64 = 64;
const USUAL_FILES: u64 = 1024;

/// Reports a low limit of open files. The collector raises its own limit as far as the system lets it.
pub(super) fn open_files() -> Option<CheckFinding> {
    let limit = getrlimit(Resource::Nofile).maximum.filter(|limit| *limit < USUAL_FILES)?;
    if limit < LEAST_FILES {
        let what = format!("`ulimit -Hn` allows {limit} open files; recording needs {LEAST_FILES}");
        return Some(CheckFinding::problem(
            what,
            "the command would run untraced, or with less recorded; raise it",
        ));
    }
    Some(CheckFinding::Note(format!(
        "`ulimit -Hn` allows {limit} open files: of many processes below one rpd-collect, some CPU times and stacks are not recorded"
    )))
}

/// Reports the rank and the run.
pub(super) fn launcher(identity: &SessionIdentity) -> Vec<CheckFinding> {
    let (own, run) = (&identity.rank, &identity.run);
    let Some(rank) = own.rank else {
        return vec![CheckFinding::Note("none: a process of its own, unless torchrun is below".to_owned())];
    };
    let of = own.size.map(|size| format!(" of {size}")).unwrap_or_default();
    let rank_from = own.rank_from.as_deref().unwrap_or("?");
    let text = format!("rank {rank}{of} (from {rank_from}), run id {} (from {})", run.id, run.from);
    if run.from != "self" {
        return vec![CheckFinding::Ok(text)];
    }
    let next = "every rank would make a run of its own; give them all the same --run-id or RPD_RUN_ID";
    vec![CheckFinding::problem(format!("rank {rank}{of} (from {rank_from}), but no job id"), next)]
}

/// Cost of events with each clock, measured by `ci/bench overhead` on an EPYC of the fourth generation.
const COST_OF_TICKS: &str = "about 26 ns a range and 41 ns an MPI call";
const COST_OF_BOOTTIME: &str = "about 57 ns a range and 67 ns an MPI call";

/// Reports by which clock events are recorded.
pub(super) fn event_clock(choice: Option<EventClock>) -> CheckFinding {
    match (choice, tick_source::check()) {
        (Some(EventClock::Boottime), _) => CheckFinding::Ok(format!(
            "events have times of CLOCK_BOOTTIME, as --clock says: {COST_OF_BOOTTIME}"
        )),
        (_, Ok(())) => {
            CheckFinding::Ok(format!("events are timed by the processor's counter: {COST_OF_TICKS}"))
        }
        (_, Err(reason)) => CheckFinding::Note(format!(
            "events have times of CLOCK_BOOTTIME, which takes longer to read ({COST_OF_BOOTTIME}): {reason}"
        )),
    }
}

/// Reports whether waits of threads are recorded, and the times at which they lose their CPUs.
pub(super) fn waits(options: &CollectOptions) -> Vec<CheckFinding> {
    if !options.recorded_alone().system {
        return vec![CheckFinding::Note(
            "waits of threads for CPUs and disks are not recorded: system is not in --trace".to_owned(),
        )];
    }
    if !waits_are_counted() {
        return vec![CheckFinding::Note(
            "waits of threads for CPUs and disks are not recorded: the kernel does not count them in /proc/PID/schedstat \
             (CONFIG_SCHED_INFO)"
                .to_owned(),
        )];
    }
    let sampled = CheckFinding::Ok(
        "of recorded threads, waits for CPUs are recorded ten times a second, and samples of waits for disks of the first 16, for \
         about 0.02 % of a core a thread; waits of other threads and in FUSE are not seen"
            .to_owned(),
    );
    let followed = match why_not_followed() {
        None => CheckFinding::Ok(
            "the times at which threads lose their CPUs are recorded, for at most 0.2 % of their time; what then used the CPU is \
             not seen"
                .to_owned(),
        ),
        Some(reason) => CheckFinding::Note(format!(
            "waits for CPUs are recorded only as sums over tenths of a second: {reason}"
        )),
    };
    vec![sampled, followed]
}

/// Reports whether clock probes will run, and over which addresses.
pub(super) fn clocks(
    choice: Option<ProbeChoice>,
    identity: &SessionIdentity,
    environment: &LauncherEnvironment,
) -> Vec<CheckFinding> {
    let Some(choice) = choice else {
        return vec![CheckFinding::Note("not measured between nodes: probes are off".to_owned())];
    };
    if is_on_one_node(environment, &identity.rank) {
        return vec![CheckFinding::Note("no other node here with clocks that could be measured".to_owned())];
    }
    let addresses: Vec<String> = match clock_probe::addresses(choice.interface.as_ref()) {
        Ok(addresses) => addresses.iter().map(IpAddr::to_string).collect(),
        Err(error) => {
            let next = "name another one with --probe-interface, or use --probes off";
            return vec![CheckFinding::problem(format!("no clock probes: {error}"), next)];
        }
    };
    let ports = choice.ports.map_or("any UDP port".to_owned(), |ports| format!("UDP ports {ports}"));
    vec![CheckFinding::Ok(format!("probed from {}, {ports}", addresses.join(", ")))]
}

/// Maximum number of MPI libraries of the system that are printed.
const MAX_MPI_LIBRARIES: usize = 4;

/// Reports whether the command uses MPI, and which library.
pub(super) fn mpi(command: Option<&OsStr>, program: Option<&ProgramFile>) -> Vec<CheckFinding> {
    if let Some(ProgramFile::Unreadable(path)) = program {
        let what = format!("{} is not readable; what it loads is seen then", path.display());
        return vec![CheckFinding::Note(what)];
    }
    if let Some(ProgramFile::Dynamic { path, loader, is_interpreter, .. }) = program {
        let command = command.and_then(child::find);
        let programs = programs_of(command.as_deref(), path);
        if let Some(finding) = python::mpi_of(&programs, loader) {
            return vec![finding];
        }
        let list = library::needed(path, loader, None).unwrap_or_default();
        return vec![match (list.lines().find(|line| is_mpi(line)), is_interpreter) {
            (Some(line), _) => CheckFinding::Ok(format!("{} uses {}", path.display(), library_of(line))),
            (None, true) => CheckFinding::Note(format!(
                "{} does without; what it loads later is seen then",
                path.display()
            )),
            (None, false) => CheckFinding::Note(format!("{} is linked with none", path.display())),
        }];
    }
    let tools = ["mpirun", "mpiexec", "srun", "mpicc"].map(|name| child::find(OsStr::new(name)));
    let mut found: Vec<String> = tools.into_iter().flatten().map(|path| path.display().to_string()).collect();
    let known = Command::new("/sbin/ldconfig").arg("-p").stdin(Stdio::null()).stderr(Stdio::null()).output();
    let known = known.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    // `libmpi.so` alone is a link for the linker.
    let libraries = known.lines().filter(|line| is_mpi(line) && line.contains(".so.")).map(library_of);
    found.extend(libraries.take(MAX_MPI_LIBRARIES));
    vec![match found.is_empty() {
        true => CheckFinding::Note(
            "none found here; MPI calls are recorded with any that the program brings".to_owned(),
        ),
        false => CheckFinding::Ok(found.join(", ")),
    }]
}

/// Reports whether Python stacks can be sampled, if they are wanted.
pub(super) fn python_samples(options: &CollectOptions, program: Option<&ProgramFile>) -> Vec<CheckFinding> {
    if !options.recorded_alone().python {
        return Vec::new();
    }
    let command = options.command.first().and_then(|command| child::find(command));
    let programs = match program {
        Some(ProgramFile::Dynamic { path, .. } | ProgramFile::Unreadable(path)) => {
            programs_of(command.as_deref(), path)
        }
        _ => Vec::new(),
    };
    python::samples_of(&programs)
}

/// Returns the command before its interpreter, since it may be a script that selects a Python.
fn programs_of<'a>(command: Option<&'a Path>, interpreter: &'a Path) -> Vec<&'a Path> {
    command.into_iter().chain([interpreter]).collect()
}

/// Whether a line of the loader names an MPI library: `libmpi.so.40 => /lib/libmpi.so.40 (0x1)`.
pub(super) fn is_mpi(line: &str) -> bool {
    let name = line.trim_start();
    ["libmpi.so", "libmpich.so", "libmpi_cray", "libmpi_gnu", "libmpi_intel"]
        .iter()
        .any(|mpi| name.starts_with(mpi))
}

pub(super) fn library_of(line: &str) -> String {
    let path = line.split_once("=> ").map_or(line, |(_, path)| path);
    path.split_whitespace().next().unwrap_or_default().to_owned()
}

/// Reports whether ROCm and its devices exist.
pub(super) fn rocm() -> Vec<CheckFinding> {
    let root =
        std::env::var_os("ROCM_PATH").filter(|path| !path.is_empty()).unwrap_or_else(|| "/opt/rocm".into());
    let software = Path::new(&root).is_dir();
    let devices = amd_devices(Path::new("/")).len();
    let root_text = Path::new(&root).display();
    vec![match (software, devices) {
        (true, 1..) => CheckFinding::Ok(format!("{root_text}, {devices} amdgpu devices")),
        (true, 0) => CheckFinding::Note(format!("{root_text}, but no amdgpu device on this node")),
        (false, 1..) => CheckFinding::Note(format!("{devices} amdgpu devices, but no {root_text}")),
        (false, 0) => CheckFinding::Note(format!("no {root_text}, and no amdgpu device on this node")),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn libraries_of_mpi_are_known() {
        let line = "\tlibmpi.so.40 => /lib/x86_64-linux-gnu/libmpi.so.40 (0x00007f)";
        assert!(is_mpi(line) && !is_mpi("\tlibmpfr.so.6 => /lib/libmpfr.so.6 (0x1)"));
        assert_eq!(library_of(line), "/lib/x86_64-linux-gnu/libmpi.so.40");
    }

    #[test]
    fn ranks_without_a_job_are_a_problem() {
        let launcher = |variables: &str, typed: &str| {
            let environment: LauncherEnvironment =
                variables.split(' ').filter_map(|v| v.split_once('=')).collect();
            let options = CollectOptions::try_parse_from(typed.split(' ')).unwrap();
            launcher(&SessionIdentity::detect(&options, &environment, 0)).remove(0)
        };
        assert!(matches!(launcher("", "c -- a"), CheckFinding::Note(_)));
        assert!(matches!(launcher("RANK=1 WORLD_SIZE=2", "c -- a"), CheckFinding::Problem { .. }));
        assert!(matches!(launcher("RANK=1 WORLD_SIZE=2", "c --run-id x -- a"), CheckFinding::Ok(_)));
    }

    #[test]
    fn the_addresses_of_the_probes_are_reported() {
        let clocks = |variables: &str, typed: &str| {
            let environment: LauncherEnvironment =
                variables.split(' ').filter_map(|v| v.split_once('=')).collect();
            let options = CollectOptions::try_parse_from(typed.split(' ')).unwrap();
            let identity = SessionIdentity::detect(&options, &environment, 0);
            clocks(options.probe_choice(), &identity, &environment).remove(0)
        };
        let two = "RANK=1 WORLD_SIZE=2";
        assert!(matches!(clocks("", "c -- a"), CheckFinding::Note(_)));
        assert!(matches!(clocks(two, "c --probes off -- a"), CheckFinding::Note(_)));
        let missing = clocks(two, "c --probe-interface nosuch0 -- a");
        assert!(matches!(missing, CheckFinding::Problem { .. }));
        let there = clocks(two, "c --probe-interface lo --probe-ports 4000-4009 -- a");
        let CheckFinding::Ok(text) = there else { panic!() };
        assert!(
            text.starts_with("probed from 127.0.0.1") && text.ends_with(", UDP ports 4000-4009"),
            "{text}"
        );
    }
}
