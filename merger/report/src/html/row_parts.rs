//! The parts of a page that are read from rows, and the page with the analysis of calls.

use super::counters::CounterRequest;
use super::heat_map::HeatMap;
use super::named_ranks::NamedRanks;
use super::page_facts::PageFacts;
use crate::clocks::report_clocks;
use crate::collectives::report_collectives;
use crate::gpu::report_gpu;
use crate::input::{ProcessGroups, ReportRun};
use crate::integrity::{integrity_table, not_recorded};
use crate::messages::messages_report;
use crate::overview::verdict_screen;
use crate::print::head_line;
use crate::ranks::{rank_times, ranks_report};
use crate::report::{Report, Unavailable};
use crate::rows::TimedRows;
use crate::summary::{SummaryRows, joined_span, report_summary};
use crate::waiting::{AnalysedRun, missing_reasons};
use rpd_comm::Comm;
use rpd_console::Failure;

/// The parts of the page that are read from rows.
#[derive(Debug)]
pub(super) struct RowParts {
    groups: ProcessGroups,
    /// Time of the first event of the run, ns in job time.
    origin: i64,
    /// First and last time of the rows in the window, ns in job time; only on rank 0.
    span: Option<(i64, i64)>,
    /// Without rows, there is no map.
    heat_map: Option<HeatMap>,
    ranks: Report,
    names: Report,
    collectives: Report,
    gpus: Report,
    clocks: Report,
    not_recorded: Vec<Unavailable>,
}

impl RowParts {
    /// Reads the rows on all merge ranks.
    pub(super) fn read(run: &ReportRun, comm: &dyn Comm, max_rows: usize) -> Result<RowParts, Failure> {
        let rows = TimedRows::new(run);
        let groups = ProcessGroups::by_rank(&run.database.processes);
        let times = rank_times(&rows, comm, &groups)?;
        let span = times.values().fold(None, |span, times| joined_span(span, times.span));
        let window = run.selection.window_ns();
        let span = span.map(|(start, end)| match window {
            Some((from, to)) => (start.max(from), end.min(to)),
            None => (start, end),
        });
        let span = span.filter(|(start, end)| start < end && comm.rank() == 0);
        let heat_map = span.map(|span| HeatMap::new(&times, span));
        let ranks = ranks_report(&rows, &groups, times, usize::MAX);
        let not_recorded = not_recorded(&rows);
        drop(rows);
        Ok(RowParts {
            groups,
            origin: run.extent.map_or(0, |(first, _)| first),
            span,
            heat_map,
            ranks,
            names: report_summary(run, comm, SummaryRows::WholeRun, max_rows)?,
            collectives: report_collectives(run, comm, max_rows)?,
            gpus: report_gpu(run, comm, usize::MAX)?,
            clocks: report_clocks(run, max_rows),
            not_recorded,
        })
    }

    /// Collects what the page has of rows and calls. Returns it with the named ranks.
    pub(super) fn facts(
        &mut self,
        run: &ReportRun,
        found: &AnalysedRun<'_>,
        max_rows: usize,
    ) -> Result<(PageFacts, NamedRanks), Failure> {
        let mut facts = PageFacts::default();
        let screen = verdict_screen(run, found);
        facts.add_head(&head_line(&self.ranks.run), &screen);
        let named = NamedRanks::of(found);
        facts.add_named(&named);
        if let Some(map) = &mut self.heat_map {
            map.add_waiting(found, &self.groups);
            facts.add_heat_map(map, &self.groups, self.origin);
        }
        facts.add_steps(run, found, &named);
        facts.add_blame(found, &named)?;
        let messages = messages_report(run, found, max_rows);
        for report in [&self.ranks, &self.collectives, &messages, &self.names, &self.gpus, &self.clocks] {
            facts.add_report(report);
        }
        let (integrity, notes) = integrity_table(run, max_rows);
        facts.add_table("integrity", &integrity, &[]);
        facts.add_notes("integrity", &notes);
        facts.add_first_unavailable(
            missing_reasons(found.calls).into_iter().chain(self.not_recorded.iter().cloned()),
        );
        Ok((facts, named))
    }

    /// Returns of which rank counters are read: of the first named one.
    pub(super) fn counter_request(&self, named: &NamedRanks) -> Option<CounterRequest> {
        let (rank, span) = (*named.ranks.first()?, self.span?);
        let group = self.groups.groups.iter().find(|group| group.rank == Some(rank))?;
        Some(CounterRequest { rank, host: group.host.clone(), origin: self.origin, span })
    }
}
