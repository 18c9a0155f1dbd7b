use super::parse::written;
use super::*;
use crate::DomainFit;
use proptest::prelude::*;
use rpd_shard::model::LocalNs;

fn parse(text: &str) -> ClockFile {
    ClockFile::parse(text, "f").unwrap()
}

/// Returns domains with these names, each with a unique first name.
fn domains(names: &[&str]) -> Vec<NamedDomain> {
    let named = |(place, names): (usize, &&str)| NamedDomain {
        names: std::iter::once(format!("boot{place}/1")).chain(names.split('|').map(str::to_owned)).collect(),
        middle: None,
    };
    names.iter().enumerate().map(named).collect()
}

fn job_time(fit: Option<&DomainFit>, time: i64) -> i64 {
    fit.unwrap().map.map(LocalNs(time)).ns()
}

fn bar(fit: &DomainFit, time: i64) -> Option<i64> {
    fit.bar_at(LocalNs(time))
}

const SECOND: i64 = 1_000_000_000;

#[test]
fn offsets_drifts_and_other_references_are_applied() {
    let file = parse(
        "# of our site\nreference head\na offset=1000\nb offset=-500 at=0 drift_ppm=100 # fast\nhead offset=0\n",
    );
    let resolve = |reference| file.resolve(&domains(&["head", "a", "b", "c"]), reference);
    let fits = resolve(0).fits;
    assert!(fits[0].is_none() && fits[3].is_none());
    assert_eq!((job_time(fits[1].as_ref(), 42), fits[1].as_ref().unwrap().offset), (1_042, 1_000));
    // In one second of its own, a clock that is 100 ppm fast gains 99.99 us.
    assert_eq!(job_time(fits[2].as_ref(), SECOND), SECOND - 500 - 99_990);
    assert!((fits[2].as_ref().unwrap().drift_ppm - 100.0).abs() < 1e-3);
    assert_eq!(fits[1].as_ref().unwrap().median_error_bound(), None, "without an error nothing is known");
    let against_a = resolve(1).fits;
    assert!(against_a[1].is_none());
    assert_eq!(job_time(against_a[0].as_ref(), 1_042), 42);
    assert_eq!(job_time(resolve(2).fits[1].as_ref(), -500), 500 + 500);
    let strange = resolve(3);
    assert!(strange.fits.iter().all(Option::is_none));
    assert!(strange.notes[0].contains("does not contain the clock of c"), "{:?}", strange.notes);
    // The file's reference is not in the job.
    let fits = file.resolve(&domains(&["a", "b"]), 0).fits;
    assert_eq!(job_time(fits[1].as_ref(), 0), -1_500);
}

#[test]
fn bars_grow_from_the_moment_of_the_measurement() {
    let text = "reference r\na offset=0 at=0 error=10\nb offset=0 at=0 error=10 drift_ppm=3\n\
                c offset=0 at=0 error=10 drift_ppm=3 drift_error_ppm=0.5\n\
                d offset=0 at=0 error=10\nd offset=0 at=1000000000000 error=30\n";
    let jobs = domains(&["r", "a", "b", "c", "d"]);
    let fits = parse(text).resolve(&jobs, 0).fits;
    let [a, b, c, d] = [1, 2, 3, 4].map(|place: usize| fits[place].as_ref().unwrap());
    for time in [-SECOND, SECOND] {
        assert_eq!([a, b, c].map(|fit| bar(fit, time)), [Some(20_010), Some(20_010), Some(510)]);
    }
    // 1 ppm up to the middle; beyond the ends the error of the rate adds to it.
    let at = |second: i64| bar(d, second * SECOND).unwrap();
    assert_eq!([0, 500, 1_000].map(at), [10, 20 + 500_000, 30]);
    assert_eq!(at(1_100), 30 + 100 * 1_001);
    assert_eq!(at(-100), 10 + 100 * 1_001);
    // Against another measured reference, both error bounds are added.
    let fits = parse(text).resolve(&jobs, 1).fits;
    assert_eq!(bar(fits[3].as_ref().unwrap(), SECOND), Some(20_010 + 510));
    assert_eq!(bar(fits[0].as_ref().unwrap(), SECOND), Some(20_010));
}

#[test]
fn between_two_measurements_times_are_straight_and_the_rate_goes_on() {
    let fits =
        parse("reference r\nn offset=0 at=0\nn offset=100 at=1000\nn offset=100 at=2000 drift_ppm=0\n")
            .resolve(&domains(&["r", "n"]), 0)
            .fits;
    let at = |time| job_time(fits[1].as_ref(), time);
    assert_eq!([-1_000, 500, 1_500, 3_000].map(at), [-1_100, 550, 1_600, 3_100]);
}

#[test]
fn a_name_of_several_clocks_is_not_used_and_their_own_names_are_told() {
    let jobs = domains(&["head", "node 1|m1", "node 1|m2", "m2"]);
    let file = parse("reference head\n\"node 1\" offset=1\nm1 offset=2\nboot2/1 offset=3\nm2 offset=4\n");
    let resolved = file.resolve(&jobs, 0);
    let offsets: Vec<_> = resolved.fits.iter().map(|fit| fit.as_ref().map(|fit| fit.offset)).collect();
    assert_eq!(offsets, [None, Some(2), Some(3), None]);
    assert_eq!(
        resolved.notes,
        [
            "clock file, line 5: m2 fits 2 clocks of this job: nothing there was used; write one of boot2/1, boot3/1",
            "clock file, line 2: \"node 1\" fits 2 clocks of this job: nothing there was used; write one of boot1/1, boot2/1",
        ]
    );
    // If the reference may be either of two domains, no clock moves.
    let resolved = parse("reference m2\nhead offset=1\n").resolve(&jobs, 0);
    assert!(resolved.fits.iter().all(Option::is_none));
    assert!(resolved.notes[0].contains("boot2/1, boot3/1"), "{:?}", resolved.notes);
}

#[test]
fn what_is_not_used_is_told_once() {
    let jobs = domains(&["r|machine", "n|host"]);
    let mut text = "reference r\nmachine offset=5\nn offset=1 at=5\nhost offset=2 at=5\n".to_owned();
    (0..12).for_each(|n| text += &format!("x{n:02} offset=1\n"));
    let resolved = parse(&text).resolve(&jobs, 0);
    assert!(resolved.fits.iter().all(Option::is_none), "two lines of one clock and one time");
    let [moved, others, twice] = resolved.notes.as_slice() else { panic!("{:?}", resolved.notes) };
    assert_eq!(
        moved,
        "clock file, line 2: machine is the reference, which is not moved: the line was not used"
    );
    assert!(
        others.contains("12 nodes that are not in this job: x00, x01") && others.ends_with("x09 and 2 more"),
        "{others}"
    );
    assert!(twice.contains("line 4: line 3 is of the same node and the same time"), "{twice}");
}

/// A clock with a changing rate: length of each piece, ns of the site's reference, and its rate in ppm.
#[derive(Clone, Debug)]
struct Truth {
    offset: i64,
    pieces: Vec<(i64, f64)>,
}

impl Truth {
    /// Returns the reading of the clock at a time of the reference.
    fn local(&self, site: i64) -> i64 {
        let mut gained = 0.0;
        let mut begin = 0;
        for (place, (length, ppm)) in self.pieces.iter().enumerate() {
            let is_last = place + 1 == self.pieces.len();
            let end = if is_last || site < begin + length { site } else { begin + length };
            gained += (end - begin) as f64 * ppm * 1e-6;
            begin += length;
            if end == site {
                break;
            }
        }
        site - self.offset + gained.round() as i64
    }
}

/// Generates rates within `error` of a base rate of up to 30 ppm, changed about every minute over 20 minutes.
fn truth(error: f64) -> impl Strategy<Value = (Truth, f64)> {
    let pieces = prop::collection::vec((30 * SECOND..120 * SECOND, -error..error), 1..12);
    (-1_000_000 * SECOND..1_000_000 * SECOND, -30.0..30.0f64, pieces).prop_map(
        move |(offset, ppm, mut pieces)| {
            pieces.iter_mut().for_each(|(_, rate)| *rate += ppm);
            (Truth { offset, pieces }, ppm)
        },
    )
}

/// Formats the line of a measurement at a time of the reference, with the error `off`.
fn line(name: &str, truth: &Truth, site: i64, off: i64, error: i64) -> String {
    let at = truth.local(site);
    format!("{} offset={} at={at} error={error}", written(name), site - at + off)
}

proptest! {
    /// A clock with the stated errors of rate and measurements is within the error bound at all times. This
    /// holds against the file's reference and against another node.
    #[test]
    fn bars_hold(
        (one, one_ppm) in truth(0.4),
        (other, other_ppm) in truth(0.5),
        when in (0..1_000 * SECOND, 1_100 * SECOND..1_400 * SECOND),
        off in (-5_000..5_000i64, -5_000..5_000i64, -5_000..5_000i64),
        looks in prop::collection::vec(0..2_000 * SECOND, 10),
    ) {
        // One node is measured twice without a drift, the other once with a drift.
        let text = format!(
            "reference site\n{}\n{}\n{} drift_ppm={other_ppm} drift_error_ppm=0.5\n",
            line("one", &one, when.0, off.0, 5_000),
            line("one", &one, when.1, off.1, 5_000),
            line("an other", &other, when.1, off.2, 5_000),
        );
        prop_assert!(one_ppm.abs() <= 30.0);
        let file = parse(&text);
        let jobs = domains(&["site", "one", "an other"]);
        for reference in 0..3 {
            let fits = file.resolve(&jobs, reference).fits;
            for site in &looks {
                let shown = [*site, one.local(*site), other.local(*site)];
                for place in (0..3).filter(|place| *place != reference) {
                    let fit = fits[place].as_ref().unwrap();
                    let off = (job_time(Some(fit), shown[place]) - shown[reference]).abs();
                    // Allows for the rounding of maps, and for ppm relative to either clock.
                    prop_assert!(off <= bar(fit, shown[place]).unwrap() + 200, "{off} {:?}", bar(fit, shown[place]));
                }
            }
        }
    }

    /// Maps from any file are monotonic, and aligning in both directions returns to the start.
    #[test]
    fn maps_are_sound(
        lines in prop::collection::vec(
            (0..3usize, -2_000_000_000 * SECOND..2_000_000_000 * SECOND, -1_000 * SECOND..1_000 * SECOND, -100_000.0..100_000.0f64), 1..8,
        ),
        // 70 years in both directions.
        times in prop::collection::vec(-2_209_032_000 * SECOND..2_209_032_000 * SECOND, 20),
    ) {
        let mut text = "reference r\n".to_owned();
        for (node, offset, at, ppm) in lines {
            text += &format!("n{node} offset={offset} at={at} drift_ppm={ppm} error=7\n");
        }
        if let Ok(file) = ClockFile::parse(&text, "f") {
            let jobs = domains(&["r", "n0", "n1", "n2"]);
            for reference in 0..4 {
                for fit in file.resolve(&jobs, reference).fits.iter().flatten() {
                    let mut times = times.clone();
                    times.sort_unstable();
                    let mapped: Vec<i64> = times.iter().map(|time| job_time(Some(fit), *time)).collect();
                    prop_assert!(mapped.is_sorted());
                    prop_assert!(times.iter().all(|time| bar(fit, *time).is_some_and(|bar| bar >= 7)));
                }
            }
        }
    }
}
