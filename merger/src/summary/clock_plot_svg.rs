//! Draws the picture of `--clock-plot`: curves on the left, legend on the right.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::error::Error;

const SIZE: (u32, u32) = (1_240, 720);
/// Width of the legend, pixels.
const LEGEND_WIDTH: i32 = 370;
/// Height of a line of text, pixels.
const LINE_HEIGHT: i32 = 19;
/// Maximum characters of a line: of the legend, and of text that fills the picture.
const LEGEND_CHARS: usize = 50;
const LINE_CHARS: usize = 150;
/// Maximum number of text lines.
const MAX_LINES: usize = 32;
/// Maximum number of curves with their own color; further ones have the same color.
const MAX_COLORED_CURVES: usize = 24;
/// Maximum number of curves with filled error bounds; more curves have outlines only.
const MAX_FILLED_CURVES: usize = 8;
/// A curve that reaches further than this multiple of the median reach is clipped. Otherwise the other curves would
/// look flat.
const MAX_REACH_RATIO: f64 = 10.0;

/// Content of the picture.
pub(super) struct ClockPicture {
    pub(super) title: String,
    /// Name of the reference, which is at zero.
    pub(super) reference: String,
    /// Curves, the most urgent ones first.
    pub(super) curves: Vec<ClockCurve>,
    /// Lines about clocks without a curve, with the reason; all of the text if there are no curves.
    pub(super) words: Vec<String>,
    /// Length of the job, s.
    pub(super) seconds: f64,
}

/// Curve of one clock.
pub(super) struct ClockCurve {
    pub(super) name: String,
    /// Median of its error bounds, formatted.
    pub(super) bar: String,
    /// Time in the job, s; deviation from its straight line, us; error bound, us.
    pub(super) points: Vec<(f64, f64, f64)>,
}

impl ClockCurve {
    /// Returns the distance from zero that the curve reaches, including its error bound.
    fn reach(&self) -> f64 {
        self.points.iter().map(|p| p.1.abs() + p.2).filter(|y| y.is_finite()).fold(0.0, f64::max)
    }
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws the picture as SVG.
pub(super) fn draw(picture: &ClockPicture) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let root = root.titled(&picture.title, ("sans-serif", 18))?;
        if picture.curves.is_empty() {
            write_words(&root, &picture.words)?;
        } else {
            let (left, right) = root.split_horizontally(SIZE.0 as i32 - LEGEND_WIDTH);
            let most = most(&picture.curves);
            draw_curves(&left, picture, most)?;
            draw_legend(&right, picture, most)?;
        }
        root.present()?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn write_words(area: &Area<'_>, words: &[String]) -> Result<(), Box<dyn Error>> {
    let left = words.len().saturating_sub(MAX_LINES);
    let more = (left > 0).then(|| format!("and {left} more lines"));
    for (i, line) in words.iter().take(MAX_LINES).chain(&more).enumerate() {
        // XML collapses several spaces into one.
        let line = cut(line, LINE_CHARS).replace("  ", "\u{a0}\u{a0}");
        area.draw(&Text::new(line, (24, 24 + LINE_HEIGHT * i as i32), ("monospace", 13)))?;
    }
    Ok(())
}

/// Returns the limit of the vertical axis, microseconds.
fn most(curves: &[ClockCurve]) -> f64 {
    let mut reaches: Vec<f64> = curves.iter().map(ClockCurve::reach).collect();
    reaches.sort_by(f64::total_cmp);
    let usual = reaches.get((reaches.len().max(1) - 1) / 2).copied().unwrap_or(0.0);
    let inside =
        reaches.iter().copied().filter(|reach| *reach <= MAX_REACH_RATIO * usual).fold(0.0, f64::max);
    inside.max(0.1) * 1.05
}

/// Returns a color that is visible on white: the third color of the palette is yellow and is skipped.
fn color(place: usize) -> RGBAColor {
    Palette99::pick(if place < 2 { place } else { place + 1 }).to_rgba()
}

fn draw_curves(area: &Area<'_>, picture: &ClockPicture, most: f64) -> Result<(), Box<dyn Error>> {
    let mut chart: Chart<'_, '_> = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..picture.seconds, -most..most)?;
    let mut mesh = chart.configure_mesh();
    mesh.max_light_lines(0).bold_line_style(BLACK.mix(0.12));
    // Rounding can turn zero into -0.
    let number = |y: &f64| match format!("{y:.2}").trim_end_matches('0').trim_end_matches('.') {
        "-0" => "0".to_owned(),
        number => number.to_owned(),
    };
    mesh.x_desc("seconds of the job").y_desc("microseconds").y_label_formatter(&number).draw()?;
    chart
        .draw_series(LineSeries::new([(0.0, 0.0), (picture.seconds, 0.0)], BLACK.mix(0.5).stroke_width(1)))?;
    let inside = |x: f64, y: f64| (x.clamp(0.0, picture.seconds), y.clamp(-most, most));
    // Draws in reverse order, so that the most urgent curves are on top.
    for (place, curve) in picture.curves.iter().enumerate().rev() {
        let points = curve.points.iter();
        let line = points.clone().map(|p| inside(p.0, p.1));
        if place >= MAX_COLORED_CURVES {
            chart.draw_series(LineSeries::new(line, BLACK.mix(0.25).stroke_width(1)))?;
            continue;
        }
        let upper: Vec<(f64, f64)> = points.clone().map(|p| inside(p.0, p.1 + p.2)).collect();
        let lower: Vec<(f64, f64)> = points.map(|p| inside(p.0, p.1 - p.2)).collect();
        let color = color(place);
        if picture.curves.len() <= MAX_FILLED_CURVES {
            let around: Vec<(f64, f64)> = upper.into_iter().chain(lower.into_iter().rev()).collect();
            chart.draw_series(std::iter::once(Polygon::new(around, color.mix(0.15).filled())))?;
        } else {
            for edge in [upper, lower] {
                chart.draw_series(LineSeries::new(edge, color.mix(0.5).stroke_width(1)))?;
            }
        }
        chart.draw_series(LineSeries::new(line, color.stroke_width(2)))?;
    }
    Ok(())
}

fn draw_legend(area: &Area<'_>, picture: &ClockPicture, most: f64) -> Result<(), Box<dyn Error>> {
    let mut at = 24;
    let mut line = |text: String, color: Option<RGBAColor>| -> Result<(), Box<dyn Error>> {
        if let Some(color) = color {
            area.draw(&PathElement::new(vec![(0, at + 6), (18, at + 6)], color.stroke_width(3)))?;
        }
        let left = if color.is_some() { 26 } else { 0 };
        area.draw(&Text::new(cut(&text, LEGEND_CHARS), (left, at), ("sans-serif", 13)))?;
        at += LINE_HEIGHT;
        Ok(())
    };
    line(picture.reference.clone(), Some(BLACK.mix(0.5)))?;
    for (place, curve) in picture.curves.iter().enumerate().take(MAX_COLORED_CURVES) {
        let beyond = if curve.reach() > most { ", goes beyond the picture" } else { "" };
        line(format!("{}: bar {}{beyond}", curve.name, curve.bar), Some(color(place)))?;
    }
    if let Some(more @ 1..) = picture.curves.len().checked_sub(MAX_COLORED_CURVES) {
        line(format!("and {more} more"), Some(BLACK.mix(0.25)))?;
    }
    picture.words.iter().take(3).try_for_each(|words| line(words.clone(), None))
}

/// Shortens a text to at most `most` characters.
fn cut(text: &str, most: usize) -> String {
    match text.chars().count() <= most {
        true => text.to_owned(),
        false => text.chars().take(most.saturating_sub(3)).chain("...".chars()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(curves: usize, bar: impl Fn(usize) -> f64) -> ClockPicture {
        let curve = |i: usize| ClockCurve {
            name: format!("a<b> {i}"),
            bar: "2.0 us".to_owned(),
            points: vec![(-3.0, 0.5, bar(i)), (5.0, 0.0, bar(i)), (20.0, 0.5, bar(i))],
        };
        ClockPicture {
            title: "clocks".into(),
            reference: "n0 (rank 0): reference".into(),
            curves: (0..curves).map(curve).collect(),
            words: vec!["1 more clock was not aligned".into()],
            seconds: 10.0,
        }
    }

    /// Returns all points of lines and areas.
    fn places(svg: &str) -> Vec<(i32, i32)> {
        let lists = svg.split("points=\"").skip(1).filter_map(|rest| rest.split('"').next());
        let pairs = lists.flat_map(|list| list.split_whitespace().filter_map(|pair| pair.split_once(',')));
        pairs.map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap())).collect()
    }

    #[test]
    fn curves_end_with_the_job_and_the_legend_stands_beside_them() {
        for curves in [1, 8, 9, 16, 64, 256] {
            let svg = draw(&picture(curves, |i| if i == 3 { 500.0 } else { 2.0 })).unwrap();
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            assert!(svg.contains("a&lt;b&gt; 0: bar 2.0 us") && svg.contains("1 more clock was not aligned"));
            let chart = SIZE.0 as i32 - LEGEND_WIDTH;
            // Strokes of the legend are the only lines to the right of the chart.
            let inside = |(x, y): &(i32, i32)| *x <= chart || (*x <= chart + 18 && *y < SIZE.1 as i32);
            assert!(places(&svg).iter().all(inside), "{curves}");
            assert!(places(&svg).iter().all(|(x, y)| *x >= 0 && (0..SIZE.1 as i32).contains(y)), "{curves}");
            assert_eq!(svg.contains("and 40 more"), curves == 64);
            assert_eq!(svg.contains("and 232 more"), curves == 256);
            assert_eq!(svg.matches("goes beyond").count(), usize::from(curves > 3), "{curves}");
        }
    }

    #[test]
    fn without_curves_there_are_words() {
        let empty = ClockPicture { words: vec!["merged before".into(); 40], ..picture(0, |_| 0.0) };
        let svg = draw(&empty).unwrap();
        assert!(
            svg.contains("merged before")
                && svg.contains("and 8 more lines")
                && !svg.contains("microseconds")
        );
    }
}
