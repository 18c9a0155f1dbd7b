//! Clock domains of the job, in the order of their occurrence.

use crate::input::InputSource;
use crate::input::host_clocks::MERGED_TIME_NAMESPACE;
use rpd_shard::record::ClockDomain;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Returns the domains to which a source's times belong.
pub(super) fn domains_of(source: &InputSource) -> Vec<ClockDomain> {
    let mut domains = vec![source.process.domain.clone()];
    if domains[0].time_namespace == MERGED_TIME_NAMESPACE {
        domains.extend(source.nodes.iter().map(|(_, node)| ClockDomain {
            boot_id: node.boot_id.clone(),
            time_namespace: MERGED_TIME_NAMESPACE,
        }));
    }
    domains
}

/// Distinct domains, in the order of their first occurrence.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct DomainList {
    pub(super) all: Vec<ClockDomain>,
    #[serde(skip)]
    known: BTreeSet<ClockDomain>,
}

impl DomainList {
    pub(super) fn add(&mut self, domain: ClockDomain) {
        // Mostly the domain of the previous process.
        if self.all.last() != Some(&domain) && self.known.insert(domain.clone()) {
            self.all.push(domain);
        }
    }

    pub(super) fn extend(&mut self, other: DomainList) {
        other.all.into_iter().for_each(|domain| self.add(domain));
    }
}
