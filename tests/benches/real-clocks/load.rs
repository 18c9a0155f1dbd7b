//! Other work on the cores of the emulated nodes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

/// One kind of run.
pub(crate) struct Kind {
    /// Begins with `idle` or `busy`.
    pub(crate) name: &'static str,
    /// What ranks do between collectives: `sleep` or `spin`.
    pub(crate) ranks: &'static str,
    /// For how long, ms.
    pub(crate) gap_ms: &'static str,
    /// Loops that compile, and loops that only spin.
    compiling: usize,
    spinning: usize,
}

/// The kinds of a batch.
pub(crate) const KINDS: [Kind; 5] = [
    Kind { name: "idle_sleep", ranks: "sleep", gap_ms: "20", compiling: 0, spinning: 0 },
    Kind { name: "busy_compile", ranks: "sleep", gap_ms: "2", compiling: 5, spinning: 0 },
    Kind { name: "busy_spin", ranks: "spin", gap_ms: "5", compiling: 5, spinning: 0 },
    Kind { name: "busy_sleep_sp2", ranks: "sleep", gap_ms: "20", compiling: 5, spinning: 2 },
    Kind { name: "busy_sleep_sp4", ranks: "sleep", gap_ms: "2", compiling: 5, spinning: 4 },
];

/// A source that takes the compiler a second or so.
const SOURCE: &str = "#include <regex>
#include <map>
#include <string>
int count(const std::string &text) {
    std::map<std::string, int> seen;
    seen[text] += std::regex_match(text, std::regex(\"(x|yz)*w+\"));
    return seen.size();
}
";

/// Loops that run until this is dropped.
pub(crate) struct Load {
    over: Arc<AtomicBool>,
    loops: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(kind: &Kind, folder: &Path) -> Load {
        fs::create_dir_all(folder).expect("a folder for the load");
        let source = folder.join("load.cc");
        fs::write(&source, SOURCE).expect("a source to compile");
        let over = Arc::new(AtomicBool::new(false));
        let compile = |number: usize| {
            let (over, source, object) = (over.clone(), source.clone(), folder.join(format!("{number}.o")));
            std::thread::spawn(move || compile_until(&over, &source, &object))
        };
        let mut loops: Vec<JoinHandle<()>> = (0..kind.compiling).map(compile).collect();
        let spin = |_| {
            let over = over.clone();
            std::thread::spawn(move || {
                while !over.load(Relaxed) {
                    std::hint::spin_loop()
                }
            })
        };
        loops.extend((0..kind.spinning).map(spin));
        Load { over, loops }
    }
}

fn compile_until(over: &AtomicBool, source: &PathBuf, object: &PathBuf) {
    while !over.load(Relaxed) {
        let mut compiler = Command::new("c++");
        compiler.arg("-O2").arg("-c").arg(source).arg("-o").arg(object);
        let status = compiler.stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(status.is_ok_and(|status| status.success()), "c++ cannot compile the load");
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        self.loops.drain(..).for_each(|thread| drop(thread.join()));
    }
}
