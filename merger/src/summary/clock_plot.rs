//! `--clock-plot`: draws the offset of each clock and its error bound over time.

use super::MergeReport;
use super::clock_plot_svg::{ClockCurve, ClockPicture, draw};
use super::clocks::names;
use crate::agree::job_clocks::JobClocks;
use rpd_clocks::{AlignMethod, DomainFit};
use rpd_console::Failure;
use rpd_console::wording::{counted, duration};
use rpd_files::{create_output, open_input, remove_output, rename_output};
use rpd_shard::model::LocalNs;
use std::cmp::Reverse;
use std::fs::{self};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Maximum number of clocks that are drawn.
const MAX_PLOTTED_CLOCKS: usize = 512;
/// Number of intervals into which a curve is divided. Its knots are drawn, too, if there are no more of them.
const MOMENTS: usize = 256;

/// Fails if another file exists at the path of the drawing. With `force`, an older drawing is overwritten, but never
/// another file.
pub(crate) fn check_place(path: &Path, output: &Path, force: bool) -> Result<(), Failure> {
    let refuse = |why: &str| Err(Failure::output(format!("--clock-plot {}: {why}", path.display())));
    if let (Some(folder), Some(name)) = (path.parent(), path.file_name())
        && fs::canonicalize(if folder == Path::new("") { Path::new(".") } else { folder })
            .is_ok_and(|folder| folder.join(name) == output)
    {
        return refuse("is where the database goes; choose another place");
    }
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failure::write(path, &error)),
    };
    if !found.is_file() || !begins_like_a_drawing(path) {
        return refuse("is there already and no drawing; choose another place");
    }
    if !force {
        return refuse("is there already; use --force to overwrite it, or choose another place");
    }
    Ok(())
}

/// First bytes of a drawing of `plotters`.
const BEGINNING: &[u8] = b"<svg";

fn begins_like_a_drawing(path: &Path) -> bool {
    let mut beginning = [0; BEGINNING.len()];
    let read = open_input(path).and_then(|mut file| file.read_exact(&mut beginning));
    read.is_ok() && beginning == BEGINNING
}

/// Draws the clocks of the job. The file appears only when it is complete. [`check_place`] must have accepted the
/// path.
pub(crate) fn plot(path: &Path, clocks: &JobClocks, report: &MergeReport) -> Result<(), Failure> {
    let svg = draw(&picture(clocks, report));
    let svg = svg.map_err(|error| Failure::internal(format!("the clocks cannot be drawn: {error}")))?;
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}.partial", std::process::id()));
    let draft = PathBuf::from(draft);
    let made = create_output(&draft, 0o600);
    made.and_then(|mut file| file.write_all(svg.as_bytes()))
        .and_then(|()| rename_output(&draft, path))
        .map_err(|error| {
            let _ = remove_output(&draft);
            Failure::write(path, &error)
        })
}

/// A clock that can be drawn.
struct Drawn<'a> {
    name: String,
    bar: String,
    urgency: (u8, i64),
    fit: &'a DomainFit,
    /// First and last recorded time, in its own time, ns.
    span: (i64, i64),
}

fn picture(clocks: &JobClocks, report: &MergeReport) -> ClockPicture {
    let rows =
        report.clocks.iter().zip(names(&report.clocks)).filter(|(row, _)| row.previous_merge.is_none());
    let span = |fit: &DomainFit, own: Option<(i64, i64)>| {
        own.or_else(|| Some((fit.bars.first()?.local, fit.bars.last()?.local)))
    };
    let mut all: Vec<Drawn<'_>> = Vec::new();
    for (row, name) in rows.clone().filter(|_| !report.merged_before) {
        let fit = clocks.domain_fit(&row.domain());
        if let (false, Some(span)) = (fit.method == AlignMethod::None, span(fit, clocks.span(&row.domain())))
        {
            let bar = row.bar_ns.map_or("not known".to_owned(), duration);
            all.push(Drawn { name, bar, urgency: row.urgency(), fit, span });
        }
    }
    let ends =
        |drawn: &Drawn<'_>| [drawn.span.0, drawn.span.1].map(|time| drawn.fit.map.map(LocalNs(time)).ns());
    let begin = all.iter().map(|drawn| ends(drawn)[0]).min().unwrap_or(0);
    let end = all.iter().map(|drawn| ends(drawn)[1]).max().unwrap_or(0);
    let reference = all.iter().position(|drawn| drawn.fit.method == AlignMethod::Reference);
    let reference = reference.map_or("the reference".to_owned(), |place| all.remove(place).name);
    all.retain(|drawn| !drawn.fit.bars.is_empty());
    // The most urgent clocks come first; equally urgent ones are in the order of nodes.
    all.sort_by_key(|drawn| Reverse(drawn.urgency));
    let not_drawn = all.len().saturating_sub(MAX_PLOTTED_CLOCKS);
    all.truncate(MAX_PLOTTED_CLOCKS);
    let curve = |drawn: Drawn<'_>| ClockCurve {
        points: points(drawn.fit, drawn.span, begin),
        name: drawn.name,
        bar: drawn.bar,
    };
    let curves: Vec<ClockCurve> = all.into_iter().map(curve).collect();
    let unaligned = rows.filter(|(row, _)| row.method == AlignMethod::None || row.bar_ns.is_none()).count();
    let left_out = [
        (not_drawn, "with narrower bars"),
        (unaligned, "not aligned, or without a bar"),
        (report.clocks.iter().filter(|row| row.previous_merge.is_some()).count(), "of previous merges"),
    ];
    let left_out = left_out.iter().filter(|(count, _)| *count > 0);
    let left_out =
        left_out.map(|(count, what)| format!("not drawn: {} {what}", counted(*count as u64, "clock")));
    let (title, words) = match curves.is_empty() {
        false => (
            format!("Clocks against that of {reference}: offset beside its straight line, and error bar"),
            left_out.collect(),
        ),
        true => (report.without_curves(), report.clock_lines().into_iter().map(|(_, text)| text).collect()),
    };
    let seconds = (end.saturating_sub(begin) as f64 / 1e9).max(1e-3);
    ClockPicture { title, reference: format!("{reference}: reference"), curves, words, seconds }
}

impl MergeReport {
    /// Returns the title if there is nothing to draw, with the reason.
    fn without_curves(&self) -> String {
        let why = if self.merged_before || self.has_previous_merge() {
            "Merged before: its clocks are not measured again. Their results"
        } else if self.clocks.len() == 1 {
            "One clock: nothing to align"
        } else {
            "No clock was aligned"
        };
        why.to_owned()
    }
}

/// Returns the curve of a clock over its recorded span. Each point has the seconds since `begin`, the deviation of
/// the offset from its best straight line in microseconds, and the error bound in microseconds.
fn points(fit: &DomainFit, (first, last): (i64, i64), begin: i64) -> Vec<(f64, f64, f64)> {
    let length = i128::from(last) - i128::from(first);
    let at = |part: usize| (i128::from(first) + length * part as i128 / MOMENTS as i128) as i64;
    let mut times: Vec<i64> = (0..=MOMENTS).map(at).collect();
    let knots = || fit.bars.iter().map(|knot| knot.local).filter(|time| (first..=last).contains(time));
    if knots().count() <= MOMENTS {
        times.extend(knots());
    }
    times.sort_unstable();
    times.dedup();
    let base = fit.bars.first().map_or(0, |knot| knot.offset);
    let point = |time: &i64| {
        let offset = offset_at(fit, *time);
        let x = time.saturating_add(offset).saturating_sub(begin) as f64 / 1e9;
        let bar = fit.bar_at(LocalNs(*time)).unwrap_or(0);
        (x, offset.saturating_sub(base) as f64 / 1e3, bar as f64 / 1e3)
    };
    let points: Vec<(f64, f64, f64)> = times.iter().map(point).collect();
    let count = points.len().max(1) as f64;
    let mean = |value: fn(&(f64, f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|p| p.0), mean(|p| p.1));
    let spread: f64 = points.iter().map(|p| (p.0 - mean_x).powi(2)).sum();
    let both: f64 = points.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum();
    let slope = if spread > 0.0 { both / spread } else { 0.0 };
    points.iter().map(|p| (p.0, p.1 - mean_y - slope * (p.0 - mean_x), p.2)).collect()
}

/// Returns job time minus local time as estimated before any repair: linear between knots, and extended by the map
/// beyond them.
fn offset_at(fit: &DomainFit, time: i64) -> i64 {
    let mapped = |time: i64| fit.map.map(LocalNs(time)).ns().saturating_sub(time);
    let after = fit.bars.partition_point(|knot| knot.local <= time);
    match (after.checked_sub(1).and_then(|i| fit.bars.get(i)), fit.bars.get(after)) {
        (Some(a), Some(b)) => {
            let share = (time as f64 - a.local as f64) / (b.local as f64 - a.local as f64).max(1.0);
            a.offset.saturating_add((b.offset.saturating_sub(a.offset) as f64 * share).round() as i64)
        }
        (Some(end), None) | (None, Some(end)) => {
            end.offset.saturating_add(mapped(time).saturating_sub(mapped(end.local)))
        }
        (None, None) => mapped(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpd_clocks::{ErrorKnot, TimeMap};

    #[test]
    fn a_straight_offset_is_flat_and_drawn_for_as_long_as_the_clock_was_there() {
        let knot = |local: i64| ErrorKnot {
            local,
            offset: 5_000 + local / 1_000_000,
            bar: 2_000,
            certain_bounds: None,
            growth: 1_000,
        };
        let bars: Vec<ErrorKnot> = (-3..10).map(|i| knot(i * 1_000_000_000)).collect();
        let map = TimeMap::through(bars.iter().map(|b| (b.local, b.local + b.offset)).collect());
        let fit = DomainFit { method: AlignMethod::Probes, map, bars, ..DomainFit::default() };
        let points = points(&fit, (0, 12_000_000_000), 5_000);
        assert!(points.iter().all(|p| p.1.abs() < 0.002), "{points:?}");
        let (first, last) = (points[0], points[points.len() - 1]);
        assert_eq!((first.0, first.2, last.2), (0.0, 2.0, 5.0), "the bar grows where nothing was seen");
        assert!((last.0 - 12.0).abs() < 0.001, "{last:?}");
    }
}
