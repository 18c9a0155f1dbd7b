//! The identity of a process: its command line, and selected variables of its environment. Both sides apply
//! the allow-list: the library does so that nothing else leaves the program.
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | n, bytes of the command line |
//! | 4 | n | arguments, each followed by a zero byte, as in `/proc/PID/cmdline` |
//! | 4 + n | rest | `NAME=VALUE`, each followed by a zero byte |

use crate::layout::MAX_IDENTITY_BYTES;

/// Maximum number of bytes of the command line. The rest is cut off.
const MAX_COMMAND_BYTES: usize = 32 << 10;

/// Prefixes of the names of recorded variables.
const RECORDED_PREFIXES: [&str; 21] = [
    "SLURM_",
    "OMPI_",
    "PMI_",
    "PMIX_",
    "PALS_",
    "FLUX_",
    "MV2_",
    "MPI_LOCAL",
    "MPI_RANK",
    "TORCHELASTIC_",
    "ROCM",
    "ROCR_",
    "ROCPROF",
    "HIP_",
    "HSA_",
    "GPU_DEVICE",
    "NCCL_",
    "RCCL_",
    "OMP_",
    "FI_",
    "UCX_",
];

/// Names of recorded variables.
const RECORDED_NAMES: [&str; 9] = [
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "ROLE_RANK",
    "ROLE_NAME",
    "MASTER_ADDR",
    "MASTER_PORT",
];

/// Parts of names that indicate a secret, whatever the rest of the name.
const SECRET_WORDS: [&str; 7] = ["TOKEN", "KEY", "SECRET", "PASSW", "CRED", "JWT", "AUTH"];

/// Whether a variable of this name is recorded.
pub fn is_recorded(name: &str) -> bool {
    let listed = RECORDED_NAMES.contains(&name) || RECORDED_PREFIXES.iter().any(|p| name.starts_with(p));
    listed && !is_secret(name)
}

/// Whether a name indicates a secret.
pub fn is_secret(name: &str) -> bool {
    contains_any_case(name, &SECRET_WORDS)
}

fn contains_any_case(text: &str, parts: &[&str]) -> bool {
    let text = text.as_bytes();
    parts.iter().any(|part| text.windows(part.len()).any(|w| w.eq_ignore_ascii_case(part.as_bytes())))
}

/// Writes an identity into `place` from the contents of `/proc/self/cmdline` and `environ`. Returns the
/// number of bytes. Omits whole variables that do not fit.
pub fn encode(command: &[u8], environment: &[u8], place: &mut [u8]) -> usize {
    let limit = place.len().min(MAX_IDENTITY_BYTES);
    let command = command.get(..MAX_COMMAND_BYTES).unwrap_or(command);
    let mut used = 0;
    let mut put = |bytes: &[u8]| {
        let Some(room) = place.get_mut(used..limit).and_then(|rest| rest.get_mut(..bytes.len())) else {
            return false;
        };
        room.copy_from_slice(bytes);
        used += bytes.len();
        true
    };
    if !put(&(command.len() as u32).to_le_bytes()) || !put(command) {
        return 0;
    }
    for entry in environment.split_inclusive(|byte| *byte == 0) {
        let name = entry.split(|byte| *byte == b'=').next().unwrap_or_default();
        if entry.last() == Some(&0) && std::str::from_utf8(name).is_ok_and(is_recorded) {
            put(entry);
        }
    }
    used
}

/// An identity that was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessIdentity {
    /// Arguments, starting with the program.
    pub arguments: Vec<String>,
    /// Recorded variables.
    pub environment: Vec<(String, String)>,
}

/// Reads an identity. Omits invalid parts.
pub fn decode(bytes: &[u8]) -> ProcessIdentity {
    let length = bytes.get(..4).and_then(|l| l.try_into().ok()).map_or(0, u32::from_le_bytes) as usize;
    let rest = bytes.get(4..).unwrap_or_default();
    let (command, environment) = rest.split_at_checked(length).unwrap_or((rest, &[]));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let command = command.strip_suffix(b"\0").unwrap_or(command);
    let arguments =
        if command.is_empty() { Vec::new() } else { command.split(|b| *b == 0).map(text).collect() };
    let environment = environment
        .split(|byte| *byte == 0)
        .filter_map(|entry| text(entry).split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned())))
        .filter(|(name, _)| is_recorded(name))
        .collect();
    ProcessIdentity { arguments, environment }
}
