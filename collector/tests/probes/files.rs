//! File system calls in the rendezvous folder, as strace counts them: docs/SITES.md has the figures.

use super::*;

/// All calls by which a process can access files, except `close`.
const CALLS: &str = "trace=%file,read,pread64,write,fstat,fchmod,getdents64,ftruncate,fsync,flock,lseek";

/// A call on `<run>/clocks` or an entry of it.
#[derive(Debug)]
struct Call {
    /// Time in seconds.
    time: f64,
    name: String,
}

/// Reads an output of strace with times. A call that another thread interrupts has two lines; the first one
/// counts.
fn calls(trace: &str) -> Vec<Call> {
    let is_in_folder = |line: &&str| line.contains("/run/clocks") || line.contains("/run>, \"clocks\"");
    let read = |line: &str| {
        let (time, call) = line.split_whitespace().nth(1).zip(line.split_whitespace().nth(2))?;
        let (name, _) = call.split_once('(')?;
        Some(Call { time: time.parse().ok()?, name: name.to_owned() })
    };
    let lines = trace.lines().filter(is_in_folder).filter(|line| !line.contains(" resumed>"));
    lines.map(|line| read(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

/// Runs a job of this many nodes and returns the calls of each, or why they say nothing. `None` without a
/// compiler.
fn traced_job(nodes: u32) -> Option<Result<Vec<Vec<Call>>, String>> {
    let job = Job::of(nodes)?;
    let trace = |rank: u32| job.bench.path(&format!("trace-{rank}"));
    let ranks: Vec<Child> = (0..nodes)
        .map(|rank| {
            let words = ["strace", "-f", "--seccomp-bpf", "-qq", "-y", "-ttt", "-e", CALLS, "-o"];
            let strace = words.map(str::to_owned).into_iter().chain([trace(rank).display().to_string()]);
            let before: Vec<String> = shifted(100 * i64::from(rank)).into_iter().chain(strace).collect();
            job.rank(rank, &before, &LO, &["sleep", "6"])
        })
        .collect();
    ranks.into_iter().for_each(|rank| assert_quiet(&wait(rank)));
    assert!(!job.clocks().exists(), "nothing is left of it");
    let measured = (0..nodes).filter(|rank| !job.shard(*rank).probes.is_empty()).count();
    if measured != nodes as usize - 1 {
        let logs: Vec<String> = (0..nodes).map(|rank| job.log(rank)).collect();
        return Some(Err(format!("{measured} of {nodes} nodes measured, not all but the root: {logs:?}")));
    }
    Some(Ok((0..nodes).map(|rank| calls(&fs::read_to_string(trace(rank)).unwrap())).collect()))
}

#[test]
fn a_node_works_on_the_folder_of_the_agents_at_its_start_and_its_end_only() {
    if !has_time_namespaces() {
        return;
    }
    let version = Command::new("strace").arg("--version").stdout(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        return eprintln!("SKIPPED: no strace");
    }
    for nodes in [2, 8] {
        // On a busy machine, nodes may start or end too far apart, or measure too late.
        let mut busy = Vec::new();
        while busy.len() < 3 {
            let Some(calls) = traced_job(nodes) else { return };
            match calls.and_then(|calls| check_figures(&calls)) {
                Ok(all) => {
                    eprintln!("{nodes} nodes: {all} calls");
                    break;
                }
                Err(what) => busy.push(what),
            }
        }
        assert!(busy.len() < 3, "{nodes} nodes, time after time: {busy:?}");
    }
}

/// Compares with the figures of docs/SITES.md for a node and for a job. Returns all calls of the job.
fn check_figures(nodes: &[Vec<Call>]) -> Result<usize, String> {
    /// Calls at the start: of a node that creates the file or tries to at the same moment, and of each other
    /// one.
    const FIRST: usize = 18;
    const OTHER: usize = 7;
    /// Calls of the node that removes everything, at the end.
    const LAST: usize = 15;
    /// Seconds from the first call of a node to the last one of its start. The command takes 6 s.
    const START: f64 = 2.0;
    let has = |calls: &[&Call], name: &str| calls.iter().any(|call| call.name == name);
    let (mut all, mut limit, mut ended) = (0, LAST, 0);
    for calls in nodes {
        let is_start = |call: &&Call| call.time < calls[0].time + START;
        let (start, end): (Vec<&Call>, Vec<&Call>) = calls.iter().partition(is_start);
        let most = if has(&start, "linkat") { FIRST } else { OTHER };
        let is_quiet = end.first().is_none_or(|call| call.time > calls[0].time + 3.5);
        if start.len() > most || has(&start, "getdents64") || end.len() > LAST || !is_quiet {
            return Err(format!("{calls:?}"));
        }
        limit += most;
        ended += usize::from(!end.is_empty());
        all += calls.len();
    }
    let is_listed_once = nodes.iter().flatten().filter(|call| call.name == "getdents64").count() == 2;
    let is_right = ended == 1 && is_listed_once && all <= limit && all > OTHER * nodes.len();
    if is_right { Ok(all) } else { Err(format!("{all} calls of {limit}, {ended} at the end")) }
}
