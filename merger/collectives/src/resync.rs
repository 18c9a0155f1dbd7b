//! Aligns the calls of two processes if one has calls that the other lacks, or if threads started some in
//! another order.
//!
//! First the longest common subsequence is aligned (Myers' algorithm, as in diff). Two threads of a process may
//! start neighbouring calls in either order, which leaves one call unaligned on both sides. Such calls are
//! aligned too if they are equal and close.

/// Maximum number of calls that only one of the two processes has.
const MAX_DIFFERENCES: usize = 1000;
/// Maximum distance of a call from its expected place.
const MAX_SHIFT: usize = 8;

/// Returns for each call of `own` its place in `reference`, or `None` if the call is not there. Returns `None`
/// for the whole if the two are not alike.
pub(super) fn align(reference: &[u64], own: &[u64]) -> Option<Vec<Option<usize>>> {
    let before = reference.iter().zip(own).take_while(|(a, b)| a == b).count();
    let (a, b) = (&reference[before..], &own[before..]);
    let suffix = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[..a.len() - suffix], &b[..b.len() - suffix]);
    let mut places: Vec<Option<usize>> = (0..before).map(Some).collect();
    places.extend(in_order(a, b)?.into_iter().map(|place| place.map(|place| before + place)));
    places.extend((reference.len() - suffix..reference.len()).map(Some));
    crossed(reference, own, &mut places);
    let alike = places.iter().flatten().count();
    // Two processes with little in common did not take part in the same calls.
    (alike * 10 >= reference.len().min(own.len()) * 8).then_some(places)
}

/// Returns the longest common subsequence as places in `a`; `None` above `MAX_DIFFERENCES` differences.
fn in_order(a: &[u64], b: &[u64]) -> Option<Vec<Option<usize>>> {
    let most = (a.len() + b.len()).min(MAX_DIFFERENCES);
    // Diagonal k = x - y has index k + most + 1.
    let middle = most + 1;
    let mut furthest = vec![0usize; 2 * most + 3];
    let mut history: Vec<Vec<usize>> = Vec::new();
    for d in 0..=most {
        history.push(furthest[middle - d..=middle + d].to_vec());
        for k in (middle - d..=middle + d).step_by(2) {
            let down = k == middle - d || k != middle + d && furthest[k - 1] < furthest[k + 1];
            let mut x = if down { furthest[k + 1] } else { furthest[k - 1] + 1 };
            while x < a.len() && x + middle >= k && x + middle - k < b.len() && a[x] == b[x + middle - k] {
                x += 1;
            }
            furthest[k] = x;
            if x >= a.len() && x + middle - k >= b.len() {
                return Some(backwards(a.len(), b.len(), &history));
            }
        }
    }
    None
}

/// Traces the path back from its end. `history[d]` has the furthest points before step `d` on diagonals from -d
/// to d.
fn backwards(a: usize, b: usize, history: &[Vec<usize>]) -> Vec<Option<usize>> {
    let mut places = vec![None; b];
    let (mut x, mut y) = (a, b);
    for (d, before) in history.iter().enumerate().rev() {
        // Reads a diagonal from `before`; diagonals outside of it were not reached.
        let at = |k: isize| usize::try_from(k + d as isize).ok().and_then(|k| before.get(k)).copied();
        let k = x as isize - y as isize;
        let is_down =
            k == -(d as isize) || k != d as isize && at(k - 1).unwrap_or(0) < at(k + 1).unwrap_or(0);
        let (from_x, from_y) = match d {
            0 => (0, 0),
            _ => {
                let from = if is_down { k + 1 } else { k - 1 };
                let from_x = at(from).unwrap_or(0);
                (from_x, (from_x as isize - from).max(0) as usize)
            }
        };
        // Follows the diagonal back to the point where the step arrived.
        let (step_x, step_y) = match (d, is_down) {
            (0, _) => (0, 0),
            (_, true) => (from_x, from_y + 1),
            (_, false) => (from_x + 1, from_y),
        };
        while x > step_x && y > step_y {
            (x, y) = (x - 1, y - 1);
            places[y] = Some(x);
        }
        (x, y) = (from_x, from_y);
    }
    places
}

/// Aligns calls that are left over on both sides, equal and close.
fn crossed(reference: &[u64], own: &[u64], places: &mut [Option<usize>]) {
    let mut is_taken = vec![false; reference.len()];
    places.iter().flatten().for_each(|place| is_taken[*place] = true);
    let mut expected = 0;
    for (call, place) in own.iter().zip(places.iter_mut()) {
        match place {
            Some(place) => expected = *place + 1,
            None => {
                let near = expected.saturating_sub(MAX_SHIFT)..(expected + MAX_SHIFT).min(reference.len());
                let same = near.filter(|at| !is_taken[*at] && reference[*at] == *call);
                if let Some(at) = same.min_by_key(|at| (at.abs_diff(expected), *at)) {
                    is_taken[at] = true;
                    *place = Some(at);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn places(reference: &str, own: &str) -> Option<Vec<Option<usize>>> {
        let calls = |text: &str| text.bytes().map(u64::from).collect::<Vec<_>>();
        align(&calls(reference), &calls(own))
    }

    #[test]
    fn one_call_more_or_less_spoils_no_later_one() {
        let all = |places: [usize; 6]| Some(places.map(Some).to_vec());
        assert_eq!(places("aabaab", "aabaab"), all([0, 1, 2, 3, 4, 5]));
        assert_eq!(places("aaxbaab", "aabaab"), all([0, 1, 3, 4, 5, 6]));
        let more = places("aabaab", "aaxbaab").unwrap();
        assert_eq!(more, [Some(0), Some(1), None, Some(2), Some(3), Some(4), Some(5)]);
        let less = places("aabaab", "abaab").unwrap();
        assert_eq!(less[1..], [Some(2), Some(3), Some(4), Some(5)]);
    }

    #[test]
    fn neighbours_in_another_order_are_found() {
        assert_eq!(places("abcdef", "abdcef"), Some([0, 1, 3, 2, 4, 5].map(Some).to_vec()));
    }

    #[test]
    fn those_with_little_in_common_are_not_brought_together() {
        assert_eq!(places("abcabc", "xyzxyz"), None);
        assert_eq!(places("", ""), Some(Vec::new()));
    }

    proptest! {
        #[test]
        fn nothing_is_brought_together_that_differs_and_nothing_twice(
            a in proptest::collection::vec(0u64..4, 0..60), b in proptest::collection::vec(0u64..4, 0..60),
        ) {
            let places = in_order(&a, &b).unwrap();
            let ordered: Vec<usize> = places.iter().flatten().copied().collect();
            prop_assert!(ordered.windows(2).all(|two| two[0] < two[1]));
            prop_assert_eq!(ordered.len(), longest_common(&a, &b));
            let mut all = places.clone();
            crossed(&a, &b, &mut all);
            let mut taken: Vec<usize> = all.iter().flatten().copied().collect();
            prop_assert!(all.iter().zip(&b).all(|(place, call)| place.is_none_or(|place| a[place] == *call)));
            taken.sort_unstable();
            prop_assert!(taken.windows(2).all(|two| two[0] < two[1]));
        }

        #[test]
        fn whatever_is_left_out_of_one_is_all_that_is_missing(
            a in proptest::collection::vec(any::<u64>(), 10..60), gone in 0usize..10,
        ) {
            let mut b = a.clone();
            b.remove(gone);
            let places = align(&a, &b).unwrap();
            let expected = (0..a.len()).filter(|at| *at != gone).map(Some).collect::<Vec<_>>();
            prop_assert_eq!(places, expected);
        }
    }

    fn longest_common(a: &[u64], b: &[u64]) -> usize {
        let mut row = vec![0; b.len() + 1];
        for x in a {
            let mut before = 0;
            for (i, y) in b.iter().enumerate() {
                let above = row[i + 1];
                row[i + 1] = if x == y { before + 1 } else { above.max(row[i]) };
                before = above;
            }
        }
        row[b.len()]
    }
}
