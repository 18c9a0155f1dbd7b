//! Reads the labels of a table, which define the series of its columns.

use crate::table::{LineCells, TableLine, TableLines};
use rpd_translator::{FilePosition, TranslateError};
use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

/// Maximum number of columns; the next constants limit label lines and instances of a table.
const MAX_SERIES: usize = 1 << 20;
const MAX_LABELS: usize = 64;
pub(crate) const MAX_INSTANCES: usize = 1 << 17;
/// Maximum length of a label in bytes.
const MAX_TEXT: usize = 4096;
/// Labels with a special meaning: times, metrics, nodes; GPU labels follow.
const TIMES: &[u8] = b"timestamp";
const METRIC: &str = "metric";
const INSTANCE: &str = "instance";
const GPUS: [&str; 2] = ["card", "accel"];
/// Suffixes of metric names, and the units that they represent.
const UNITS: [(&str, &str); 12] = [
    ("_percentage", "%"),
    ("_percent", "%"),
    ("_celsius", "C"),
    ("_watts", "W"),
    ("_joules", "J"),
    ("_kilobytes", "kB"),
    ("_bytes", "bytes"),
    ("_mhz", "MHz"),
    ("_rpm", "rpm"),
    ("_ns", "ns"),
    ("_seconds", "s"),
    ("_count", "count"),
];

/// The series of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CounterSeries {
    /// Index of its instance.
    pub(crate) instance: u32,
    pub(crate) gpu: Option<i64>,
    pub(crate) metric: String,
    /// The metric with all labels except the instance and the GPU.
    pub(crate) name: String,
}

impl CounterSeries {
    pub(crate) fn unit(&self) -> &'static str {
        let plain = self.metric.strip_suffix("_total").unwrap_or(&self.metric);
        UNITS.iter().find(|(end, _)| plain.ends_with(end)).map_or("", |(_, unit)| unit)
    }
}

/// The lines above the values.
#[derive(Debug, Default)]
pub(crate) struct TableHead {
    /// Node names in column order.
    pub(crate) instances: Vec<String>,
    pub(crate) series: Vec<CounterSeries>,
}

impl TableHead {
    /// Reads the label lines up to the line of the times.
    pub(crate) fn read<R: BufRead>(
        lines: &mut TableLines<R>,
        path: &Path,
    ) -> Result<TableHead, TranslateError> {
        let mut labels: Vec<(String, Vec<Box<str>>)> = Vec::new();
        let wrong = |line: u64, reason: &str| TranslateError::NoContent {
            path: path.to_owned(),
            missing: "it is not a table of omnistat",
            reason: reason.to_owned(),
            position: FilePosition::Line(line),
            advice: "export it again with omnistat-query",
        };
        loop {
            let number = lines.number + 1;
            let line = lines.next().map_err(|source| TranslateError::io(path, source))?;
            let cells = match line {
                Some(TableLine::Cells(cells)) => cells,
                Some(TableLine::TooLong) => return Err(wrong(number, "it is too long")),
                Some(TableLine::Cut) | None => {
                    return Err(wrong(number, "the table ends before its line of times"));
                }
            };
            let mut cells = cells;
            let name = cells.next().unwrap_or_default();
            if *name == *TIMES {
                break;
            }
            if labels.len() == MAX_LABELS {
                return Err(wrong(number, "there are too many lines of labels"));
            }
            let values = values(cells);
            if values.len() > MAX_SERIES {
                return Err(wrong(number, "it has more than a million columns"));
            }
            labels.push((text(&name), values));
        }
        TableHead::of(labels).map_err(|reason| wrong(lines.number, reason))
    }

    fn of(labels: Vec<(String, Vec<Box<str>>)>) -> Result<TableHead, &'static str> {
        let width = labels.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
        let mut head = TableHead::default();
        let mut known: HashMap<String, u32> = HashMap::new();
        for column in 0..width {
            let mut metric = String::new();
            let (mut instance, mut gpu) = (String::new(), None);
            let mut more = Vec::new();
            for (label, values) in &labels {
                let value = values.get(column).map_or("", |value| value);
                match label.as_str() {
                    METRIC => metric = value.to_owned(),
                    // The text after the host name is the port of a service.
                    INSTANCE => value.split(':').next().unwrap_or(value).clone_into(&mut instance),
                    label if GPUS.contains(&label) && gpu.is_none() && value.parse::<u16>().is_ok() => {
                        gpu = value.parse().ok();
                    }
                    _ if value.is_empty() => {}
                    label => more.push(format!("{label}={value}")),
                }
            }
            let next = head.instances.len() as u32;
            let place = *known.entry(instance.clone()).or_insert(next);
            if place == next {
                if head.instances.len() == MAX_INSTANCES {
                    return Err("it has too many instances");
                }
                head.instances.push(instance);
            }
            let name =
                if more.is_empty() { metric.clone() } else { format!("{metric}{{{}}}", more.join(",")) };
            head.series.push(CounterSeries { instance: place, gpu, metric, name });
        }
        if head.series.is_empty() { Err("it has no columns") } else { Ok(head) }
    }
}

/// Returns the values of a label; an empty cell repeats the previous value.
fn values(cells: LineCells<'_>) -> Vec<Box<str>> {
    let mut values: Vec<Box<str>> = Vec::new();
    for cell in cells.take(MAX_SERIES + 1) {
        let value = match (&*cell, values.last()) {
            (b"", Some(last)) => last.clone(),
            (cell, _) => text(cell).into(),
        };
        values.push(value);
    }
    values
}

fn text(cell: &[u8]) -> String {
    let text = String::from_utf8_lossy(cell.get(..MAX_TEXT).unwrap_or(cell));
    text.trim().to_owned()
}
