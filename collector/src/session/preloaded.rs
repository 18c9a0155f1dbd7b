//! Whether the loader has preloaded our library into the processes of the command. Where it has not, it prints that on the
//! program's stderr alone, which nobody may read, and the rank looks like one that calls nothing.
//!
//! A thread looks at the processes below the command some times after its start, until one of them is found without the
//! library. Whether anything was recorded is known at the end only.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Times between two looks: a container takes a moment to start, and programs may run for long before their first call.
const PAUSES: [Duration; 6] = [
    Duration::from_millis(200),
    Duration::from_millis(800),
    Duration::from_secs(2),
    Duration::from_secs(7),
    Duration::from_secs(20),
    Duration::from_secs(60),
];
/// Most processes that one look takes in.
const MAX_PROCESSES: usize = 64;
/// Most bytes of a file in /proc.
const MAX_BYTES: u64 = 4 << 20;

/// Programs that start others in a container, and the options that let the library and our variables in. `DIR` stands for
/// the folder of the library.
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

/// Why a process is without the library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Obstacle {
    /// The process has other mounts, and there is no such file in them.
    NotVisible,
    /// The file is there, and the loader has refused it.
    Refused,
    /// The library is in it, but our socket is not in its network namespace.
    OtherNetwork,
}

/// A process that our library cannot record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct UnseenProcess {
    program: String,
    obstacle: Obstacle,
}

impl UnseenProcess {
    /// What it is, why, and what to do. `command` is the command line of the rank.
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
                     recorded: bind the folder, as with {next}"
                )
            }
            Obstacle::Refused => format!(
                "warning: the loader of {program} does not preload {library_name}, so its calls are not recorded: it says \
                 why on stderr, `LD_PRELOAD={library_name} {program}` shows it; a program of another C library (musl), or \
                 of an older one, cannot load it"
            ),
            Obstacle::OtherNetwork => format!(
                "warning: {program} runs in a network namespace of its own, which our socket is not in, so its calls are not \
                 recorded: start the container with the network of the node, as podman --network host does"
            ),
        }
    }
}

/// What to say of a command that starts a container, where no process of it was seen and nothing was recorded.
pub(super) fn hint_for_container(command: &str, library: &Path) -> Option<String> {
    let (name, options) = runtime(command)?;
    Some(format!(
        "{name} starts a container: for the library to be in it, add {}, and apptainer's --cleanenv keeps our variables out",
        with_folder(options, library)
    ))
}

/// The runtime that a command line starts, and its options.
fn runtime(command: &str) -> Option<(&str, &'static str)> {
    let first = command.split_whitespace().next()?;
    let name = first.rsplit('/').next()?;
    RUNTIMES.iter().find(|(names, _)| names.contains(&name)).map(|(_, options)| (name, *options))
}

fn with_folder(options: &str, library: &Path) -> String {
    let folder = library.parent().unwrap_or(Path::new("/")).display().to_string();
    options.replace("DIR", &folder)
}

/// The thread that looks.
pub(super) struct PreloadCheck {
    end: Sender<()>,
    thread: JoinHandle<Option<UnseenProcess>>,
}

impl PreloadCheck {
    /// Looks at a command that has started. `None` where there can be no thread: then nothing is known.
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

    /// What was found until now.
    pub(super) fn end(self) -> Option<UnseenProcess> {
        drop(self.end);
        self.thread.join().ok().flatten()
    }
}

/// A process and those below it.
fn below(top: i32) -> Vec<i32> {
    let (mut all, mut next) = (Vec::new(), VecDeque::from([top]));
    while let Some(pid) = next.pop_front()
        && all.len() < MAX_PROCESSES
    {
        all.push(pid);
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks.take(MAX_PROCESSES) {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            next.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
    }
    all
}

/// A process that was to get the library, and has not got it or cannot reach us.
fn examine(pid: i32, library: &Path) -> Option<UnseenProcess> {
    let path = |name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
    let environment = read(&path("environ"));
    let preload = environment.split('\0').find_map(|entry| entry.strip_prefix("LD_PRELOAD="))?;
    let wanted = library.to_str()?;
    // A program of other rights is named at the start, if it is the command.
    if !preload.split([' ', ':']).any(|entry| entry == wanted) || is_secure(&path("auxv")) {
        return None;
    }
    let maps = read(&path("maps"));
    // A link has the name of its target there.
    let real = fs::canonicalize(library).unwrap_or_else(|_| library.to_owned());
    let obstacle = if maps.contains(&*real.file_name()?.to_string_lossy()) {
        let network = |place: &Path| fs::read_link(place.join("ns/net")).ok();
        let (ours, theirs) = (network(Path::new("/proc/self"))?, network(&path(""))?);
        (ours != theirs).then_some(Obstacle::OtherNetwork)?
    } else {
        // Static programs are named at the start. The C library comes after what is preloaded: without it, the loader
        // has not come so far yet.
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

/// Whether the loader of a program ignores variables because of the rights of its file: the kernel sets `AT_SECURE` then.
fn is_secure(auxiliary: &Path) -> bool {
    const AT_SECURE: u64 = 23;
    let mut bytes = Vec::new();
    let _ = File::open(auxiliary).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    let (words, _) = bytes.as_chunks::<8>();
    words.chunks_exact(2).any(|entry| u64::from_ne_bytes(entry[0]) == AT_SECURE && entry[1] != [0; 8])
}

/// The beginning of a file; what cannot be read is of another user.
fn read(path: &Path) -> String {
    let mut bytes = Vec::new();
    let _ = File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
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
            of_apptainer.starts_with("apptainer starts a container")
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
}
