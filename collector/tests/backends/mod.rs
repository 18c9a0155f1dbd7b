//! Profilers of ROCm, according to their documentation: stand-ins with their names check how they are called,
//! and leave real files. The profilers themselves were never run here, because there is no GPU.

mod agent;
mod combinations;
mod rocm;
mod trouble;

use crate::support;
use rpd_rocpd::Guid;
use rpd_shard::Shard;
use rpd_shard::file::BlockKind;
use rpd_shard::model::TableId;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Bench, run};

/// Regions that a stand-in records for each process.
const CALLS: usize = 50;
const PROFILER: &str = include_str!("profiler.py");

/// A bench with stand-ins first in PATH.
struct Rocm {
    bench: Bench,
    bin: PathBuf,
    scratch: PathBuf,
}

impl Rocm {
    /// Makes stand-ins with these names.
    fn new(names: &[&str]) -> Option<Rocm> {
        let bench = Bench::new()?;
        let (bin, scratch) = (bench.path("rocm/bin"), bench.path("scratch"));
        for folder in [&bin, &scratch, &bench.path("rocm/lib")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let guid = Guid::from_bits(7);
        std::fs::write(bin.join("schema.sql"), rpd_rocpd::schema::create_all(&guid)).unwrap();
        std::fs::write(bin.join("uuid"), guid.suffix()).unwrap();
        for name in names {
            std::fs::write(bin.join(name), PROFILER).unwrap();
            std::fs::set_permissions(bin.join(name), PermissionsExt::from_mode(0o755)).unwrap();
        }
        Some(Rocm { bench, bin, scratch })
    }

    /// Returns rpd-collect with this ROCm, as rank 3 of 4.
    fn collect(&self) -> Command {
        let mut command = self.bench.collect();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places = [self.bin.clone()].into_iter().chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(places).unwrap());
        command.env("ROCM_PATH", self.bench.path("rocm")).env("TMPDIR", &self.scratch);
        command.env("RANK", "3").env("WORLD_SIZE", "4");
        command
    }

    /// Returns how the stand-ins were called: words and variables.
    fn calls(&self) -> Vec<(Vec<String>, serde_json::Value)> {
        let text = std::fs::read_to_string(self.bin.join("calls.jsonl")).unwrap_or_default();
        let call = |line: &str| {
            let call: serde_json::Value = serde_json::from_str(line).unwrap();
            let words =
                call["words"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned());
            (words.collect(), call["variables"].clone())
        };
        text.lines().map(call).collect()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.bench.path("out/run/rank-00003.log")).unwrap_or_default()
    }

    /// Returns the shards of a profiler, sorted by name.
    fn shards(&self, backend: &str) -> Vec<Shard> {
        let entries = std::fs::read_dir(self.bench.path("out/run")).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with(&format!("rank-00003.{backend}-")) && name.ends_with(".rpdshard")
        });
        paths.sort();
        paths.iter().map(|path| Shard::open(path).unwrap()).collect()
    }

    /// Returns what is left on the node.
    fn left(&self) -> Vec<OsString> {
        std::fs::read_dir(&self.scratch).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }
}

fn rows(shard: &Shard, table: TableId) -> usize {
    let blocks = shard.blocks().iter().filter(|block| block.header.kind == BlockKind::Rows(table));
    blocks.map(|block| shard.rows(block).unwrap().len).sum()
}

/// A program that prints a line and ends with a status.
const PROGRAM: [&str; 3] = ["sh", "-c", "echo out; echo err >&2; exit 7"];

/// Runs it, and asserts that its output and status show no fault.
fn runs_as_ever(command: &mut Command) -> String {
    let output = run(command.arg("--").args(PROGRAM));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(support::exit_code(&output), 7, "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "out\n");
    assert_eq!(stderr.lines().filter(|line| *line == "err").count(), 1, "{stderr}");
    stderr
}

/// Whether two paths name one file.
fn is_in(path: &str, folder: &Path) -> bool {
    Path::new(path).starts_with(folder)
}

/// Returns the process of the command, from its start mark.
fn command(rocm: &Rocm) -> u32 {
    let mut pid = None;
    support::until("the mark", || {
        let mark = rocm.left().pop().map(|folder| rocm.scratch.join(folder).join("started"));
        let text = mark.and_then(|mark| std::fs::read_to_string(mark).ok()).unwrap_or_default();
        pid = text.contains('\n').then(|| text.split(' ').next().unwrap().parse().unwrap());
        pid.is_some()
    });
    pid.unwrap()
}
