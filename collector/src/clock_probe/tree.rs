//! The agents that an agent probes: its ancestors in a binomial tree of numbers, with number 0 as the root.

/// Returns the parent of number `own`, then the further ancestors up to 0. The parent has the lowest bit
/// cleared.
///
/// All are lower than `own`, so that two agents of one tree never probe each other.
pub(super) fn ancestors(own: u32) -> impl Iterator<Item = u32> {
    let parent = |at: &u32| (*at > 0).then(|| at & (at - 1));
    std::iter::successors(parent(&own), parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(own: u32) -> Vec<u32> {
        ancestors(own).collect()
    }

    #[test]
    fn the_parent_comes_first_and_the_root_last() {
        assert!(listed(0).is_empty());
        assert_eq!(listed(1), [0]);
        assert_eq!(listed(6), [4, 0]);
        assert_eq!(listed(7), [6, 4, 0]);
        assert_eq!(listed(u32::from(u16::MAX)).len(), 16);
        assert_eq!(listed(u32::MAX).len(), 32);
    }

    #[test]
    fn living_agents_are_connected_while_the_root_lives() {
        for dead in [vec![], vec![128, 192], (1..9).collect()] {
            for own in (1..256u32).filter(|own| !dead.contains(own)) {
                let probed = ancestors(own).find(|lower| !dead.contains(lower));
                assert!(probed.is_some_and(|probed| probed < own), "{own}");
            }
        }
        assert_eq!((0..256).map(|own| listed(own).len()).max(), Some(8), "steps to the root");
        let children = |of| (1..256).filter(|own| listed(*own)[0] == of).count();
        assert_eq!((0..256).map(children).max(), Some(8));
    }
}
