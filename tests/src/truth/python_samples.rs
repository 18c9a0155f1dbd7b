//! Sampled call stacks of Python, as a collector writes them of each thread.

use super::row_recorder::RankRows;
use super::run_shards::push_values;
use crate::synthetic::RandomSource;
use rpd_shard::model::{native, rocpd};
use rpd_shard::{ShardWriter, WriteError};

/// Time between two samples, ns, and the same after the middle of the run.
const PERIODS_NS: [i64; 2] = [10_100_000, 20_200_000];
/// Key of the thread that loads data and calls no MPI.
const LOADER: i64 = 2;
/// Share of the usual work of a step that `augment` takes on a rank with [`PlantedSlowness::Function`].
const USUAL_AUGMENT: f64 = 0.12;
/// The same with [`PlantedSlowness::NativeCode`].
const MAIN_AUGMENT: f64 = 0.95;

/// Where in a program in Python the planted excess of a rank is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedSlowness {
    /// In `augment`, which takes a small part of the work of other ranks.
    Function,
    /// In native code that `augment` calls, which takes most of the work of all ranks.
    NativeCode,
    /// In all functions alike.
    AllFunctions,
}

/// A program in Python of which stacks are sampled.
#[derive(Clone, Copy, Debug)]
pub struct PythonProfile {
    /// Range with the planted excess, in which `forward` runs.
    pub range: &'static str,
    /// The rank with the excess, and its excess in each range, ns.
    pub excess: (u32, u64),
    /// Where it is.
    pub slowness: PlantedSlowness,
}

/// A function that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RunningFunction {
    Augment,
    Forward,
    Convolution,
    Norm,
    Train,
    Loader,
}

impl RunningFunction {
    /// Returns the stack as the collector writes it, the innermost frame first.
    fn stack(self) -> String {
        let frame = |name: &str, file: &str, line: u32| {
            format!(r#"{{"name":"{name}","file":"/app/{file}","line":{line}}}"#)
        };
        let main = [frame("train", "train.py", 31), frame("<module>", "train.py", 40)];
        let forward = |line| frame("Model.forward", "model.py", line);
        let call = || frame("Module.__call__", "nn/module.py", 7);
        let inner = match self {
            RunningFunction::Augment => vec![frame("Dataset.augment", "data.py", 88), forward(12), call()],
            RunningFunction::Forward => vec![forward(14), call()],
            RunningFunction::Convolution => {
                vec![frame("Conv.forward", "nn/conv.py", 5), call(), forward(15), call()]
            }
            RunningFunction::Norm => {
                vec![frame("Norm.forward", "nn/norm.py", 9), call(), forward(16), call()]
            }
            RunningFunction::Train => Vec::new(),
            RunningFunction::Loader => vec![frame("Dataset.augment", "data.py", 88)],
        };
        let frames: Vec<String> = inner.into_iter().chain(main).collect();
        format!(r#"{{"frames":[{}]}}"#, frames.join(","))
    }
}

impl PythonProfile {
    /// Returns the function that runs at a time of a range of this length, ns.
    fn function_at(&self, rank: u32, at_ns: i64, length_ns: i64) -> RunningFunction {
        let excess_ns = if rank == self.excess.0 { self.excess.1 as i64 } else { 0 };
        let usual_ns = length_ns - excess_ns;
        let (of_usual, of_all) = (at_ns as f64 / usual_ns as f64, at_ns as f64 / length_ns as f64);
        match self.slowness {
            PlantedSlowness::Function if !(USUAL_AUGMENT..1.0).contains(&of_usual) => {
                RunningFunction::Augment
            }
            PlantedSlowness::Function if of_usual < 0.6 => RunningFunction::Convolution,
            PlantedSlowness::NativeCode if of_usual >= 1.0 - MAIN_AUGMENT => RunningFunction::Augment,
            PlantedSlowness::NativeCode => RunningFunction::Forward,
            PlantedSlowness::AllFunctions if of_all < 0.3 => RunningFunction::Augment,
            PlantedSlowness::AllFunctions if of_all < 0.7 => RunningFunction::Convolution,
            _ => RunningFunction::Norm,
        }
    }

    /// Returns the share of the time in the range in which `augment` runs on a rank with the excess, and on one without, if
    /// the range has this length without it, ns.
    pub fn augment_shares(&self, usual_ns: u64) -> [f64; 2] {
        let (usual, excess) = (usual_ns as f64, self.excess.1 as f64);
        let with_excess = |share: f64| [(usual * share + excess) / (usual + excess), share];
        match self.slowness {
            PlantedSlowness::Function => with_excess(USUAL_AUGMENT),
            PlantedSlowness::NativeCode => with_excess(MAIN_AUGMENT),
            PlantedSlowness::AllFunctions => [0.3; 2],
        }
    }
}

/// Adds the samples of a rank of the source `source`. `local` returns the time on its clock, and the run lasts `length_ns`.
pub(super) fn add_python_samples(
    shard: &mut ShardWriter<Vec<u8>>,
    (rank, rows, length_ns): (u32, &RankRows, i64),
    profile: &PythonProfile,
    local: impl Fn(i64) -> i64,
) -> Result<(), WriteError> {
    push_values(shard, rocpd::INFO_THREAD, &[("nid", 1.into()), ("pid", 1.into()), ("tid", 99_999.into())])?;
    let name = shard.string(b"Python stack")?;
    let mut tracks = Vec::new();
    for thread in [1, LOADER] {
        let track = [("nid", 1.into()), ("pid", 1.into()), ("tid", thread.into()), ("name_id", name.into())];
        tracks.push(push_values(shard, rocpd::TRACK, &track)?);
    }
    let category = shard.string(b"PYTHON_SAMPLE")?;
    let ranges: Vec<(i64, i64)> = rows
        .rows
        .iter()
        .filter(|row| row.table == native::RANGE && row.name == profile.range)
        .map(|row| (row.start_ns, row.end_ns))
        .collect();
    let mut random = RandomSource::new(&[u64::from(rank), 88]);
    let (mut at_ns, mut stated_ns) = (PERIODS_NS[0], 0);
    while at_ns < length_ns {
        let period_ns = PERIODS_NS[usize::from(at_ns > length_ns / 2)];
        let next = ranges.partition_point(|(_, end)| *end <= at_ns);
        let range = ranges.get(next).filter(|(start, _)| *start <= at_ns);
        let running = range.map_or(RunningFunction::Train, |(start, end)| {
            profile.function_at(rank, at_ns - start, end - start)
        });
        // The loader states the period, if it is sampled first.
        for (track, function) in [(tracks[1], RunningFunction::Loader), (tracks[0], running)] {
            let period = format!(r#"{{"rpd":{{"period_ms":{}}}}}"#, period_ns as f64 / 1e6);
            let extdata = if stated_ns == period_ns { "{}" } else { period.as_str() };
            stated_ns = period_ns;
            let stack = function.stack();
            let event = [
                ("category_id", category.into()),
                ("call_stack", stack.as_str().into()),
                ("extdata", extdata.into()),
            ];
            let event = push_values(shard, rocpd::EVENT, &event)?;
            let time = local(at_ns);
            let sample = [("track_id", track.into()), ("timestamp", time.into()), ("event_id", event.into())];
            push_values(shard, rocpd::SAMPLE, &sample)?;
        }
        // Timers are never exact.
        at_ns += period_ns + random.between(0, period_ns / 8);
    }
    Ok(())
}
