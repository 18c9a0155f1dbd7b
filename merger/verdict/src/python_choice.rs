//! Which function of Python explains that work takes longer: shares of samples, compared with those of other threads.

use crate::lower_median::{lower_median, lower_median_by};
use crate::sampled_share::SampledShare;
use rayon::prelude::*;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Number of samples from which on shares are compared.
const MIN_SAMPLES: f64 = 30.0;
/// A function is named if it explains at least this share of the longer work.
const MIN_EXPLAINED: f64 = 0.5;
/// The lower end of what a function explains must be at least this share of the longer work.
const MIN_CERTAIN: f64 = 0.25;
/// Maximum error of what a function explains, as a share of that: of many functions, some differ by chance.
const MAX_RELATIVE_ERROR: f64 = 0.4;
/// A function is named if it explains at least this share of what the best one does, which is mostly one around all work: the rest
/// of the work may be somewhat longer, too, as on a slower core.
const MIN_OF_BEST: f64 = 0.8;
/// Functions that explain at least this share of what the best candidate does are about as good.
const ABOUT_EQUAL: f64 = 0.9;
/// A function that has at least this share everywhere is the frame of all work.
const COMMON_SHARE: f64 = 0.9;

/// Function and line of a frame.
pub(crate) type FunctionLine = (u32, u32);

/// The samples of a thread, or of several, in work under one label.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct LabelSamples {
    /// Work under the label, ns.
    pub(crate) work_ns: f64,
    /// Number of samples.
    pub(crate) count: u64,
    /// Number of samples of equal weight that have as large an error.
    effective: f64,
    /// Share of each stack.
    by_stack: BTreeMap<u32, f64>,
}

impl LabelSamples {
    /// Counts samples, each a stack and its weight, in work of this length, ns.
    pub(crate) fn new(work_ns: f64, samples: impl IntoIterator<Item = (u32, f64)>) -> LabelSamples {
        let mut found = LabelSamples { work_ns, ..LabelSamples::default() };
        let (mut sum, mut squares) = (0.0, 0.0);
        for (stack, weight) in samples {
            found.count += 1;
            sum += weight;
            squares += weight * weight;
            *found.by_stack.entry(stack).or_default() += weight;
        }
        if squares > 0.0 {
            found.effective = sum * sum / squares;
            found.by_stack.values_mut().for_each(|share| *share /= sum);
        }
        found
    }

    /// Joins the samples of threads, so that each counts by its work. The work is the mean.
    pub(crate) fn joined(threads: &[LabelSamples]) -> LabelSamples {
        let all_ns: f64 = threads.iter().map(|thread| thread.work_ns).sum();
        let mut found = LabelSamples::default();
        let mut variance = 0.0;
        for thread in threads.iter().filter(|thread| thread.count > 0 && all_ns > 0.0) {
            let part = thread.work_ns / all_ns;
            found.count += thread.count;
            variance += part * part / thread.effective;
            for (stack, share) in &thread.by_stack {
                *found.by_stack.entry(*stack).or_default() += share * part;
            }
        }
        if variance > 0.0 {
            found.work_ns = all_ns / threads.len() as f64;
            found.effective = 1.0 / variance;
        }
        found
    }

    /// Returns the shares of all functions.
    fn functions(&self, frames: &impl Fn(u32) -> Vec<FunctionLine>) -> BTreeMap<u32, FunctionShare> {
        let mut shares: BTreeMap<u32, FunctionShare> = BTreeMap::new();
        for (stack, share) in &self.by_stack {
            let mut functions: Vec<u32> = frames(*stack).iter().map(|(function, _)| *function).collect();
            if let Some(innermost) = functions.first() {
                shares.entry(*innermost).or_default().own += share;
            }
            // Recursion counts once.
            functions.sort_unstable();
            functions.dedup();
            for function in functions {
                shares.entry(function).or_default().inclusive += share;
            }
        }
        shares
    }
}

/// Shares of a function.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct FunctionShare {
    /// Of the samples with it anywhere in the stack.
    inclusive: f64,
    /// Of the samples in which it calls no other function of Python.
    own: f64,
}

impl SampledShare {
    /// Returns whether a share of the longer work is more than chance.
    fn is_significant(self) -> bool {
        self.error <= self.share * MAX_RELATIVE_ERROR && self.share - self.error >= MIN_CERTAIN
    }
}

/// The function that explains why work takes longer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ChosenFunction {
    pub(crate) function: u32,
    /// The line at which most of its samples are.
    pub(crate) line: u32,
    /// Its share of the samples of the named threads.
    pub(crate) share: SampledShare,
    /// The same of other threads, in the median; `None` if no other does such work.
    pub(crate) typical: Option<SampledShare>,
    /// Share of the longer work that it explains.
    pub(crate) explained: SampledShare,
    /// Number of samples of the named threads.
    pub(crate) samples: u64,
}

/// Why no function is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotChosen {
    /// The named threads have only so many samples.
    TooFewSamples(u64),
    /// No function explains half of the longer work, or only one that is the frame of all work. The number of samples of the
    /// named threads.
    NoSingleFunction(u64),
    /// The work does not take longer than that of other threads with samples.
    NotLonger,
}

/// Chooses the innermost function of those that explain most of the time by which work takes longer. `others` do such
/// work and have samples. `frames` returns the frames of a stack, the innermost first.
pub(crate) fn choose_function(
    named: &LabelSamples,
    others: &[LabelSamples],
    frames: &(impl Fn(u32) -> Vec<FunctionLine> + Sync),
) -> Result<ChosenFunction, NotChosen> {
    if named.effective < MIN_SAMPLES {
        return Err(NotChosen::TooFewSamples(named.count));
    }
    let typical_ns = lower_median(others.iter().map(|other| other.work_ns).collect()).unwrap_or(0.0);
    let excess_ns = named.work_ns - typical_ns;
    if excess_ns <= 0.0 {
        return Err(NotChosen::NotLonger);
    }
    let shares = named.functions(frames);
    let of_other = |other: &LabelSamples| {
        let mut of_other = other.functions(frames);
        of_other.retain(|function, _| shares.contains_key(function));
        of_other
    };
    let of_others: Vec<BTreeMap<u32, FunctionShare>> = others.par_iter().map(of_other).collect();
    let typical_of = |function: u32, value: &dyn Fn(&LabelSamples, FunctionShare) -> f64| {
        let of_other = |(other, shares): (&LabelSamples, &BTreeMap<u32, FunctionShare>)| {
            (value(other, shares.get(&function).copied().unwrap_or_default()), other.effective)
        };
        lower_median_by(others.iter().zip(&of_others).map(of_other).collect(), by_value_and_samples)
    };
    let time_beyond = |function: u32, share: f64, of: &dyn Fn(FunctionShare) -> f64| {
        let typical = typical_of(function, &|other, shares| of(shares) * other.work_ns);
        share * named.work_ns - typical.map_or(0.0, |found| found.0)
    };
    let beyond = |function: u32| {
        let share = shares.get(&function).copied().unwrap_or_default().inclusive;
        time_beyond(function, share, &|shares| shares.inclusive)
    };
    let times: Vec<(u32, f64)> = shares.keys().map(|function| (*function, beyond(*function))).collect();
    let best = times.iter().map(|(_, ns)| *ns).fold(0.0, f64::max);
    let min_ns = (best * MIN_OF_BEST).max(excess_ns * MIN_EXPLAINED);
    let candidates: Vec<(u32, f64)> = times.into_iter().filter(|(_, ns)| *ns >= min_ns).collect();
    let none = NotChosen::NoSingleFunction(named.count);
    let inclusive_of = |function: u32| {
        let share = shares.get(&function).copied().unwrap_or_default().inclusive;
        (share, typical_of(function, &|_, shares| shares.inclusive))
    };
    // A function around all work of all threads does not distinguish them. Where all work is longer, every function is.
    let (mut common, mut special) = (Vec::new(), Vec::new());
    for candidate in candidates {
        match inclusive_of(candidate.0) {
            (share, Some((typical, _))) if share.min(typical) >= COMMON_SHARE => common.push(candidate),
            (share, typical) => {
                let explains_all = candidate.1 >= best * ABOUT_EQUAL;
                if explains_all || is_larger(share, named.effective, typical) {
                    special.push(candidate);
                }
            }
        }
    }
    let is_frame = special.is_empty();
    let fitting = about_best(if is_frame { common } else { special });
    let (function, beyond_ns) = innermost(&fitting, named, frames).ok_or(none)?;
    let own = shares.get(&function).copied().unwrap_or_default().own;
    let (inclusive, typical) = inclusive_of(function);
    let typical = typical.map(|(share, samples)| SampledShare::of_samples(share, samples));
    let share = SampledShare::of_samples(inclusive, named.effective);
    let explained_by = |beyond_ns: f64, share: SampledShare, typical: Option<SampledShare>| {
        let typical_error_ns = typical.map_or(0.0, |typical| typical.error) * typical_ns;
        let error_ns = (share.error * named.work_ns).hypot(typical_error_ns);
        SampledShare { share: beyond_ns / excess_ns, error: error_ns / excess_ns }
    };
    let explained = explained_by(beyond_ns, share, typical);
    let of_own = || {
        let beyond_ns = time_beyond(function, own, &|shares| shares.own);
        let typical = typical_of(function, &|_, shares| shares.own);
        let typical = typical.map(|(share, samples)| SampledShare::of_samples(share, samples));
        explained_by(beyond_ns, SampledShare::of_samples(own, named.effective), typical)
    };
    let does_the_work = !is_frame || {
        let explained = of_own();
        explained.share >= MIN_EXPLAINED && explained.is_significant()
    };
    if !does_the_work || !explained.is_significant() {
        return Err(none);
    }
    Ok(ChosenFunction {
        function,
        line: line_of(function, named, frames),
        share,
        typical,
        explained,
        samples: named.count,
    })
}

/// Whether a share in a number of samples is larger than one of other threads, with the number of theirs, by more than both errors.
fn is_larger(share: f64, samples: f64, typical: Option<(f64, f64)>) -> bool {
    let own = SampledShare::of_samples(share, samples);
    typical.is_none_or(|(share, samples)| {
        let typical = SampledShare::of_samples(share, samples);
        own.share - own.error > typical.share + typical.error
    })
}

/// Returns the functions that explain about as much as the best one.
fn about_best(mut functions: Vec<(u32, f64)>) -> Vec<(u32, f64)> {
    let best = functions.iter().map(|(_, ns)| *ns).fold(0.0, f64::max);
    functions.retain(|(_, ns)| *ns >= best * ABOUT_EQUAL);
    functions
}

/// A part of the work of the named threads, compared with the same part of others.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ComparedPart {
    /// Its share of the samples of the named threads.
    pub(crate) share: SampledShare,
    /// The same of other threads, in the median; `None` if no other does such work.
    pub(crate) typical: Option<SampledShare>,
    /// Share of the longer work that it explains.
    pub(crate) explained: SampledShare,
}

impl ComparedPart {
    /// Returns whether the part is longer for a reason of its own: not by chance, and not because all work is longer.
    fn is_longer(&self) -> bool {
        let typical = self.typical.map_or(0.0, |typical| typical.share + typical.error);
        self.explained.is_significant() && self.share.share - self.share.error > typical
    }

    /// Returns whether the part explains less than half of the longer work, whatever its error.
    fn is_excluded(&self) -> bool {
        self.explained.share + self.explained.error < MIN_EXPLAINED
    }
}

/// Compares the part of the work in which stacks have something. `None` if the samples are too few to tell whether it
/// explains the longer work, or the work does not take longer than that of others.
pub(crate) fn compare_part(
    named: &LabelSamples,
    others: &[LabelSamples],
    has: &impl Fn(u32) -> bool,
) -> Option<ComparedPart> {
    let typical_ns = lower_median(others.iter().map(|other| other.work_ns).collect()).unwrap_or(0.0);
    let excess_ns = named.work_ns - typical_ns;
    if named.effective < MIN_SAMPLES || excess_ns <= 0.0 {
        return None;
    }
    let share_of = |samples: &LabelSamples| -> f64 {
        // A sum of nothing is negative zero.
        samples.by_stack.iter().filter(|(stack, _)| has(**stack)).fold(0.0, |sum, (_, share)| sum + share)
    };
    let share = SampledShare::of_samples(share_of(named).min(1.0), named.effective);
    let shares = others.iter().map(|other| (share_of(other).min(1.0), other.effective));
    let typical = lower_median_by(shares.collect(), by_value_and_samples);
    let typical = typical.map(|(share, samples)| SampledShare::of_samples(share, samples));
    let times = others.iter().map(|other| share_of(other) * other.work_ns);
    let beyond_ns = share.share * named.work_ns - lower_median(times.collect()).unwrap_or(0.0);
    let error_ns = (share.error * named.work_ns).hypot(typical.map_or(0.0, |found| found.error) * typical_ns);
    let explained = SampledShare { share: beyond_ns / excess_ns, error: error_ns / excess_ns };
    let part = ComparedPart { share, typical, explained };
    let explains_most = part.is_longer() && part.explained.share >= MIN_EXPLAINED;
    (explains_most || part.is_excluded()).then_some(part)
}

/// Orders values, each with the number of its samples.
fn by_value_and_samples(one: &(f64, f64), other: &(f64, f64)) -> Ordering {
    one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1))
}

/// Returns the candidate that the others call: of two, the one that is the inner one in most stacks with both. If no stack
/// has both, the one with the longer time counts.
fn innermost(
    candidates: &[(u32, f64)],
    named: &LabelSamples,
    frames: &impl Fn(u32) -> Vec<FunctionLine>,
) -> Option<(u32, f64)> {
    let stacks: Vec<(Vec<FunctionLine>, f64)> =
        named.by_stack.iter().map(|(stack, share)| (frames(*stack), *share)).collect();
    let inner = |one: (u32, f64), other: (u32, f64)| {
        // By the outermost call of each, as functions may call themselves.
        let depth = |stack: &[FunctionLine], function: u32| stack.iter().rposition(|(of, _)| *of == function);
        let mut balance = 0.0;
        for (stack, share) in &stacks {
            if let (Some(one), Some(other)) = (depth(stack, one.0), depth(stack, other.0)) {
                balance += if one < other { *share } else { -share };
            }
        }
        if balance > 0.0 || (balance == 0.0 && one.1 >= other.1) { one } else { other }
    };
    candidates.iter().copied().reduce(inner)
}

/// Returns the line at which most samples of a function are, in its innermost call.
fn line_of(function: u32, named: &LabelSamples, frames: &impl Fn(u32) -> Vec<FunctionLine>) -> u32 {
    let mut lines: BTreeMap<u32, f64> = BTreeMap::new();
    for (stack, share) in &named.by_stack {
        if let Some((_, line)) = frames(*stack).into_iter().find(|(of, _)| *of == function) {
            *lines.entry(line).or_default() += share;
        }
    }
    let most = lines.into_iter().max_by(|one, other| one.1.total_cmp(&other.1).then(other.0.cmp(&one.0)));
    most.map_or(0, |(line, _)| line)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Functions of the tests.
    const MAIN: u32 = 0;
    const FORWARD: u32 = 1;
    const AUGMENT: u32 = 2;
    const LAYER: u32 = 3;
    const WRAPPER: u32 = 4;
    /// Stacks, the innermost frame first.
    const STACKS: [&[FunctionLine]; 7] = [
        &[(FORWARD, 12), (MAIN, 3)],
        &[(AUGMENT, 88), (FORWARD, 12), (MAIN, 3)],
        &[(LAYER, 40), (WRAPPER, 7), (FORWARD, 14), (WRAPPER, 7), (MAIN, 3)],
        &[(LAYER, 41), (WRAPPER, 7), (LAYER, 45), (WRAPPER, 7), (FORWARD, 14), (WRAPPER, 7), (MAIN, 3)],
        &[(AUGMENT, 90), (FORWARD, 12), (WRAPPER, 7), (MAIN, 3)],
        &[(MAIN, 5)],
        &[(WRAPPER, 7), (AUGMENT, 88), (FORWARD, 12), (WRAPPER, 7), (MAIN, 3)],
    ];

    fn frames(stack: u32) -> Vec<FunctionLine> {
        STACKS.get(stack as usize).map(|frames| frames.to_vec()).unwrap_or_default()
    }

    /// Samples: so many of each stack.
    fn samples(work_ns: f64, counts: &[(u32, usize)]) -> LabelSamples {
        let all = counts.iter().flat_map(|(stack, count)| vec![(*stack, 10.1); *count]);
        LabelSamples::new(work_ns, all)
    }

    fn chosen(named: &LabelSamples, others: &[LabelSamples]) -> Result<ChosenFunction, NotChosen> {
        choose_function(named, others, &frames)
    }

    #[test]
    fn the_function_with_the_longer_time_is_chosen_not_those_around_it() {
        // 39 ns of forward everywhere; 61 ns of augment instead of 5.
        let named = samples(100.0, &[(0, 190), (1, 600), (4, 10), (2, 200)]);
        let others = vec![samples(44.0, &[(0, 216), (1, 57), (2, 227)]); 5];
        let found = chosen(&named, &others).unwrap();
        assert_eq!((found.function, found.line, found.samples), (AUGMENT, 88, 1000));
        assert!((found.share.share - 0.61).abs() < 1e-9 && (found.share.error - 0.030).abs() < 0.001);
        let typical = found.typical.unwrap();
        assert!((typical.share - 0.114).abs() < 1e-9 && (typical.error - 0.031).abs() < 0.001);
        assert!((found.explained.share - (61.0 - 0.114 * 44.0) / 56.0).abs() < 1e-9, "{found:?}");
        assert!((0.03..0.1).contains(&found.explained.error), "{found:?}");
    }

    #[test]
    fn a_function_that_calls_itself_or_is_called_by_all_is_not_the_innermost() {
        let named = samples(100.0, &[(6, 700), (3, 300)]);
        let others = vec![samples(33.0, &[(6, 35), (3, 300)]); 3];
        let found = chosen(&named, &others).unwrap();
        assert_eq!((found.function, found.line), (AUGMENT, 88));
        // The wrapper is the innermost frame as often, but it also calls the function.
        assert!((found.share.share - 0.7).abs() < 1e-9);
    }

    #[test]
    fn equal_profiles_name_the_function_that_does_the_work_itself() {
        let named = samples(100.0, &[(1, 970), (0, 30)]);
        let others = vec![samples(50.0, &[(1, 480), (0, 20)]); 3];
        assert_eq!(chosen(&named, &others).unwrap().function, AUGMENT);
        // Here all that forward calls is slower, which forward itself is not.
        let parts = |scale: usize| [(1, 30 * scale), (2, 40 * scale), (3, 30 * scale)];
        let (named, others) = (samples(100.0, &parts(10)), vec![samples(50.0, &parts(5)); 3]);
        assert_eq!(chosen(&named, &others), Err(NotChosen::NoSingleFunction(1000)));
    }

    #[test]
    fn a_function_is_named_although_the_rest_is_somewhat_longer() {
        // 13 ns of augment instead of 2, and 8 ns of forward instead of 6, perhaps on a slower core.
        let named = samples(21.0, &[(1, 1784), (0, 1037)]);
        let others = vec![samples(8.0, &[(1, 560), (0, 2240)]); 3];
        let found = chosen(&named, &others).unwrap();
        assert_eq!((found.function, found.line), (AUGMENT, 88));
        assert!((0.85..0.9).contains(&found.explained.share), "{found:?}");
        // All work is longer, augment as much as the rest: it explains 80 % of that, but is no reason.
        let named = samples(100.0, &[(1, 800), (2, 200)]);
        let others = vec![samples(50.0, &[(1, 800), (2, 200)]); 3];
        assert_eq!(chosen(&named, &others), Err(NotChosen::NoSingleFunction(1000)));
    }

    #[test]
    fn a_function_that_differs_by_chance_or_that_all_call_is_not_named() {
        // A twentieth longer in all functions alike, with some luck.
        let named = samples(105.0, &[(0, 110), (1, 105), (2, 98)]);
        let others = vec![samples(100.0, &[(0, 95), (1, 104), (2, 104)]); 3];
        assert_eq!(chosen(&named, &others), Err(NotChosen::NoSingleFunction(313)));
        // WRAPPER is the innermost one of each stack, and only AUGMENT tells the threads apart.
        let frames = |stack: u32| match stack {
            0 => vec![(WRAPPER, 7), (FORWARD, 12), (MAIN, 3)],
            _ => vec![(WRAPPER, 7), (AUGMENT, 88), (MAIN, 3)],
        };
        let (named, others) = (samples(100.0, &[(0, 160), (1, 840)]), vec![samples(16.0, &[(0, 160)]); 3]);
        assert_eq!(choose_function(&named, &others, &frames).unwrap().function, AUGMENT);
    }

    #[test]
    fn few_samples_and_stacks_without_frames_name_nothing() {
        let others = vec![samples(10.0, &[(0, 100)]); 3];
        assert_eq!(chosen(&samples(100.0, &[(1, 29)]), &others), Err(NotChosen::TooFewSamples(29)));
        assert_eq!(chosen(&LabelSamples::default(), &[]), Err(NotChosen::TooFewSamples(0)));
        assert_eq!(chosen(&samples(10.0, &[(1, 100)]), &others), Err(NotChosen::NotLonger));
        let unknown = samples(100.0, &[(u32::MAX, 60), (1, 40)]);
        assert_eq!(chosen(&unknown, &others), Err(NotChosen::NoSingleFunction(100)));
    }

    #[test]
    fn work_that_no_other_does_is_compared_with_nothing() {
        let found = chosen(&samples(100.0, &[(1, 95), (5, 5)]), &[]).unwrap();
        assert_eq!((found.function, found.typical), (AUGMENT, None));
        assert!((found.explained.share - 0.95).abs() < 1e-9);
    }

    #[test]
    fn a_part_of_the_work_is_compared_with_that_of_others() {
        let named = samples(100.0, &[(0, 500), (1, 500)]);
        let others = vec![samples(50.0, &[(0, 980), (1, 20)]); 3];
        let part = compare_part(&named, &others, &|stack| stack == 1).unwrap();
        assert!((part.share.share - 0.5).abs() < 1e-9 && (part.typical.unwrap().share - 0.02).abs() < 1e-9);
        assert!((part.explained.share - 49.0 / 50.0).abs() < 1e-9);
        assert_eq!(compare_part(&others[0], std::slice::from_ref(&named), &|stack| stack == 1), None);
        let none = compare_part(&named, &others, &|stack| stack == 5).unwrap();
        assert!(none.is_excluded() && !none.is_longer());
        // All work is longer, and the part has the same share of it.
        let others = vec![samples(50.0, &[(0, 480), (1, 520)]); 3];
        assert_eq!(compare_part(&named, &others, &|stack| stack == 1), None);
        assert_eq!(compare_part(&samples(9.0, &[(1, 20)]), &[], &|stack| stack == 1), None);
    }

    #[test]
    fn samples_count_by_the_time_that_they_stand_for() {
        let weighted = LabelSamples::new(8.0, [(0, 10.0), (1, 30.0), (1, 20.0), (0, 20.0)]);
        assert_eq!(weighted.by_stack, BTreeMap::from([(0, 0.375), (1, 0.625)]));
        assert!((weighted.effective - 6400.0 / 1800.0).abs() < 1e-9);
        let joined = LabelSamples::joined(&[weighted.clone(), samples(24.0, &[(1, 8)]), samples(0.0, &[])]);
        assert!((joined.by_stack[&0] - 0.375 / 4.0).abs() < 1e-12);
        assert!((joined.work_ns - 32.0 / 3.0).abs() < 1e-9);
        let same = LabelSamples::joined(&[samples(1.0, &[(0, 5)]), samples(1.0, &[(1, 5)])]);
        assert!((same.effective - 10.0).abs() < 1e-9);
    }

    #[test]
    fn shares_are_those_of_a_naive_count() {
        let mut random = 7u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for _ in 0..300 {
            let stacks: Vec<Vec<FunctionLine>> =
                (0..6).map(|_| (0..next(7)).map(|_| (next(4) as u32, next(3) as u32)).collect()).collect();
            let frames = |stack: u32| stacks[stack as usize].clone();
            let taken: Vec<u32> = (0..1 + next(50)).map(|_| next(6) as u32).collect();
            let found = LabelSamples::new(1.0, taken.iter().map(|stack| (*stack, 2.5)));
            let shares = found.functions(&frames);
            for function in 0..4 {
                let has = |stack: &&u32| frames(**stack).iter().any(|(of, _)| *of == function);
                let is_own = |stack: &&u32| frames(**stack).first().is_some_and(|(of, _)| *of == function);
                let share = |count: usize| count as f64 / taken.len() as f64;
                let counted = shares.get(&function).copied().unwrap_or_default();
                assert!((counted.inclusive - share(taken.iter().filter(has).count())).abs() < 1e-9);
                assert!((counted.own - share(taken.iter().filter(is_own).count())).abs() < 1e-9);
            }
        }
    }
}
