//! Merged databases of every kind of input.

use clap::Parser;
use flate2::read::GzDecoder;
use rpd_comm::Solo;
use rpd_merge::CommandLine;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Merged databases, removed with this value.
pub(crate) struct MergedRuns {
    folder: TempDir,
    /// Name and path of each.
    pub(crate) databases: Vec<(String, PathBuf)>,
}

/// Merges inputs into a database with options of rpd-merge.
pub(crate) fn merge(options: &[&str], inputs: &[PathBuf], output: &Path) {
    let options = ["rpd-merge", "--quiet", "-o"]
        .map(PathBuf::from)
        .into_iter()
        .chain([output.to_owned()])
        .chain(options.iter().map(PathBuf::from));
    let cli = CommandLine::try_parse_from(options.chain(inputs.iter().cloned())).unwrap();
    let merged = rpd_merge::merge(&Solo, &cli.merge);
    merged.unwrap_or_else(|failure| panic!("{inputs:?}: {failure}"));
}

/// The shards of the repository: of one process, and of two ranks with different clocks.
pub(crate) fn kept_shards() -> [Vec<PathBuf>; 3] {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    [vec!["shard-v3"], vec!["shard-v2-rank-0", "shard-v2"], vec!["shard-v3-database"]]
        .map(|names| names.into_iter().map(|name| data.join(format!("{name}.rpdshard"))).collect())
}

impl MergedRuns {
    /// Merges the shards of the repository, and the real files of other tools in `$RPD_SHARED` or `../shared` beside
    /// the repository, which are not in it.
    pub(crate) fn all() -> MergedRuns {
        let mut runs = MergedRuns { folder: tempfile::tempdir().unwrap(), databases: Vec::new() };
        for (place, shards) in kept_shards().iter().enumerate() {
            runs.add(&format!("kept-{place}"), shards);
        }
        let shared = std::env::var_os("RPD_SHARED").map(PathBuf::from);
        let shared = shared.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
        let data = shared.join("data");
        if !data.is_dir() {
            eprintln!("SKIPPED real files: no {} (set RPD_SHARED)", data.display());
            return runs;
        }
        for kind in ["rocpd", "rocprofv3", "kineto/ddp2"] {
            let files = runs.unpack(&data.join(kind));
            runs.add(&kind.replace('/', "-"), &files);
        }
        for kind in ["rpd", "kineto/real"] {
            for file in runs.unpack(&data.join(kind)) {
                let name = file.file_stem().unwrap().to_string_lossy().into_owned();
                runs.add(&name, &[file]);
            }
        }
        runs.add_clock_run(&data.join("clocks/runs.tar.xz"));
        runs
    }

    fn add(&mut self, name: &str, inputs: &[PathBuf]) {
        let output = self.folder.path().join(format!("{name}.db"));
        merge(&[], inputs, &output);
        self.databases.push((name.to_owned(), output));
    }

    /// Adds a run of a real collector on two emulated nodes.
    fn add_clock_run(&mut self, archive: &Path) {
        let mut tar = Command::new("tar");
        let status = tar.arg("-xJf").arg(archive).arg("-C").arg(self.folder.path()).status();
        assert!(status.unwrap().success());
        let run = fs::read_dir(self.folder.path().join("busy_b0_1")).unwrap().next().unwrap().unwrap().path();
        self.add("clocks", &[run]);
    }

    /// Copies the files of a folder, without compression.
    fn unpack(&self, from: &Path) -> Vec<PathBuf> {
        let mut packed: Vec<PathBuf> =
            fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()).collect();
        packed.sort();
        let unpack = |path: PathBuf| {
            let is_packed = path.extension().is_some_and(|ending| ending == "gz");
            let name = if is_packed { path.file_stem() } else { path.file_name() };
            let to = self.folder.path().join(name.unwrap());
            let mut out = File::create(&to).unwrap();
            let mut file = File::open(&path).unwrap();
            let copied = match is_packed {
                true => std::io::copy(&mut GzDecoder::new(file), &mut out),
                false => std::io::copy(&mut file, &mut out),
            };
            copied.unwrap();
            to
        };
        packed.into_iter().map(unpack).collect()
    }
}
