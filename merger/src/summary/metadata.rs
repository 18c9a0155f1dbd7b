//! The metadata of a merged database.
//!
//! Nothing here may depend on the date, on paths, or on the number of merge ranks: the same inputs yield the same
//! database.

use super::MergeReport;
use super::clocks::shown_domains;
use super::previous_merges::metadata_of_previous;
use crate::agree::findings::JobFindings;
use crate::agree::job_clocks::JobClocks;
use crate::input::plan::MergePlan;
use crate::partial_output::made_by_merge::STILL_RUNNING;
use serde_json::{Value as Json, json};

/// Returns the metadata rows, each with tag and value.
pub(crate) fn metadata(
    plan: &MergePlan,
    report: &MergeReport,
    clocks: &JobClocks,
    found: &JobFindings,
    communicators: Option<&Json>,
) -> Vec<(String, String)> {
    let reference = found.nodes.nodes().iter().find(|n| n.boot_id == clocks.reference.boot_id);
    let own = [
        ("rpd.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("rpd.run_id", plan.run_id.clone()),
        ("rpd.processes", report.processes.to_string()),
        ("rpd.missing_ranks", json!(plan.ranks.missing).to_string()),
        ("rpd.left_out_ranks", json!(plan.ranks.left_out).to_string()),
        ("rpd.unfinished_ranks", json!(plan.unfinished_ranks()).to_string()),
        ("rpd.unreadable_shards", plan.refused.to_string()),
        ("rpd.clock", format!("{} of the reference node", clocks.clock.name())),
        ("rpd.clock.reference", reference.map_or(String::new(), |n| n.hostname.clone())),
        ("rpd.clock.realtime_minus_boottime_ns", json!(clocks.realtime_anchor()).to_string()),
        ("rpd.clock.align", clocks.align.clone()),
        ("rpd.clock.domains", json!(report.clocks).to_string()),
        ("rpd.clock.error_bounds", error_bounds(clocks, found).to_string()),
        ("rpd.collectives", json!(report.collectives).to_string()),
        ("rpd.late_ranks", json!(report.late_ranks).to_string()),
        ("rpd.losses", json!(report.losses).to_string()),
        ("rpd.replaced", json!(report.replaced).to_string()),
    ];
    let mut all: Vec<_> = own.into_iter().map(|(tag, value)| (tag.to_owned(), value)).collect();
    let exits = Some(&report.commands_ended).filter(|exits| !exits.is_empty());
    let faults = Some(&report.collective_faults).filter(|faults| !faults.is_empty());
    let optional = [
        ("rpd.communicators", communicators.cloned()),
        ("rpd.collective_faults", faults.map(|faults| json!(faults))),
        ("rpd.commands_ended", exits.map(|exits| json!(exits))),
        ("rpd.lateness", report.lateness.as_ref().map(|lateness| json!(lateness))),
        (STILL_RUNNING, report.still_running.as_ref().map(|running| json!(running))),
        ("rpd.clock.repair", report.repaired.as_ref().map(|repair| json!(repair))),
    ];
    all.extend(optional.into_iter().filter_map(|(tag, value)| Some((tag.to_owned(), value?.to_string()))));
    metadata_of_previous(plan, &mut all);
    if !plan.previous_losses.is_empty() {
        all.push(("rpd.former_losses".to_owned(), json!(plan.previous_losses).to_string()));
    }
    all.extend(plan.tags.iter().cloned());
    all
}

/// Returns the bounds of each clock domain that was aligned.
fn error_bounds(clocks: &JobClocks, found: &JobFindings) -> Json {
    let domains = shown_domains(clocks, found);
    let bounds = domains.iter().map(|domain| clocks.error_bounds(domain));
    let known = bounds.filter(|bounds| bounds.error_bound_ns.iter().any(Option::is_some));
    json!(known.collect::<Vec<_>>())
}
