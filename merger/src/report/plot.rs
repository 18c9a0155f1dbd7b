//! `--clock-plot`: the offset of each clock and its error bar over time.

use super::clocks::shown_domains;
use crate::agree::clocks::JobClocks;
use crate::agree::nodes::Nodes;
use crate::clock::{BarKnot, DomainFit, Method};
use crate::failure::Failure;
use plotters::prelude::*;
use rpd_shard::record::ClockDomain;
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Clocks that are drawn; more cannot be told apart.
const MOST: usize = 64;
const SIZE: (u32, u32) = (1_200, 700);

/// Refuses a place for the drawing where something else is: a drawing is overwritten with `force`, anything
/// else never.
pub fn check_place(path: &Path, output: &Path, force: bool) -> Result<(), Failure> {
    let refuse = |why: &str| Err(Failure::Output(format!("--clock-plot {}: {why}", path.display())));
    if let (Some(folder), Some(name)) = (path.parent(), path.file_name())
        && fs::canonicalize(if folder == Path::new("") { Path::new(".") } else { folder })
            .is_ok_and(|folder| folder.join(name) == output)
    {
        return refuse("is where the database goes: choose another place");
    }
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failure::write(path, &error)),
    };
    if !found.is_file() || !begins_like_a_drawing(path) {
        return refuse("is there already and no drawing: choose another place");
    }
    if !force {
        return refuse("is there already: use --force to overwrite it, or choose another place");
    }
    Ok(())
}

/// With what `plotters` begins.
const BEGINNING: &[u8] = b"<svg";

fn begins_like_a_drawing(path: &Path) -> bool {
    let mut beginning = [0; BEGINNING.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut beginning));
    read.is_ok() && beginning == BEGINNING
}

/// Draws the clocks of the job. The file appears whole, and in the place of nothing that [`check_place`] refuses.
pub fn plot(path: &Path, clocks: &JobClocks, nodes: &Nodes) -> Result<(), Failure> {
    let (curves, all) = curves(clocks, nodes);
    let svg = draw(&curves, all);
    let svg = svg.map_err(|error| Failure::Internal(format!("the clocks cannot be drawn: {error}")))?;
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}.partial", std::process::id()));
    let draft = PathBuf::from(draft);
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft);
    made.and_then(|mut file| file.write_all(svg.as_bytes())).and_then(|()| fs::rename(&draft, path)).map_err(
        |error| {
            let _ = fs::remove_file(&draft);
            Failure::write(path, &error)
        },
    )
}

/// One clock: seconds of the job, microseconds beside its straight line, and of the bar.
struct Curve {
    name: String,
    points: Vec<(f64, f64, f64)>,
}

/// The curves that are drawn, and how many there would be.
fn curves(clocks: &JobClocks, nodes: &Nodes) -> (Vec<Curve>, usize) {
    let domains = shown_domains(clocks, nodes);
    let known = domains.iter().map(|domain| (domain, clocks.domain_fit(domain)));
    let known: Vec<_> = known.filter(|(_, fit)| fit.method != Method::None && !fit.bars.is_empty()).collect();
    let first = known.iter().filter_map(|(_, fit)| fit.bars.first().map(job_time)).min().unwrap_or(0);
    let curve = |(domain, fit): &(&ClockDomain, &DomainFit)| {
        let names = nodes.names(domain);
        let host = names.first().map_or("", String::as_str);
        Curve {
            name: format!("{host}, {}, {:+.3} ppm", fit.method.name(), fit.drift_ppm),
            points: points(&fit.bars, first),
        }
    };
    (known.iter().take(MOST).map(curve).collect(), known.len())
}

fn job_time(knot: &BarKnot) -> i64 {
    knot.local.saturating_add(knot.offset)
}

/// The offsets beside the straight line that fits them best.
fn points(bars: &[BarKnot], first: i64) -> Vec<(f64, f64, f64)> {
    let base = bars.first().map_or(0, |knot| knot.offset);
    let x = |knot: &BarKnot| job_time(knot).saturating_sub(first) as f64 / 1e9;
    let y = |knot: &BarKnot| knot.offset.saturating_sub(base) as f64 / 1e3;
    let count = bars.len() as f64;
    let (mean_x, mean_y) = (bars.iter().map(x).sum::<f64>() / count, bars.iter().map(y).sum::<f64>() / count);
    let spread: f64 = bars.iter().map(|b| (x(b) - mean_x).powi(2)).sum();
    let both: f64 = bars.iter().map(|b| (x(b) - mean_x) * (y(b) - mean_y)).sum();
    let slope = if spread > 0.0 { both / spread } else { 0.0 };
    bars.iter().map(|b| (x(b), y(b) - mean_y - slope * (x(b) - mean_x), b.bar as f64 / 1e3)).collect()
}

fn draw(curves: &[Curve], all_curves: usize) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let all = || curves.iter().flat_map(|curve| &curve.points);
        let end = all().map(|p| p.0).fold(1.0, f64::max);
        let most = all().map(|p| p.1.abs() + p.2).filter(|v| v.is_finite()).fold(0.1, f64::max) * 1.05;
        let title = match (curves.len(), all_curves) {
            (0, _) => "no clock was aligned".to_owned(),
            (drawn, all) => {
                let some = if drawn < all { format!(", {drawn} of {all} clocks") } else { String::new() };
                format!("clocks against the reference: offset minus its straight line, and error bar{some}")
            }
        };
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..end, -most..most)?;
        chart.configure_mesh().x_desc("seconds of the job").y_desc("microseconds").draw()?;
        for (i, curve) in curves.iter().enumerate() {
            let color = Palette99::pick(i).to_rgba();
            let upper = curve.points.iter().map(|p| (p.0, p.1 + p.2));
            let lower = curve.points.iter().rev().map(|p| (p.0, p.1 - p.2));
            let around: Vec<(f64, f64)> = upper.chain(lower).collect();
            chart.draw_series(std::iter::once(Polygon::new(around, color.mix(0.15).filled())))?;
            let line = LineSeries::new(curve.points.iter().map(|p| (p.0, p.1)), color.stroke_width(2));
            let legend = move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], color.stroke_width(2));
            chart.draw_series(line)?.label(curve.name.as_str()).legend(legend);
        }
        if !curves.is_empty() {
            let labels = chart.configure_series_labels();
            let mut labels = labels;
            labels.background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
        }
        root.present()?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_offset_is_drawn_flat_and_the_drawing_is_one() {
        let knot = |local: i64| BarKnot {
            local,
            offset: 5_000 + local / 1_000_000,
            bar: 2_000,
            hard: None,
            growth: 0,
        };
        let bars: Vec<BarKnot> = (0..10).map(|i| knot(i * 1_000_000_000)).collect();
        let points = points(&bars, 5_000);
        assert!(points.iter().all(|p| p.1.abs() < 0.001 && p.2 == 2.0), "{points:?}");
        let svg = draw(&[Curve { name: "a<b>".into(), points }], 70).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>") && svg.contains("a&lt;b&gt;"));
        assert!(svg.contains("1 of 70 clocks"));
        assert!(draw(&[], 0).unwrap().contains("no clock was aligned"));
    }
}
