//! The agents that have joined the tree, in the memory of the root alone.

use super::card::{AgentCard, AgentId};
use super::tree;
use std::collections::HashMap;

/// Maximum number of agents in one tree. No machine has as many nodes.
const MAX_MEMBERS: usize = 1 << 16;

/// Assigns each agent a number in the order of joining. The root itself has number 0.
#[derive(Debug)]
pub(super) struct AgentRegistry {
    members: Vec<AgentCard>,
    numbers: HashMap<AgentId, u32>,
}

impl AgentRegistry {
    pub(super) fn new(root: AgentCard) -> AgentRegistry {
        AgentRegistry { numbers: HashMap::from([(root.agent, 0)]), members: vec![root] }
    }

    /// Returns the number of an agent, which stays the same if it joins again. `None` for the root itself,
    /// and for new agents beyond [`MAX_MEMBERS`].
    pub(super) fn join(&mut self, card: AgentCard) -> Option<u32> {
        if let Some(number) = self.numbers.get(&card.agent).copied() {
            let known = self.members.get_mut(number as usize).filter(|_| number > 0)?;
            *known = card;
            return Some(number);
        }
        let number = u32::try_from(self.members.len()).ok()?;
        if self.members.len() >= MAX_MEMBERS {
            return None;
        }
        self.numbers.insert(card.agent, number);
        self.members.push(card);
        Some(number)
    }

    /// Returns the agents that number `own` probes, the parent first and the root last.
    pub(super) fn candidates(&self, own: u32) -> Vec<&AgentCard> {
        tree::ancestors(own).filter_map(|number| self.members.get(number as usize)).collect()
    }

    /// Whether an agent has joined.
    pub(super) fn has(&self, agent: AgentId) -> bool {
        self.numbers.contains_key(&agent)
    }
}

#[cfg(test)]
mod tests {
    use super::super::card::tests::card;
    use super::*;

    #[test]
    fn numbers_come_in_the_order_of_joining_and_stay() {
        let mut registry = AgentRegistry::new(card(100));
        assert_eq!(
            (1..=6).map(|agent| registry.join(card(agent))).collect::<Option<Vec<_>>>().unwrap(),
            [1, 2, 3, 4, 5, 6]
        );
        let moved = AgentCard { addresses: vec!["10.0.0.9:9".parse().unwrap()], ..card(2) };
        assert_eq!(registry.join(moved.clone()), Some(2));
        assert_eq!(registry.join(card(100)), None, "the root");
        assert_eq!(registry.candidates(3), [&moved, &card(100)]);
        assert_eq!(registry.candidates(7), [&card(6), &card(4), &card(100)]);
        assert!(registry.has(AgentId(6)) && !registry.has(AgentId(7)));
    }

    #[test]
    fn members_are_bounded() {
        let mut registry = AgentRegistry::new(card(0));
        let joined = (1..=MAX_MEMBERS as u64 + 9).filter(|agent| registry.join(card(*agent)).is_some());
        assert_eq!(joined.count(), MAX_MEMBERS - 1);
        assert_eq!(registry.join(card(5)), Some(5), "that has joined");
        assert!(registry.candidates(MAX_MEMBERS as u32 - 1).len() <= 16);
    }
}
