//! Collects ticks for the writing thread.

use super::SystemConfig;
use super::changed_values::ChangedValues;
use super::metrics::NodeMetrics;
use crate::host::{machine, process};
use crate::log::warn;
use crate::shard_output::{MetricsDescription, MetricsTick, OutputBatch, OutputItem, SideOutput};
use rpd_shard::record::{Process, ProcessExit};
use std::time::{Duration, Instant};

/// If the command ends within this time, its collector sends no metrics: they alone do not justify a shard.
const HOLD_BACK: Duration = Duration::from_secs(1);
const _: () = assert!(SEND_EVERY.as_millis() >= HOLD_BACK.as_millis());
/// Interval between two batches, each of which wakes the writing thread.
const SEND_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of items that are kept while the writing thread is far behind: a minute.
const MAX_PENDING_ITEMS: usize = 600;

/// Converts values to items, and sends them when there is room.
pub(super) struct MetricsOutbox {
    process: Process,
    began: Instant,
    output: SideOutput,
    items: Vec<OutputItem>,
    changed_values: ChangedValues,
    period: Option<Duration>,
    /// Time of the last batch, or of the start.
    last_sent: Instant,
    /// A batch was sent.
    has_sent: bool,
}

impl MetricsOutbox {
    pub(super) fn new(
        config: &SystemConfig,
        metrics: &NodeMetrics,
        began: Instant,
        output: SideOutput,
    ) -> MetricsOutbox {
        let process = describe(config);
        let description = MetricsDescription {
            source: config.source,
            agents: metrics.agents.clone(),
            counters: metrics.counters.clone(),
        };
        // If the shard has no other process, no other thread sends the clocks.
        let items = vec![
            OutputItem::Clock(Box::new(machine::clock_set(&process.domain))),
            OutputItem::Process(Box::new(process.clone())),
            OutputItem::MetricsDescription(Box::new(description)),
        ];
        MetricsOutbox {
            process,
            began,
            output,
            items,
            changed_values: ChangedValues::default(),
            period: None,
            last_sent: began,
            has_sent: false,
        }
    }

    pub(super) fn tick(&mut self, time: i64, period: Duration, values: &[Option<f64>]) {
        let changed = self.period.replace(period) != Some(period);
        let tick = MetricsTick {
            source: self.process.source,
            time,
            period: changed.then_some(period.as_millis()),
            values: self.changed_values.take(time, values),
        };
        if self.items.len() < MAX_PENDING_ITEMS {
            self.items.push(OutputItem::MetricsTick(Box::new(tick)));
        } else {
            self.lose(&tick);
        }
        if self.last_sent.elapsed() >= SEND_EVERY {
            self.send();
        }
    }

    /// Counts a tick as lost. There is one entry per table, however long this lasts.
    fn lose(&mut self, tick: &MetricsTick) {
        for loss in tick.losses() {
            let known = self.items.iter_mut().find_map(|item| match item {
                OutputItem::Loss(known) if known.table == loss.table => Some(known),
                _ => None,
            });
            match known {
                Some(known) => known.rows = known.rows.zip(loss.rows).map(|(a, b)| a.saturating_add(b)),
                None => self.items.push(OutputItem::Loss(loss)),
            }
        }
        self.changed_values.forget();
        self.period = None;
    }

    fn send(&mut self) {
        match self.output.try_send(OutputBatch::of(std::mem::take(&mut self.items))) {
            Ok(()) => (self.has_sent, self.last_sent) = (true, Instant::now()),
            Err(batch) => self.items = batch.items,
        }
    }

    /// Sends the rest and the end of the process, if a batch was sent before. Waits for room.
    pub(super) fn end(mut self) {
        if !self.has_sent && self.began.elapsed() < HOLD_BACK {
            return;
        }
        self.process.last_seen = Some(machine::boottime());
        self.process.exit = Some(ProcessExit::Code(0));
        self.items.push(OutputItem::Process(Box::new(self.process)));
        if self.output.send(OutputBatch::of(self.items)).is_err() {
            warn(format_args!(
                "warning: the last system metrics are not in the shard: the shard was finished first"
            ));
        }
    }
}

/// Describes the collector's own process, to which the rows belong.
fn describe(SystemConfig { source, defaults, .. }: &SystemConfig) -> Process {
    let stat = process::own_stat();
    Process {
        worker: true,
        ppid: stat.ppid,
        start_ticks: stat.start_ticks,
        command: format!("rpd-collect: system metrics of {}", defaults.node.hostname),
        ..defaults.describe_process(*source, defaults.rank.clone(), std::process::id() as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::RecordedThreads;
    use crate::launcher::{RankIdentity, SourceDefaults};
    use rpd_shard::model::rocpd::{EVENT, PMC_EVENT, SAMPLE};
    use rpd_shard::rank_set::RankSet;
    use std::path::PathBuf;

    const PERIOD: Duration = Duration::from_millis(100);

    fn config() -> SystemConfig {
        let domain = machine::clock_domain();
        let (rank, node) = (RankIdentity::default(), machine::node());
        SystemConfig {
            source: 9,
            run: PathBuf::from("run"),
            defaults: SourceDefaults { rank, rank_is_named: false, ranks: RankSet::default(), node, domain },
            root: PathBuf::from("/nowhere"),
            retry: PERIOD,
            threads: RecordedThreads::default(),
        }
    }

    /// Counts ticks, their values, and lost rows of three tables.
    fn count(items: &[OutputItem]) -> (u64, u64, [u64; 3]) {
        let (mut ticks, mut values, mut lost) = (0, 0, [0; 3]);
        for item in items {
            match item {
                OutputItem::MetricsTick(tick) => {
                    ticks += 1;
                    values += tick.values.len() as u64;
                }
                OutputItem::Loss(loss) => {
                    let place = [EVENT, SAMPLE, PMC_EVENT].iter().position(|t| Some(*t) == loss.table);
                    lost[place.unwrap()] += loss.rows.unwrap();
                }
                _ => {}
            }
        }
        (ticks, values, lost)
    }

    #[test]
    fn ticks_for_which_there_is_no_room_are_in_the_ledger() {
        let (output, side, written) = SideOutput::to_test();
        output.send(OutputBatch::of(vec![OutputItem::Name(b"in the way".as_slice().into())]));
        let long_ago = Instant::now().checked_sub(HOLD_BACK).unwrap();
        let metrics = NodeMetrics::find("/nowhere".as_ref(), 0);
        let mut outbox = MetricsOutbox::new(&config(), &metrics, long_ago, side);
        let mut expected = 0;
        for tick in 0..700 {
            // Two counters, of which one changes.
            outbox.tick(tick * 100_000_000, PERIOD, &[Some(1.0), Some(tick as f64)]);
            expected += 1;
        }
        assert_eq!(written.take().unwrap().len(), 1, "the writing thread is back");
        outbox.tick(70_000_000_000, PERIOD, &[Some(1.0), Some(5.0)]);
        assert_eq!(outbox.items.len(), 0, "everything is handed over at once");
        let first = written.take().unwrap();
        let (ticks, values, [events, samples, lost_values]) = count(&first);
        assert_eq!((ticks + events, events), (expected + 1, samples));
        assert!(first.len() <= MAX_PENDING_ITEMS + 3 && events > 90, "{} items", first.len());
        assert_eq!(lost_values, 1 + 2 * (events - 1), "a tick after a lost one has all values");
        assert!(values > ticks);
        assert!(matches!(&first[..2], [OutputItem::Clock(_), OutputItem::Process(_)]));
        outbox.last_sent = long_ago;
        outbox.tick(70_100_000_000, PERIOD, &[Some(1.0), Some(5.0)]);
        let (_, values, lost) = count(&written.take().unwrap());
        assert_eq!((values, lost), (2, [0; 3]), "so has the first one that is kept");
    }

    #[test]
    fn the_first_second_is_held_back_and_then_handed_over() {
        let (output, side, written) = SideOutput::to_test();
        let metrics = NodeMetrics::find("/nowhere".as_ref(), 0);
        let mut outbox = MetricsOutbox::new(&config(), &metrics, Instant::now(), side);
        outbox.tick(0, PERIOD, &[Some(1.0)]);
        assert!(written.take().is_none());
        outbox.began = Instant::now().checked_sub(HOLD_BACK).unwrap();
        outbox.last_sent = outbox.began;
        outbox.tick(1, PERIOD, &[Some(2.0)]);
        assert_eq!(count(&written.take().unwrap()).0, 2);
        outbox.tick(2, PERIOD, &[Some(3.0)]);
        assert!(written.take().is_none(), "a batch for each tick would wake the writing thread as often");
        outbox.end();
        let end = written.take().unwrap();
        let [OutputItem::MetricsTick(_), OutputItem::Process(process)] = end.as_slice() else {
            panic!("{end:?}")
        };
        assert!(process.exit == Some(ProcessExit::Code(0)) && process.last_seen.is_some());

        let mut short = MetricsOutbox::new(&config(), &metrics, Instant::now(), output.side());
        short.tick(0, PERIOD, &[Some(1.0)]);
        short.end();
        assert!(written.take().is_none(), "nothing comes of a short command");
    }
}
