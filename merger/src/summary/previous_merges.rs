//! Results stored by previous merges. They remain valid for the rows of that merge and are reported unchanged.

use super::MergeReport;
use super::clocks::{ClockRow, names, shown_domains};
use crate::agree::findings::JobFindings;
use crate::agree::job_clocks::{CausalityRepair, JobClocks};
use crate::agree::nodes::JobNodes;
use crate::input::host_clocks::MERGED_TIME_NAMESPACE;
use crate::input::plan::{MergePlan, PreviousMerge};
use crate::options::MergeArgs;
use rpd_clocks::AlignChoice;
use rpd_collectives::{CollectiveCounts, LateRank, LatenessSummary};
use rpd_shard::record::ClockDomain;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

impl PreviousMerge {
    fn json<T: DeserializeOwned>(&self, tag: &str) -> Option<T> {
        serde_json::from_str(self.tags.get(tag)?).ok()
    }

    /// Returns the report of its clocks.
    fn clocks(&self) -> Vec<ClockRow> {
        let rows: Vec<ClockRow> = self.json("rpd.clock.domains").unwrap_or_default();
        let noted = |row: ClockRow| {
            let previous_merge = row.previous_merge.or_else(|| Some(self.guid.clone()));
            ClockRow { previous_merge, ..row }
        };
        rows.into_iter().map(noted).collect()
    }

    /// Returns the reference clock of its times; `None` if it is unknown or there are several.
    pub fn reference(&self) -> Option<ClockDomain> {
        match self.references().as_slice() {
            [one] => Some(one.domain()),
            _ => None,
        }
    }

    /// Returns the reference clocks of its times. There are several if its inputs were merges with unrelated clocks.
    fn references(&self) -> Vec<ClockRow> {
        let rows: Vec<ClockRow> = self.json("rpd.clock.domains").unwrap_or_default();
        let mut references: Vec<ClockRow> = Vec::new();
        for row in rows.into_iter().filter(ClockRow::is_reference) {
            if references.iter().all(|known| known.domain() != row.domain()) {
                references.push(row);
            }
        }
        references
    }

    /// Describes the reference clocks of its times, for example `the clocks of n0 (rank 2) and n0 (rank 0)`.
    fn clocks_in_words(&self) -> String {
        let references = self.references();
        match names(&references).as_slice() {
            [] => format!("the clock of {}", self.host()),
            [one] => format!("the clock of {one}"),
            [some @ .., last] => format!("the clocks of {} and {last}", some.join(", ")),
        }
    }

    /// Returns a note if its times have several reference clocks.
    fn note_of_several_clocks(&self) -> Option<String> {
        (self.references().len() > 1).then(|| {
            format!(
                "{} was merged before, in {}, and it is unknown how far they are apart; merge what it was made of instead",
                self.path.display(),
                self.clocks_in_words()
            )
        })
    }

    fn host(&self) -> &str {
        self.tags.get("rpd.clock.reference").map_or("", String::as_str)
    }

    /// Returns the entries for the metadata of another merge: its own results, and those of merges before it.
    fn words(&self) -> Vec<Json> {
        let mut words: Vec<Json> = self.json("rpd.former_merges").unwrap_or_default();
        words.push(json!({
            "guid": self.guid,
            "reference": self.host(),
            "realtime_minus_boottime_ns": self.json::<Option<i64>>("rpd.clock.realtime_minus_boottime_ns").flatten(),
            "repair": self.json::<CausalityRepair>("rpd.clock.repair"),
            "collectives": self.json::<CollectiveCounts>("rpd.collectives"),
            "late_ranks": self.json::<Vec<LateRank>>("rpd.late_ranks"),
            "lateness": self.json::<LatenessSummary>("rpd.lateness"),
        }));
        words
    }
}

/// Adds the metadata rows about previous merges.
pub(crate) fn metadata_of_previous(plan: &MergePlan, own: &mut Vec<(String, String)>) {
    match plan.only_previous_merge() {
        // The clocks were not measured again.
        Some(only) => {
            own.retain(|(tag, _)| !only.tags.contains_key(tag) && tag != "rpd.clock.error_bounds");
            own.extend(only.tags.iter().map(|(tag, value)| (tag.clone(), value.clone())));
            if !plan.ranks.left_out.is_empty() {
                // The processes have other ids than in the input.
                own.retain(|(tag, _)| tag != "rpd.communicators");
            }
        }
        None if plan.previous_merges.is_empty() => {}
        None => {
            let words: Vec<Json> = plan.previous_merges.iter().flat_map(PreviousMerge::words).collect();
            own.push(("rpd.former_merges".to_owned(), json!(words).to_string()));
        }
    }
}

/// Returns the clocks of the job, followed by those of previous merges.
pub(super) fn clock_rows(plan: &MergePlan, clocks: &JobClocks, found: &JobFindings) -> Vec<ClockRow> {
    if let Some(only) = plan.only_previous_merge() {
        let rows: Vec<ClockRow> = only.json("rpd.clock.domains").unwrap_or_default();
        if !rows.is_empty() {
            return rows;
        }
    }
    let previous: Vec<ClockRow> = plan.previous_merges.iter().flat_map(PreviousMerge::clocks).collect();
    // Clocks that a previous merge describes are not repeated.
    let is_repeated =
        |domain: &ClockDomain| domain.time_namespace == MERGED_TIME_NAMESPACE && !previous.is_empty();
    let own = shown_domains(clocks, found).into_iter().filter(|domain| !is_repeated(domain));
    own.map(|domain| ClockRow::new(&domain, clocks, found)).chain(previous.iter().cloned()).collect()
}

/// Returns notes about times of previous merges beside other inputs.
pub(super) fn notes(plan: &MergePlan, clocks: &JobClocks, nodes: &JobNodes) -> Vec<String> {
    if let Some(only) = plan.only_previous_merge() {
        return only.note_of_several_clocks().into_iter().collect();
    }
    let own = nodes.names(&clocks.reference);
    let own = own.first().map_or("another node", String::as_str);
    let references: Vec<Option<ClockDomain>> =
        plan.previous_merges.iter().map(PreviousMerge::reference).collect();
    let are_one = references.iter().all(|one| one.is_some() && *one == references[0]);
    let are_all_merged = clocks.reference.time_namespace == MERGED_TIME_NAMESPACE;
    let note = |previous: &PreviousMerge| {
        if let Some(note) = previous.note_of_several_clocks() {
            return note;
        }
        let (path, its_clocks) = (previous.path.display(), previous.clocks_in_words());
        if previous.reference().is_some_and(|reference| reference == clocks.reference) {
            return format!(
                "{path} was merged before, in the clock of {own} too: its times stay as they are, and fit to the others"
            );
        }
        let others = match (are_all_merged, are_one) {
            (true, true) => "",
            (true, false) => {
                ", and it is unknown how far that is from the clocks of the other inputs; merge what it was made of instead"
            }
            (false, _) => &format!(
                ", all others are in that of {own}, and it is unknown how far the two are apart; merge what it was made of instead"
            ),
        };
        format!("{path} was merged before: its times stay in {its_clocks}{others}")
    };
    plan.previous_merges.iter().map(note).collect()
}

impl MergeReport {
    /// Adopts the results of the only input, a previous merge.
    pub fn adopt_results(&mut self, only: &PreviousMerge) {
        self.merged_before = true;
        if let Some(align) = only.tags.get("rpd.clock.align") {
            self.align.clone_from(align);
        }
        self.collectives = only.json("rpd.collectives").unwrap_or_default();
        self.collective_faults = only.json("rpd.collective_faults").unwrap_or_default();
        self.late_ranks = only.json("rpd.late_ranks").unwrap_or_default();
        self.lateness = only.json("rpd.lateness");
        self.repaired = only.json("rpd.clock.repair");
    }

    /// Returns whether a previous merge is among the inputs.
    pub(super) fn has_previous_merge(&self) -> bool {
        self.clocks.iter().any(|row| row.previous_merge.is_some())
    }

    /// Adds a note about options on the command line that have no effect on previous merges among the inputs.
    pub fn note_options_without_effect(&mut self, args: &MergeArgs, plan: &MergePlan) {
        let typed = [
            (args.align != AlignChoice::Auto, "--align"),
            (args.repair_causality, "--repair-causality"),
            (args.clock_file.is_some(), "--clock-file"),
        ];
        let typed: Vec<&str> =
            typed.iter().filter(|(is_typed, _)| *is_typed).map(|(_, name)| *name).collect();
        let options = match typed.as_slice() {
            [] => return,
            [one] => format!("{one} has"),
            [some @ .., last] => format!("{} and {last} have", some.join(", ")),
        };
        let merges = match plan.previous_merges.as_slice() {
            [] => return,
            [one] => format!("{}, which was merged before", one.path.display()),
            [one, ..] => format!("{} and others that were merged before", one.path.display()),
        };
        self.notes
            .push(format!("{options} no effect on times of {merges}; merge what it was made of instead",));
    }
}
