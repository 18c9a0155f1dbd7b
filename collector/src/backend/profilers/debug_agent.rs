//! The ROCm Debug Agent: when a kernel faults, it writes the kernel and its code object to a dump.

use crate::backend::request::{BackendPlan, UnavailableBackend};
use crate::backend::rocm_tools;
use std::ffi::OsString;
use std::path::Path;

const LIBRARIES: [&str; 2] = ["librocm-debug-agent.so.2", "librocm-debug-agent.so"];
/// Name of the dump.
pub(crate) const DUMP: &str = "debug-agent.txt";
/// Name of the folder with the code objects.
pub(crate) const CODE_OBJECTS: &str = "code-objects";
/// Maximum number of bytes of a dump to search.
const MAX_DUMP_BYTES: usize = 64 << 20;
/// Maximum length of the name of a kernel or code object.
const MAX_NAME_LENGTH: usize = 1024;

/// Sets the variables that ROCm documents. Options of the user follow ours.
pub(crate) fn prepare(folder: &Path, plan: &mut BackendPlan) -> Result<(), UnavailableBackend> {
    let library = rocm_tools::find_library(&LIBRARIES).ok_or_else(|| {
        UnavailableBackend(format!(
            "no {} in {}: the command runs without --debug-agent; install rocm-debug-agent",
            LIBRARIES[0],
            rocm_tools::LIBRARY_PLACES
        ))
    })?;
    if folder.to_string_lossy().contains(' ') {
        return Err(UnavailableBackend(format!(
            "{}: the Debug Agent takes no path with a space; choose another with --scratch",
            folder.display()
        )));
    }
    let objects = folder.join(CODE_OBJECTS);
    std::fs::create_dir_all(&objects)
        .map_err(|error| UnavailableBackend(format!("{}: cannot be made: {error}", objects.display())))?;
    let mut options = OsString::from("--all --output=");
    options.push(folder.join(DUMP));
    options.push(" --save-code-objects=");
    options.push(&objects);
    if let Some(more) = std::env::var_os("ROCM_DEBUG_AGENT_OPTIONS").filter(|more| !more.is_empty()) {
        options.push(" ");
        options.push(more);
    }
    plan.note(format!("debug agent: {}", library.display()));
    plan.variables.push(("HSA_TOOLS_LIB".to_owned(), library.into()));
    plan.variables.push(("HSA_ENABLE_DEBUG".to_owned(), "1".into()));
    plan.variables.push(("ROCM_DEBUG_AGENT_OPTIONS".to_owned(), options));
    Ok(())
}

/// A fault in a dump.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KernelFault {
    /// Name of the kernel, or the address of its code if it has no name.
    pub(crate) kernel: String,
    /// URI of the code object, if the dump has it.
    pub(crate) code_object: Option<String>,
    /// Line with the reason, if there is one.
    pub(crate) reason: Option<String>,
}

/// Finds the fault in a dump. With `--all` the dump has all waves. The wave that stopped for a reason is the
/// faulting one, and its line names the kernel. The disassembly of that kernel names the code object.
pub(crate) fn fault_in(dump: &[u8]) -> Option<KernelFault> {
    const DISASSEMBLY: &str = "Disassembly for function ";
    let text = String::from_utf8_lossy(&dump[..dump.len().min(MAX_DUMP_BYTES)]);
    let shortened = |name: &str| name.trim().chars().take(MAX_NAME_LENGTH).collect::<String>();
    let is_fault = |line: &&str| {
        let stopped = line.split_once("stopped, reason:");
        stopped.is_some_and(|(_, reason)| !reason.trim_start().starts_with("NONE"))
            || line.contains("Memory access fault")
    };
    let reason = text.lines().find(is_fault);
    let named = reason.and_then(|line| {
        let (_, after) = line.split_once("kernel_code_entry=")?;
        let inside = after.split_once('<')?.1.split_once(">)")?.0;
        Some(inside.split('+').next().unwrap_or(inside).trim())
    });
    let kernel_of =
        |part: &str| part.lines().next().unwrap_or_default().trim_end().trim_end_matches(':').to_owned();
    let mut parts = text.split(DISASSEMBLY).skip(1);
    let part = match named {
        Some(named) => parts.find(|part| kernel_of(part) == named),
        None => parts.next(),
    };
    let kernel = named.map(str::to_owned).or_else(|| part.map(kernel_of))?;
    // The URI is in the same line or in the next one.
    let lines = part.unwrap_or_default().lines().take(20).skip_while(|line| !line.contains("code object:"));
    let code_object = lines.flat_map(str::split_whitespace).find(|word| word.contains("://"));
    Some(KernelFault {
        kernel: shortened(&kernel),
        code_object: code_object.map(shortened),
        reason: reason.map(shortened),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_names_kernel_and_code_object() {
        let dump =
            b"Queue error\nwave_1: pc=0x7f (stopped, reason: MEMORY_VIOLATION)\n\nDisassembly for function \
vector_add(int*, int*):\n    code object:\nfile:///a/b#offset=14309&size=31336\n    loaded at: [0x1-0x2]\n";
        let fault = fault_in(dump).unwrap();
        assert_eq!(fault.kernel, "vector_add(int*, int*)");
        assert_eq!(fault.code_object.as_deref(), Some("file:///a/b#offset=14309&size=31336"));
        assert!(fault.reason.unwrap().contains("MEMORY_VIOLATION"));
        let one_line = b"Disassembly for function k:\n    code object: memory://7#offset=1&size=2\n";
        assert_eq!(fault_in(one_line).unwrap().code_object.as_deref(), Some("memory://7#offset=1&size=2"));
        let two = b"wave_1: pc=0x1 (kernel_code_entry=0x10 <innocent(float*)>) (stopped, reason: NONE)\n\
wave_2: pc=0x2 (kernel_code_entry=0x20 <guilty(float*)>) (stopped, reason: MEMORY_VIOLATION)\n\
Disassembly for function innocent(float*):\n    code object: file:///i\n\
Disassembly for function guilty(float*):\n    code object: file:///g\n";
        let fault = fault_in(two).unwrap();
        assert_eq!(
            (fault.kernel.as_str(), fault.code_object.as_deref()),
            ("guilty(float*)", Some("file:///g"))
        );
        let alone =
            b"wave_2: pc=0x2 (kernel_code_entry=0x20 <guilty(float*)>) (stopped, reason: ASSERT_TRAP)\n";
        assert_eq!(fault_in(alone).unwrap().kernel, "guilty(float*)");
        for none in [&b""[..], b"Disassembly for", b"\xff\xfe\n"] {
            assert_eq!(fault_in(none), None);
        }
    }
}
