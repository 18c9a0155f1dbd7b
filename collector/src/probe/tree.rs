//! Whom an agent asks: a binomial tree over the agents in the order of their ranks, the lowest its root.

/// Agents that one asks for, one after the other, until one answers.
pub(super) const MOST_CANDIDATES: usize = 12;

/// Whom number `own` of the agents asks: its parent, its further ancestors, then any lower one. Nobody
/// above, so that never two measure each other and nobody measures for the sake of a root that is gone.
pub(super) fn candidates(own: usize) -> Vec<usize> {
    let mut order = Vec::new();
    let mut at = own;
    while at > 0 {
        // The parent has the lowest bit cleared.
        at &= at - 1;
        order.push(at);
    }
    for lower in 0..own {
        if order.len() >= MOST_CANDIDATES {
            break;
        }
        if !order.contains(&lower) {
            order.push(lower);
        }
    }
    order.truncate(MOST_CANDIDATES);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestors_come_first_and_then_lower_ones() {
        assert_eq!(candidates(0), Vec::<usize>::new());
        assert_eq!(candidates(1), [0]);
        assert_eq!(candidates(4), [0, 1, 2, 3]);
        assert_eq!(candidates(7), [6, 4, 0, 1, 2, 3, 5]);
        assert_eq!(candidates(255).len(), MOST_CANDIDATES);
        assert_eq!(candidates((1 << 20) - 1).len(), MOST_CANDIDATES);
    }

    /// Whom each of the living ones asks, and how many steps it is to one who asks nobody.
    fn depths(count: usize, dead: &[usize]) -> Vec<usize> {
        let mut depths: Vec<usize> = Vec::new();
        for own in 0..count {
            let asked = candidates(own).into_iter().find(|lower| !dead.contains(lower));
            depths.push(asked.map_or(0, |asked| depths[asked] + 1));
        }
        depths
    }

    #[test]
    fn all_that_live_hang_together_also_without_the_root() {
        let depths_of_all = depths(256, &[]);
        assert_eq!(depths_of_all.iter().max(), Some(&8));
        assert_eq!(depths_of_all.iter().filter(|depth| **depth == 0).count(), 1);
        for dead in [vec![0], vec![0, 1], vec![0, 128, 192], (0..9).collect()] {
            let depths = depths(256, &dead);
            let roots = (0..256).filter(|own| !dead.contains(own) && depths[*own] == 0).count();
            assert_eq!(roots, 1, "{dead:?}");
        }
    }
}
