//! Checks whether the loader has preloaded our library into the processes of the command. If it has not, it
//! prints that only on the program's stderr, and the rank looks as if it made no calls.
//!
//! A thread inspects the processes below the command several times after its start, until it finds one
//! without the library. Only at the end it is known whether anything was recorded.

use crate::host::bounded_read::read_at_most;
use crate::host::process;
use std::collections::VecDeque;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Times between two checks. A container takes a moment to start, and programs may run for long before their
/// first call.
const PAUSES: [Duration; 6] = [
    Duration::from_millis(200),
    Duration::from_millis(800),
    Duration::from_secs(2),
    Duration::from_secs(7),
    Duration::from_secs(20),
    Duration::from_secs(60),
];
/// Maximum number of processes per check.
const MAX_PROCESSES: usize = 64;
/// Maximum number of bytes of a file in /proc.
const MAX_BYTES: u64 = 4 << 20;

/// Programs that start containers, and the options that make the library and our variables visible inside.
/// `DIR` stands for the folder of the library.
const RUNTIMES: [(&[&str], &str); 5] = [
    (&["apptainer", "singularity"], "--bind DIR"),
    (
        &["podman", "docker", "nerdctl", "podman-hpc"],
        "--volume DIR:DIR:ro --network host --env LD_PRELOAD --env RPD_SOCKET --env RPD_TRACE",
    ),
    (&["enroot"], "--mount DIR:DIR --env LD_PRELOAD --env RPD_SOCKET --env RPD_TRACE"),
    (&["shifter"], "--volume=DIR:DIR --env=LD_PRELOAD=$LD_PRELOAD"),
    (&["ch-run"], "--bind DIR"),
];

/// Why the library is not in a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Obstacle {
    /// The process has other mounts, in which the file does not exist.
    NotVisible,
    /// The file exists, and the loader refused it.
    Refused,
    /// The library is loaded, but its network namespace lacks our socket.
    OtherNetwork,
    /// The library is loaded, but its user is another one than ours, and neither side trusts the other.
    OtherUser(u32),
}

/// A process that our library cannot record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct UnseenProcess {
    program: String,
    obstacle: Obstacle,
}

impl UnseenProcess {
    /// Describes the process, the reason and the next step. `command` is the command line of the rank.
    pub(super) fn line(&self, library: &Path, command: &str) -> String {
        let UnseenProcess { program, obstacle } = self;
        let library_name = library.display();
        match obstacle {
            Obstacle::NotVisible => {
                let next = runtime(command).map_or_else(
                    || {
                        let all = RUNTIMES.iter().take(2);
                        let each: Vec<_> =
                            all.map(|(names, options)| format!("{} {options}", names[0])).collect();
                        with_folder(&each.join(", or "), library)
                    },
                    |(name, options)| format!("{name} {}", with_folder(options, library)),
                );
                format!(
                    "warning: {program} runs in a container in which {library_name} is not visible, so its calls are not \
                     recorded; bind the folder, as with {next}"
                )
            }
            Obstacle::Refused => format!(
                "warning: the loader of {program} does not preload {library_name}, so its calls are not recorded: a program \
                 of another C library (musl), or of an older one, cannot load it; `LD_PRELOAD={library_name} {program}` \
                 shows the reason on stderr"
            ),
            Obstacle::OtherNetwork => format!(
                "warning: {program} runs in a network namespace of its own, which lacks the socket of rpd-collect, so its calls are not \
                 recorded; start the container with the network of the node, as podman --network host does"
            ),
            Obstacle::OtherUser(user) => format!(
                "warning: {program} runs as user {user}, and rpd-collect as user {}, so its calls are not recorded; start rpd-collect \
                 as that user",
                rustix::process::geteuid().as_raw()
            ),
        }
    }
}

/// Returns the cause and the next step for a command that starts a container, to append to the message that
/// nothing was recorded.
pub(super) fn hint_for_container(command: &str, library: &Path) -> Option<String> {
    let (name, options) = runtime(command)?;
    Some(format!(
        " ({name} starts a container); for the library to be in it, add {}, and apptainer's --cleanenv keeps our variables out",
        with_folder(options, library)
    ))
}

/// Returns the container runtime that a command line starts, and its options.
fn runtime(command: &str) -> Option<(&str, &'static str)> {
    let first = command.split_whitespace().next()?;
    let name = first.rsplit('/').next()?;
    RUNTIMES.iter().find(|(names, _)| names.contains(&name)).map(|(_, options)| (name, *options))
}

fn with_folder(options: &str, library: &Path) -> String {
    let folder = library.parent().unwrap_or(Path::new("/")).display().to_string();
    options.replace("DIR", &folder)
}

/// The thread that checks.
pub(super) struct PreloadCheck {
    end: Sender<()>,
    thread: JoinHandle<Option<UnseenProcess>>,
}

impl PreloadCheck {
    /// Starts to check a command. `None` if there is no thread for it: then nothing is known.
    pub(super) fn begin(command: i32, library: PathBuf) -> Option<PreloadCheck> {
        let (end, ended) = channel();
        let look = move || {
            for pause in PAUSES {
                if ended.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
                let found = below(command).into_iter().find_map(|pid| examine(pid, &library));
                if found.is_some() {
                    return found;
                }
            }
            None
        };
        let thread = std::thread::Builder::new().name("rpd-preload".to_owned()).spawn(look).ok()?;
        Some(PreloadCheck { end, thread })
    }

    /// Returns what was found so far.
    pub(super) fn end(self) -> Option<UnseenProcess> {
        drop(self.end);
        self.thread.join().ok().flatten()
    }
}

/// Returns a process and those below it.
fn below(top: i32) -> Vec<i32> {
    let (mut all, mut next) = (Vec::new(), VecDeque::from([top]));
    while let Some(pid) = next.pop_front()
        && all.len() < MAX_PROCESSES
    {
        all.push(pid);
        next.extend(process::children(pid));
    }
    all
}

/// Inspects a process that should have the library. Returns why it lacks the library or cannot reach us.
fn examine(pid: i32, library: &Path) -> Option<UnseenProcess> {
    let path = |name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
    let environment = read(&path("environ"));
    let preload = environment.split('\0').find_map(|entry| entry.strip_prefix("LD_PRELOAD="))?;
    let wanted = library.to_str()?;
    // If the command is such a program, a warning at the start named it.
    if !preload.split([' ', ':']).any(|entry| entry == wanted) || is_secure(&path("auxv")) {
        return None;
    }
    let maps = read(&path("maps"));
    // The process maps a link under the name of its target.
    let real = fs::canonicalize(library).unwrap_or_else(|_| library.to_owned());
    let obstacle = if maps.contains(&*real.file_name()?.to_string_lossy()) {
        let network = |place: &Path| fs::read_link(place.join("ns/net")).ok();
        let (ours, theirs) = (network(Path::new("/proc/self"))?, network(&path(""))?);
        let user = effective_user(&read(&path("status")))?;
        let is_other = user != rustix::process::geteuid().as_raw();
        match ours != theirs {
            true => Obstacle::OtherNetwork,
            false => is_other.then_some(Obstacle::OtherUser(user))?,
        }
    } else {
        // A warning at the start named static programs. The loader maps the C library after preloaded ones:
        // without it, the loader is not that far yet.
        let is_loaded = ["/libc.so", "/libc-", "/ld-musl"].iter().any(|name| maps.contains(name));
        let seen_from_there = path("root").join(library.strip_prefix("/").ok()?);
        match fs::metadata(seen_from_there) {
            _ if !is_loaded => return None,
            Ok(_) => Obstacle::Refused,
            Err(error) if error.kind() == ErrorKind::NotFound => Obstacle::NotVisible,
            Err(_) => return None,
        }
    };
    let program = fs::read_link(path("exe")).ok()?;
    Some(UnseenProcess { program: program.display().to_string(), obstacle })
}

/// Returns the effective user id in the text of `/proc/PID/status`.
fn effective_user(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Whether the loader ignores variables because of the rights of the program's file: the kernel sets
/// `AT_SECURE` then.
fn is_secure(auxiliary: &Path) -> bool {
    const AT_SECURE: u64 = 23;
    let bytes = read_at_most(auxiliary, MAX_BYTES);
    let (words, _) = bytes.as_chunks::<8>();
    words.chunks_exact(2).any(|entry| u64::from_ne_bytes(entry[0]) == AT_SECURE && entry[1] != [0; 8])
}

/// Reads the start of a file. A file of another user cannot be read.
fn read(path: &Path) -> String {
    String::from_utf8_lossy(&read_at_most(path, MAX_BYTES)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_pass_is_named_for_each_runtime() {
        let library = Path::new("/opt/rpd/lib/librpd_intercept.so");
        let hint = |command: &str| hint_for_container(command, library);
        let of_apptainer = hint("/usr/bin/apptainer exec image.sif python train.py").unwrap();
        assert!(
            of_apptainer.starts_with(" (apptainer starts a container); ")
                && of_apptainer.contains("--bind /opt/rpd/lib,")
        );
        let of_podman = hint("podman run image ./simulation").unwrap();
        assert!(of_podman.contains("--volume /opt/rpd/lib:/opt/rpd/lib:ro --network host --env LD_PRELOAD"));
        assert_eq!((hint("python apptainer"), hint("")), (None, None));
        let unseen = UnseenProcess { program: "/usr/bin/app".to_owned(), obstacle: Obstacle::NotVisible };
        let line = unseen.line(library, "sh run.sh");
        assert!(line.contains("apptainer --bind /opt/rpd/lib, or podman --volume"), "{line}");
    }

    #[test]
    fn a_process_without_the_library_in_its_variables_is_no_concern_of_ours() {
        let own = std::process::id() as i32;
        assert!(below(own).contains(&own));
        assert_eq!(examine(own, Path::new("/nowhere/librpd_intercept.so")), None);
        assert_eq!(examine(i32::MAX, Path::new("/nowhere/librpd_intercept.so")), None);
    }

    #[test]
    fn the_effective_user_is_the_second_one() {
        assert_eq!(effective_user("Name:\ta\nUid:\t0\t65534\t0\t0\nGid:\t7\t7\t7\t7\n"), Some(65534));
        assert_eq!([effective_user("Uid:\t0\n"), effective_user("Gid:\t0\t0\n")], [None; 2]);
    }
}
