//! Traces show what the merged database of the same run has, whole and in slices: Perfetto's own trace processor is
//! asked for all of it.
#![allow(clippy::unwrap_used)]

mod chrome;
mod compare;
mod edges;
mod expected;
mod garbage;
mod opening;
mod processes;
mod read;
mod sampled;
mod selection;
mod ui;

use crate::mpi_end_to_end::{collected_training, python_with_mpi};
use compare::{Window, assert_shows, sums};
use expected::Drawing;
use read::{Shown, read};
use rpd_tests::fixtures;
use rpd_tests::harness::{
    Database, Job, JobOutcome, RunFolder, TraceProcessor, rpd_merge, rpd_merge_mpi, skip,
};
use rpd_tests::synthetic::SyntheticRun;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The files of a trace, as its index lists them.
struct Slices {
    folder: PathBuf,
    files: Vec<(PathBuf, Window)>,
    index: Value,
}

impl Slices {
    fn at(folder: &Path) -> Slices {
        let index: Value = serde_json::from_slice(&fs::read(folder.join("index.json")).unwrap()).unwrap();
        let file = |file: &Value| {
            let window = (file["from_ns"].as_i64().unwrap(), file["to_ns"].as_i64().unwrap());
            (folder.join(file["name"].as_str().unwrap()), window)
        };
        let files = index["files"].as_array().unwrap().iter().map(file).collect();
        Slices { folder: folder.to_owned(), files, index }
    }

    /// How large the files are before compression.
    fn raw_bytes(&self) -> Vec<u64> {
        let files = self.index["files"].as_array().unwrap();
        files.iter().map(|file| file["raw_bytes"].as_u64().unwrap()).collect()
    }

    fn windows(&self) -> Vec<Window> {
        self.files.iter().map(|(_, window)| *window).collect()
    }

    /// All files, each unpacked; and one after the other, unpacked and as they are.
    fn unpacked(&self) -> (Vec<PathBuf>, PathBuf, PathBuf) {
        let mut plain = Vec::new();
        let (mut all, mut packed) = (Vec::new(), Vec::new());
        for (path, _) in &self.files {
            let bytes = fs::read(path).unwrap();
            let unpacked = gunzip(path);
            let to = path.with_extension("");
            fs::write(&to, &unpacked).unwrap();
            plain.push(to);
            all.extend(unpacked);
            packed.extend(bytes);
        }
        let (together, packed_together) =
            (self.folder.join("all.pftrace"), self.folder.join("all.pftrace.gz"));
        fs::write(&together, all).unwrap();
        fs::write(&packed_together, packed).unwrap();
        (plain, together, packed_together)
    }

    /// What is read of them: each file, unpacked; all together; the first as it is; all together as they are, if this
    /// version reads more than the first of several packed files.
    fn traces(&self, tp: &TraceProcessor) -> Vec<PathBuf> {
        let (mut traces, together, packed) = self.unpacked();
        traces.push(together);
        traces.extend(self.files.first().map(|(path, _)| path.clone()));
        traces.extend((!tp.version().starts_with("v47")).then_some(packed));
        traces
    }
}

fn gunzip(path: &Path) -> Vec<u8> {
    let to = path.with_extension("unpacked");
    let command = format!("gzip -dc '{}' > '{}'", path.display(), to.display());
    let _ = Job::new("sh").args(["-c", &command]).run().success();
    let bytes = fs::read(&to).unwrap();
    fs::remove_file(&to).unwrap();
    bytes
}

/// A run, its merged database, and what a trace of it must show.
struct Subject {
    folder: tempfile::TempDir,
    inputs: Vec<PathBuf>,
    database: PathBuf,
    drawing: Drawing,
}

impl Subject {
    fn of(inputs: &[PathBuf]) -> Subject {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("inputs");
        fs::create_dir(&place).unwrap();
        let _ = Job::new("cp").arg("-r").args(inputs).arg(&place).run().success();
        let inputs = inputs.iter().map(|input| place.join(input.file_name().unwrap())).collect::<Vec<_>>();
        let database = folder.path().join("merged.db");
        let _ = rpd_merge().arg("-o").arg(&database).args(&inputs).run().success();
        let drawing = Drawing::of(&Database::open(&database));
        assert!(!drawing.spans.is_empty() || !drawing.values.is_empty());
        Subject { folder, inputs, database, drawing }
    }

    /// A path beside the database.
    fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Slices of the inputs, which are thrown away.
    fn drawn(&self, options: &[&str]) -> JobOutcome {
        let folder = tempfile::tempdir_in(self.folder.path()).unwrap();
        rpd_merge().args(options).arg("-o").arg(folder.path().join("drawn")).args(&self.inputs).run()
    }

    /// Slices of the run, of its inputs or of its database.
    fn sliced(&self, job: Job, name: &str, options: &[&str], of_database: bool) -> Slices {
        let folder = self.beside(name);
        fs::create_dir(&folder).unwrap();
        let inputs = if of_database { std::slice::from_ref(&self.database) } else { &self.inputs[..] };
        let _ = job.args(options).arg("-o").arg(&folder).args(inputs).run().success();
        Slices::at(&folder)
    }

    /// Events, and bytes before compression, of the whole.
    fn size(&self) -> (u64, u64) {
        let whole =
            self.sliced(rpd_merge(), "measured", &["--format", "perfetto", "--split-by-time", "1"], true);
        let file = &whole.index["files"][0];
        let events = file["events"].as_object().unwrap();
        let events = events
            .iter()
            .filter(|(what, _)| *what != "flows")
            .map(|(_, count)| count.as_u64().unwrap())
            .sum();
        (events, file["raw_bytes"].as_u64().unwrap())
    }

    /// Compares the whole, in one file, and sets of slices with the database, with all versions of the trace processor.
    fn check(&self, whole: &Slices, sets: &[&Slices]) {
        for tp in TraceProcessor::all("slices of a run") {
            let plain = whole.unpacked().0;
            let of_sets: Vec<Vec<PathBuf>> = sets.iter().map(|slices| slices.traces(&tp)).collect();
            // All in one go, since each start of the trace processor takes seconds.
            let all: Vec<PathBuf> = plain.into_iter().chain(of_sets.iter().flatten().cloned()).collect();
            let mut shown = read(&tp, &all).into_iter();
            let whole_shown = shown.next().unwrap();
            assert_shows(&whole_shown, &self.drawing, &whole.windows(), tp.version());
            assert!(!whole_shown.flows.is_empty() || self.drawing.arrows.is_empty());
            for (slices, traces) in sets.iter().zip(of_sets) {
                let shown: Vec<Shown> = shown.by_ref().take(traces.len()).collect();
                self.check_set(&format!("{} of {}", slices.folder.display(), tp.version()), slices, &shown);
                let alone = shown.get(..slices.files.len()).unwrap();
                assert_eq!(
                    sums(alone.iter()),
                    sums(std::iter::once(&whole_shown)),
                    "{}",
                    slices.folder.display()
                );
            }
        }
    }

    /// Each file, and all together as [`Slices::traces`] has them.
    fn check_set(&self, what: &str, slices: &Slices, shown: &[Shown]) {
        let windows = slices.windows();
        assert!(windows.windows(2).all(|two| two[0].1 == two[1].0), "{what}: {windows:?}");
        let (alone, together) = shown.split_at(slices.files.len());
        for (shown, (path, window)) in alone.iter().zip(&slices.files) {
            assert_shows(shown, &self.drawing, &[*window], &format!("{what}: {}", path.display()));
        }
        assert_shows(&together[0], &self.drawing, &windows, &format!("{what}, together"));
        assert_shows(&together[1], &self.drawing, &windows[..1], &format!("{what}, packed"));
        if let Some(packed) = together.get(2) {
            assert_shows(packed, &self.drawing, &windows, &format!("{what}, together and packed"));
        }
    }

    /// Compares so many slices by time, and several by events and by size, with the database. They are made of the inputs,
    /// by two ranks if so asked, or of the database.
    fn check_cuts(&self, count: u64, by_ranks: bool) {
        let (events, bytes) = self.size();
        let one = self.sliced(rpd_merge(), "whole", &["--split-by-time", "1"], false);
        let by_time = ["--split-by-time", &count.to_string()];
        let job = if by_ranks { rpd_merge_mpi(2) } else { rpd_merge() };
        let by_time = self.sliced(job, "time", &by_time, count == 7);
        assert_eq!(by_time.files.len() as u64, count);
        let lengths = by_time.windows().into_iter().map(|(from, to)| to - from);
        assert!(lengths.clone().max().unwrap() - lengths.min().unwrap() <= 1);

        // It takes the trace processor a tenth of a second to begin a file.
        let count = count.min(10);
        let most = events.div_ceil(count);
        let by_events = ["--split-by-events", &most.to_string()];
        let by_events = self.sliced(rpd_merge(), "events", &by_events, !by_ranks);
        let files = by_events.files.len() as u64;
        assert!(count / 2 <= files && files <= 2 * count, "{files} files, {count} would do");

        // What it costs to say once more which tracks there are, and what things are called.
        let again = by_events.raw_bytes().iter().sum::<u64>().saturating_sub(bytes) / (files - 1);
        let most = bytes.div_ceil(count).max(4 * again).max(4 << 10);
        let job = if by_ranks { rpd_merge_mpi(2) } else { rpd_merge() };
        let by_size = self.sliced(job, "size", &["--split-by-size", &most.to_string()], !by_ranks);
        let (files, least) = (by_size.files.len() as u64, bytes / most);
        assert!(least <= files && files <= 3 * least + 3, "{files} files, {least} would do");
        for file in by_size.raw_bytes() {
            assert!(file <= most + most / 8, "a file has {file} bytes, more than {most}");
        }
        assert!(files >= 3 || bytes < 3 * most, "{files} files of {bytes} bytes");

        self.check(&one, &[&by_time, &by_events, &by_size]);
    }
}

#[test]
fn slices_of_an_mpi_training_show_its_database() {
    let python = match python_with_mpi() {
        Ok(python) => python,
        Err(why) => return skip("slices of the training", why),
    };
    let folder = tempfile::tempdir().unwrap();
    let run = collected_training(&python, folder.path());
    let subject = Subject::of(&[run]);
    assert!(!subject.drawing.joint.is_empty(), "the ranks call collectives");
    subject.check_cuts(32, true);
}

/// Kernels overlap, ranges are open for long.
fn synthetic(events_per_rank: usize) -> Subject {
    let run = SyntheticRun { events_per_rank, workers: true, equal_pids: true, ..SyntheticRun::default() };
    let run = RunFolder::new(&run);
    let subject = Subject::of(std::slice::from_ref(&run.path));
    assert!(!subject.drawing.arrows.is_empty() && !subject.drawing.values.is_empty());
    subject
}

#[test]
fn a_few_slices_of_overlapping_kernels_show_their_database() {
    synthetic(200).check_cuts(7, false);
}

#[test]
fn many_slices_of_overlapping_kernels_show_their_database() {
    synthetic(1200).check_cuts(32, false);
}

/// A file that a user of rocmProfileData made: 0 is small, 1 of PyTorch.
fn rpd_file(which: usize) -> Option<Subject> {
    let folder = tempfile::tempdir().unwrap();
    fixtures::rpd_files(folder.path()).get(which).map(|file| Subject::of(std::slice::from_ref(file)))
}

#[test]
fn slices_of_a_small_rpd_file_show_its_database() {
    if let Some(subject) = rpd_file(0) {
        subject.check_cuts(32, false);
    }
}

#[test]
fn slices_of_the_rpd_file_of_a_training_show_its_database() {
    if let Some(subject) = rpd_file(1) {
        subject.check_cuts(32, false);
    }
}

#[test]
fn slices_of_real_databases_show_their_merge() {
    let folder = tempfile::tempdir().unwrap();
    let databases = fixtures::rocpd_databases(folder.path());
    if !databases.is_empty() {
        Subject::of(&databases).check_cuts(32, false);
    }
}
