use super::matched_call::MatchedCollective;
use super::participants::JobMembers;
use rpd_clocks::{AlignMethod, DomainFit};
use rpd_shard::model::LocalNs;
use rpd_shard::record::ClockDomain;
use std::collections::BTreeMap;

/// The participants of the job with the fits of their clocks.
pub(super) struct ParticipantClocks<'a> {
    pub(super) members: &'a JobMembers,
    /// Fits by participant; `None` if the clock is not aligned.
    fits: Vec<Option<&'a DomainFit>>,
}

impl<'a> ParticipantClocks<'a> {
    /// Assigns each participant its fit. `fits` are by clock domain.
    pub(super) fn new(
        members: &'a JobMembers,
        fits: &'a BTreeMap<ClockDomain, DomainFit>,
    ) -> ParticipantClocks<'a> {
        ParticipantClocks { members, fits: members.all.iter().map(|one| fits.get(&one.domain)).collect() }
    }

    /// Returns the fit of a participant's clock.
    pub(super) fn fit(&self, participant: u32) -> Option<&'a DomainFit> {
        self.fits.get(participant as usize).copied().flatten()
    }

    /// Returns the clock domain of a participant.
    pub(super) fn domain(&self, participant: u32) -> Option<&'a ClockDomain> {
        self.members.get(participant).map(|one| &one.domain)
    }

    /// Converts a time of a participant's clock to job time, ns. Without a fit it stays as it is.
    pub(super) fn job_time(&self, participant: u32, time: i64) -> i64 {
        self.fit(participant).map_or(time, |fit| fit.map.map(LocalNs(time)).ns())
    }

    /// Returns whether the times of all ranks are from one clock or from aligned clocks.
    pub(super) fn can_compare(&self, collective: &MatchedCollective) -> bool {
        let Some(first) = collective.calls.first() else { return false };
        let mut participants = collective.calls.iter().map(|call| call.participant);
        participants.clone().all(|participant| self.domain(participant) == self.domain(first.participant))
            || participants
                .all(|participant| self.fit(participant).is_some_and(|fit| fit.method != AlignMethod::None))
    }
}
