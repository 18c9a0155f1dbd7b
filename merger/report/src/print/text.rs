//! The report for people: as text, or as Markdown.

use super::screen::screen_text;
use crate::report::{Cell, Report, ReportTable, RunHead};
use comfy_table::{CellAlignment, ContentArrangement, Table};
use rpd_console::wording::{counted, one_line};
use rpd_verdict::cut_middle;

/// Maximum number of characters in a cell.
const MAX_CHARS: usize = 60;
/// Spaces between columns.
const GAP: u16 = 2;

/// Form of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TableStyle {
    Plain,
    /// Headings are bold.
    Coloured,
    Markdown,
}

/// Returns the report as lines. No name in it can contain control characters.
pub(super) fn report_text(report: &Report, style: TableStyle) -> String {
    let mut text = cut_middle(&one_line(&head_line(&report.run)), 2 * MAX_CHARS) + "\n";
    if let Some(screen) = &report.screen {
        text += &format!("\n{}", screen_text(screen, &report.unavailable, style));
    }
    let is_below =
        |table: &&ReportTable| report.screen.as_ref().is_none_or(|screen| screen.tables.contains(&table.key));
    for table in report.tables.iter().filter(is_below).filter(|table| !table.rows.is_empty()) {
        text.push('\n');
        text += &table_text(table, style);
        if table.omitted > 0 {
            let more = counted(table.omitted, "more row");
            text += &format!("{}{more}: --top 0 shows all\n", gap(style));
        }
    }
    let lines = report.notes.iter().map(|note| ("note", note.clone()));
    // The screen has these itself.
    let missing = report.unavailable.iter().filter(|_| report.screen.is_none());
    let missing = missing.map(|missing| ("unavailable", missing.text()));
    for (place, (label, line)) in lines.chain(missing).enumerate() {
        if place == 0 {
            text.push('\n');
        }
        text += &match style {
            TableStyle::Markdown => format!("* {label}: {}\n", markdown(&one_line(&line))),
            _ => format!("{label:<12} {}\n", one_line(&line)),
        };
    }
    text
}

/// Returns the line between a table of a style and what follows.
fn gap(style: TableStyle) -> &'static str {
    if style == TableStyle::Markdown { "\n" } else { "" }
}

/// Returns what the report is about: the run with its ranks, nodes and length.
pub(crate) fn head_line(run: &RunHead) -> String {
    let length = run.span.map(|(first, last)| Cell::Nanoseconds(last.saturating_sub(first)).shown());
    let doubt = if run.has_comparable_clocks { "" } else { " by clocks of nodes that were not compared" };
    let length = length.map_or(String::new(), |length| format!(", {length}{doubt}"));
    let processes = counted(run.processes, "process");
    let whose = match run.ranks {
        0 => processes,
        ranks if ranks == run.processes => counted(ranks, "rank"),
        ranks => format!("{} ({})", counted(ranks, "rank"), processes),
    };
    // Profilers record no run id.
    let id = if run.id.is_empty() { String::new() } else { format!(" {}", run.id) };
    format!("run{id}: {whose} on {}{length}", counted(run.nodes, "node"))
}

fn table_text(table: &ReportTable, style: TableStyle) -> String {
    let mut shown = Table::new();
    let preset = if style == TableStyle::Markdown {
        comfy_table::presets::ASCII_MARKDOWN
    } else {
        comfy_table::presets::NOTHING
    };
    shown.load_style(preset).set_content_arrangement(ContentArrangement::Disabled);
    let places: Vec<usize> = (0..table.columns.len()).filter(|place| is_shown(table, *place)).collect();
    shown.set_header(places.iter().filter_map(|place| table.columns.get(*place)).map(|column| column.title));
    for row in &table.rows {
        shown.add_row(places.iter().filter_map(|place| row.get(*place)).map(|cell| {
            let text = one_line(&cut_middle(&cell.shown(), MAX_CHARS));
            if style == TableStyle::Markdown { markdown(&text) } else { text }
        }));
    }
    for (number, place) in places.iter().enumerate() {
        let Some(column) = shown.column_mut(number) else { continue };
        let is_number = |row: &Vec<Cell>| row.get(*place).is_some_and(|cell| cell.is_number());
        if table.rows.iter().all(is_number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        if style != TableStyle::Markdown {
            column.set_padding((0, GAP));
        }
    }
    let mut text = String::new();
    for (place, line) in shown.lines().enumerate() {
        let line = line.trim_end();
        let is_bold = place == 0 && style == TableStyle::Coloured;
        text += &if is_bold { format!("\x1b[1m{line}\x1b[0m\n") } else { format!("{line}\n") };
    }
    text
}

/// Columns without a title are for machines only. One without values in any row is left out.
fn is_shown(table: &ReportTable, place: usize) -> bool {
    let has_title = table.columns.get(place).is_some_and(|column| !column.title.is_empty());
    let is_empty = |cell: &Cell| *cell == Cell::Unknown || cell.shown().is_empty();
    has_title && table.rows.iter().any(|row| row.get(place).is_some_and(|cell| !is_empty(cell)))
}

/// Escapes what Markdown would read as the end of a cell, as an element or as formatting.
pub(super) fn markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped += "&lt;",
            '&' => escaped += "&amp;",
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '~' => escaped.extend(['\\', character]),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Unavailable;

    fn report() -> Report {
        let mut table = ReportTable::new("t", &[("name", "name"), ("total_ns", "total"), ("exact", "")]);
        let names = ["a|b<i>\n\x1b[31m".to_owned(), "n".repeat(1 << 20), "more".to_owned()];
        for name in names {
            table.push_up_to(2, vec![Cell::Text(name), Cell::Nanoseconds(1_500), Cell::Flag(true)]);
        }
        let run = RunHead {
            id: "7\x07".to_owned(),
            ranks: 2,
            nodes: 1,
            processes: 2,
            span: Some((5, 2_005)),
            has_comparable_clocks: true,
        };
        let unavailable = vec![Unavailable::new("t", "no\nreason")];
        Report {
            subject: "t",
            run,
            tables: vec![table],
            notes: vec!["a note".to_owned()],
            unavailable,
            screen: None,
        }
    }

    #[test]
    fn text_has_no_control_characters_and_no_long_lines() {
        let text = report_text(&report(), TableStyle::Plain);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "run 7\\u{7}: 2 ranks on 1 node, 2.000 us");
        assert!(lines[2].starts_with("name  ") && lines[2].ends_with("  total"), "{text}");
        assert!(lines[3].starts_with("a|b<i>\\n\\u{1b}[31m  ") && lines[3].ends_with("  1.500 us"), "{text}");
        assert!(lines[4].starts_with("nnn") && lines[4].contains("...nnn"), "{text}");
        assert_eq!(
            lines[5..],
            ["1 more row: --top 0 shows all", "", "note         a note", "unavailable  t: no\\nreason"]
        );
        assert!(text.chars().all(|character| character == '\n' || !character.is_control()));
        assert!(lines.iter().all(|line| line.len() < 100), "{text}");
        let bold = report_text(&report(), TableStyle::Coloured);
        assert_eq!(bold.replace("\x1b[1m", "").replace("\x1b[0m", ""), text);
        assert_eq!(bold.matches("\x1b[1m").count(), 1);
    }

    #[test]
    fn markdown_escapes_names() {
        let text = report_text(&report(), TableStyle::Markdown);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].starts_with("| name ") && lines[3].starts_with("|--"), "{text}");
        assert!(lines[4].starts_with("| a\\|b&lt;i>\\\\n\\\\u{1b}\\[31m "), "{text}");
        assert_eq!(lines.last(), Some(&"* unavailable: t: no\\\\nreason"));
    }
}
