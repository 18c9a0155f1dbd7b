//! What the script of a page gets: texts, tables, and places of arrays.

use super::blame_matrix::BlameMatrix;
use super::counters::NamedCounters;
use super::heat_map::HeatMap;
use super::named_ranks::NamedRanks;
use super::packed_tables::PackedTables;
use super::page::page_text;
use crate::blame::{label_table, rank_table, unknown_of_ranks};
use crate::input::{ProcessGroups, ReportRun};
use crate::print::next_text;
use crate::report::{NextCommand, Report, ReportTable, Unavailable, VerdictScreen};
use crate::steps::step_series;
use crate::waiting::{AnalysedRun, no_calls, no_steps};
use rpd_console::Failure;
use rpd_console::wording::one_line;
use serde_json::{Map, Value as Json, json};

/// Maximum number of labels that are compared.
const MAX_LABELS: usize = 15;

/// What the script of the page gets.
#[derive(Debug, Default)]
pub(super) struct PageFacts {
    values: Map<String, Json>,
    tables: Map<String, Json>,
    /// Notes below tables, by their keys.
    notes: Map<String, Json>,
    unavailable: Vec<Unavailable>,
    packed: PackedTables,
}

impl PageFacts {
    fn insert(&mut self, key: &str, value: Json) {
        self.values.insert(key.to_owned(), value);
    }

    /// Adds a table. `titles` replace titles of columns, by their keys.
    pub(super) fn add_table(&mut self, key: &str, table: &ReportTable, titles: &[(&str, String)]) {
        let described = self.packed.table(table, titles);
        self.tables.insert(key.to_owned(), described);
    }

    /// Adds notes below a table.
    pub(super) fn add_notes(&mut self, key: &str, notes: &[String]) {
        self.notes.insert(key.to_owned(), json!(notes));
    }

    /// Adds what cannot be known, before all that is added so far.
    pub(super) fn add_first_unavailable(&mut self, missing: impl Iterator<Item = Unavailable>) {
        self.unavailable.splice(0..0, missing);
    }

    /// Adds which ranks are beside the others.
    pub(super) fn add_named(&mut self, named: &NamedRanks) {
        self.insert("named", json!({"ranks": named.ranks, "is_finding": named.is_finding}));
    }

    /// Adds the tables of a subcommand with their notes.
    pub(super) fn add_report(&mut self, report: &Report) {
        report.tables.iter().for_each(|table| self.add_table(table.key, table, &[]));
        self.add_notes(report.subject, &report.notes);
        // The page has the times of the run.
        let missing = report.unavailable.iter().filter(|missing| missing.subject != "run.start_ns");
        self.unavailable.extend(missing.cloned());
    }

    /// Adds the heading and the first screen.
    pub(super) fn add_head(&mut self, head: &str, screen: &VerdictScreen) {
        let lines: Vec<Json> =
            screen.lines.iter().map(|(label, text)| json!([label, one_line(text)])).collect();
        self.insert("head", json!(one_line(head)));
        self.insert("lines", json!(lines));
        // Paths of inputs are not in the page, so that it is the same for the same run.
        let next = screen.next.iter().map(|next| {
            let selection = next.selection.clone();
            next_text(&NextCommand { inputs: None, selection, ..next.clone() })
        });
        let next: Vec<String> = next.map(|text| one_line(&text)).collect();
        self.insert("next", json!(next));
    }

    /// Adds what each rank does over time, with a table of it.
    /// Its times count from `origin`, ns in job time.
    pub(super) fn add_heat_map(&mut self, map: &HeatMap, groups: &ProcessGroups, origin: i64) {
        let (start_ns, length_ns) = map.start_and_length();
        let from_ns = start_ns.saturating_sub(origin);
        let dominating = self.packed.bytes(&map.dominating());
        let waiting = self.packed.bytes(&map.waiting_percent());
        self.insert(
            "heat",
            json!({
                "from_ns": from_ns, "length_ns": length_ns, "cells": map.cells(), "has_gpus": map.has_gpus(),
                "dominating": dominating, "waiting": waiting,
            }),
        );
        self.add_table("time", &map.table(groups), &[]);
    }

    /// Adds the steps, with the work of named ranks beside that of the others.
    pub(super) fn add_steps(&mut self, run: &ReportRun, found: &AnalysedRun<'_>, named: &NamedRanks) {
        let (origin, _) = run.extent.unwrap_or_default();
        let steps = step_series(found, &named.threads(found), origin);
        let keys = ["named_1_work_ns", "named_2_work_ns", "named_3_work_ns"];
        let titles: Vec<(&str, String)> =
            keys.into_iter().zip(named.ranks.iter().map(|rank| format!("work of rank {rank}"))).collect();
        self.add_table("step_series", &steps.series, &titles);
        self.add_table("step_distribution", &steps.distribution, &[]);
        self.insert("steps_in_row", json!(steps.steps_in_row));
        if steps.series.rows.is_empty() {
            self.insert("no_steps", json!(no_steps(found.calls).text()));
        }
    }

    /// Adds the delays that ranks cause: by rank, by pairs, and the work of the first named rank.
    pub(super) fn add_blame(&mut self, found: &AnalysedRun<'_>, named: &NamedRanks) -> Result<(), Failure> {
        if found.calls.job.timelines.is_empty() {
            self.insert("no_calls", json!(no_calls("waiting", found.calls).text()));
            return Ok(());
        }
        let table = rank_table(found, usize::MAX);
        self.unavailable.extend(unknown_of_ranks(&table));
        self.add_table("blame", &table, &[]);
        self.add_notes("blame", &found.reasons);
        if let Some(rank) = named.ranks.first() {
            self.add_table("labels", &label_table(found, *rank, MAX_LABELS)?, &[]);
        }
        let matrix = BlameMatrix::of(found);
        let ns = self.packed.numbers(matrix.ns.iter().copied());
        let (unit, groups, compared) = (matrix.unit, matrix.groups, matrix.compared_causes);
        self.insert("matrix", json!({"unit": unit, "groups": groups, "ns": ns, "compared_causes": compared}));
        self.add_table("pairs", &matrix.pairs, &[]);
        Ok(())
    }

    /// Adds the counters of the first named rank, or why there are none.
    pub(super) fn add_counters(&mut self, counters: Option<&NamedCounters>, named: &NamedRanks) {
        let Some(counters) = counters else {
            let reason = match named.ranks.is_empty() {
                true => {
                    "no rank with a number made others wait, so no node and no GPU is compared with others"
                }
                false => "no rows with times are in this part of the run",
            };
            self.insert("no_counters", json!(format!("counters: {reason}")));
            return;
        };
        if let Some(missing) = counters.not_recorded() {
            self.insert("no_counters", json!(one_line(&missing.text())));
            self.unavailable.push(missing);
            return;
        }
        self.insert("counters", counters.json());
        self.add_table("counters", &counters.table(), &[]);
        self.add_table("counter_points", &counters.points_table(), &[]);
    }

    /// Returns the page.
    pub(super) fn text(mut self) -> Result<String, Failure> {
        let mut unavailable: Vec<Json> = Vec::new();
        for missing in &self.unavailable {
            let entry = json!([missing.subject, one_line(&missing.reason), missing.how_to_record]);
            if !unavailable.contains(&entry) {
                unavailable.push(entry);
            }
        }
        self.values.insert("tables".to_owned(), self.tables.into());
        self.values.insert("notes".to_owned(), self.notes.into());
        self.values.insert("unavailable".to_owned(), unavailable.into());
        self.values.insert("texts".to_owned(), json!(self.packed.take_texts()));
        page_text(&self.values.into(), &self.packed.arrays)
    }
}
