//! The ROCm Debug Agent.

use super::Rocm;
use crate::support::{Trace, exit_code, run, text};

/// A program that acts as the agent does when a kernel faults: a stand-in for both.
const FAULTS: &str = r#"
set -- $ROCM_DEBUG_AGENT_OPTIONS
for option; do case $option in
    --output=*) dump=${option#--output=} ;;
    --save-code-objects=*) objects=${option#--save-code-objects=} ;;
esac; done
[ "$HSA_ENABLE_DEBUG" = 1 ] && [ -n "$HSA_TOOLS_LIB" ] || exit 99
printf 'wave_1: pc=0x7f (stopped, reason: MEMORY_VIOLATION)\n\nDisassembly for function scale(float*, int):\n    code object:\nmemory://12#offset=0x10&size=64\n    loaded at: [0x1-0x2]\n' > "$dump"
echo object > "$objects/memory___12_offset_0x10_size_64"
kill -ABRT $$
"#;

#[test]
fn the_faulting_kernel_is_marked_at_the_end_of_the_rank() {
    let Some(rocm) = Rocm::new(&[]) else { return };
    let _ = rocm.bench.library_of("rocm/lib/librocm-debug-agent.so.2", "int debug_agent_stand_in;");
    let output = run(rocm.collect().args(["--debug-agent", "--", "sh", "-c", FAULTS]));
    assert_eq!(exit_code(&output), -6, "{}", String::from_utf8_lossy(&output.stderr));
    let trace = Trace::read(&rocm.bench.path("out/run/rank-00003.debug-agent.rpdshard"));
    let [mark] = &trace.marks[..] else { panic!("{:?}", trace.marks) };
    let words = text(mark, "name_id");
    assert!(
        words.contains("scale(float*, int)") && words.contains("memory://12#offset=0x10&size=64"),
        "{words}"
    );
    assert_eq!(trace.shard.processes[&1].rank, Some(3));
    let dump = std::fs::read_to_string(rocm.bench.path("out/run/rank-00003.debug-agent.txt")).unwrap();
    assert!(dump.contains("MEMORY_VIOLATION"));
    let object = std::fs::read_to_string(rocm.bench.path("out/run/rank-00003.code-object-1.co")).unwrap();
    assert_eq!(object, "object\n");
    assert!(rocm.log().contains("kernel scale(float*, int) faulted"), "{}", rocm.log());
    assert!(rocm.left().is_empty());
}

#[test]
fn a_run_without_a_fault_leaves_no_dump() {
    let Some(rocm) = Rocm::new(&[]) else { return };
    let _ = rocm.bench.library_of("rocm/lib/librocm-debug-agent.so.2", "int debug_agent_stand_in;");
    super::runs_as_ever(rocm.collect().args(["--debug-agent"]));
    let entries = std::fs::read_dir(rocm.bench.path("out/run")).unwrap();
    let names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().all(|name| !name.contains("debug-agent")), "{names:?}");
}

#[test]
fn a_missing_agent_is_named() {
    let Some(rocm) = Rocm::new(&[]) else { return };
    super::runs_as_ever(rocm.collect().args(["--debug-agent"]));
    assert!(rocm.log().contains("no librocm-debug-agent.so.2 in "), "{}", rocm.log());
}
