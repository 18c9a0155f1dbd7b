//! The first screen: the verdict, what is unavailable, and the next commands, in a bounded number of short lines.

use super::text::{TableStyle, markdown};
use crate::report::{NextCommand, Unavailable, VerdictScreen};
use rpd_console::wording::{grouped, one_line};
use rpd_verdict::cut_middle;

/// Maximum number of lines, without the two of the head.
const MAX_LINES: usize = 23;
/// Maximum number of characters in a line.
const MAX_LINE: usize = 120;
/// Width of the labels.
const LABEL_WIDTH: usize = 12;
/// Maximum number of lines of the verdict, of a cause, and of another entry.
const MAX_VERDICT_LINES: usize = 4;
const MAX_CAUSE_LINES: usize = 3;
const MAX_ENTRY_LINES: usize = 2;
/// Maximum number of lines of all causes; beyond it, each has one.
const MAX_LINES_OF_CAUSES: usize = 7;
/// Maximum number of reasons why something is unavailable.
const MAX_UNAVAILABLE: usize = 5;

/// Returns the lines of the screen. As many of the reasons why something is unavailable are shown as there is room for.
pub(super) fn screen_text(screen: &VerdictScreen, unavailable: &[Unavailable], style: TableStyle) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut room_of_causes = MAX_LINES_OF_CAUSES;
    for (place, (label, text)) in screen.lines.iter().enumerate() {
        let is_cause = *label == "cause";
        let most = match is_cause {
            _ if place == 0 => MAX_VERDICT_LINES,
            true => room_of_causes.clamp(1, MAX_CAUSE_LINES),
            false => MAX_ENTRY_LINES,
        };
        let entry = entry_lines(label, text, most, style);
        room_of_causes -= if is_cause { entry.len().min(room_of_causes) } else { 0 };
        lines.extend(entry);
    }
    let next: Vec<String> =
        screen.next.iter().flat_map(|command| entry_lines("next", &next_text(command), 1, style)).collect();
    let mut shown = 0;
    for missing in unavailable.iter().take(MAX_UNAVAILABLE) {
        let is_last = shown + 1 == unavailable.len();
        let room = MAX_LINES.saturating_sub(lines.len() + usize::from(!is_last) + next.len());
        // How it can be recorded is left out first.
        let texts = [missing.text(), missing.clone().recorded_by(None).text()];
        let entries = texts.map(|text| entry_lines("unavailable", &text, MAX_ENTRY_LINES, style));
        let Some(entry) = entries.into_iter().find(|entry| entry.len() <= room) else { break };
        lines.extend(entry);
        shown += 1;
    }
    let more = unavailable.len() - shown;
    if more > 0 {
        let text = format!("{} more: --format json", grouped(more as u64));
        lines.extend(entry_lines("unavailable", &text, 1, style));
    }
    lines.extend(next);
    lines.join("\n") + "\n"
}

/// Returns what a command reports, and the command. `RUN` is in place of inputs that do not fit into a line, and
/// `SELECTION` in place of such options.
pub(crate) fn next_text(next: &NextCommand) -> String {
    let with =
        |selection: &str, inputs: &str| format!("{}: {}{selection}{inputs}", next.purpose, next.command);
    let selections = [next.selection.as_deref(), next.selection.as_deref(), Some(" SELECTION")];
    let inputs = [next.inputs.as_deref(), Some(" RUN"), Some(" RUN")];
    let texts = selections.into_iter().zip(inputs);
    let mut texts = texts.filter_map(|(selection, inputs)| Some(with(selection?, inputs?)));
    let fits = |text: &String| text.chars().count() < MAX_LINE - LABEL_WIDTH;
    texts.find(fits).unwrap_or_else(|| with(" SELECTION", " RUN"))
}

/// Returns an entry as lines that begin with its label, or below it. What exceeds `max_lines` is left out.
fn entry_lines(label: &str, text: &str, max_lines: usize, style: TableStyle) -> Vec<String> {
    let text = one_line(text);
    if style == TableStyle::Markdown {
        return vec![format!("* {label}: {}", markdown(&text))];
    }
    // The verdict may have a longer label than the others.
    let first_width = MAX_LINE - 1 - label.len().max(LABEL_WIDTH);
    let is_verdict = label.chars().all(|character| !character.is_lowercase());
    let mark = match is_verdict && style == TableStyle::Coloured {
        true => format!("\x1b[1m{label}\x1b[0m{:1$}", "", LABEL_WIDTH.saturating_sub(label.len())),
        false => format!("{label:<LABEL_WIDTH$}"),
    };
    let lines = broken(&text, first_width, MAX_LINE - 1 - LABEL_WIDTH, max_lines);
    let labelled = lines.into_iter().enumerate().map(|(place, line)| match place {
        0 => format!("{mark} {line}"),
        _ => format!("{:LABEL_WIDTH$} {line}", ""),
    });
    labelled.collect()
}

/// Breaks a text into lines, between words where that is possible. Longer words are cut in the middle.
fn broken(text: &str, first_width: usize, width: usize, max_lines: usize) -> Vec<String> {
    const MARK: &str = "...";
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let word = cut_middle(word, first_width.min(width));
        let length = word.chars().count();
        let room = if lines.len() == 1 { first_width } else { width };
        let is_first = lines.last().is_none_or(String::is_empty);
        if !is_first && used + 1 + length > room {
            if lines.len() == max_lines {
                if let Some(line) = lines.last_mut() {
                    let kept: String = line.chars().take(room - MARK.len() - 1).collect();
                    *line = format!("{} {MARK}", kept.trim_end());
                }
                return lines;
            }
            lines.push(word);
            used = length;
        } else if let Some(line) = lines.last_mut() {
            if !is_first {
                line.push(' ');
                used += 1;
            }
            line.push_str(&word);
            used += length;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;

    fn screen(text: &str, inputs: Option<&str>) -> VerdictScreen {
        let labels =
            ["NO SINGLE CAUSE", "where", "reaches", "cause", "start-up", "time", "efficiency", "steps"];
        let command = |purpose| NextCommand {
            purpose,
            command: "rpd-report path".to_owned(),
            selection: Some(String::new()),
            inputs: inputs.map(str::to_owned),
        };
        VerdictScreen {
            lines: labels.map(|label| (label, text.to_owned())).to_vec(),
            next: ["one", "two", "three"].map(command).to_vec(),
            tables: Vec::new(),
            json: Map::new(),
        }
    }

    #[test]
    fn a_selection_stays_or_is_replaced_as_a_whole() {
        let next = |selection: Option<&str>, inputs: Option<&str>| {
            let [selection, inputs] = [selection, inputs].map(|words| words.map(str::to_owned));
            next_text(&NextCommand {
                purpose: "all",
                command: "rpd-report blame".to_owned(),
                selection,
                inputs,
            })
        };
        let long = format!(" {}", "x".repeat(99));
        assert_eq!(next(Some(" --ranks 3"), Some(" run")), "all: rpd-report blame --ranks 3 run");
        assert_eq!(next(Some(" --ranks 3"), Some(&long)), "all: rpd-report blame --ranks 3 RUN");
        assert_eq!(next(Some(" --ranks 3"), None), "all: rpd-report blame --ranks 3 RUN");
        for selection in [Some(long.as_str()), None] {
            assert_eq!(next(selection, Some(" run")), "all: rpd-report blame SELECTION RUN");
        }
    }

    #[test]
    fn how_to_record_is_shown_where_room_is() {
        let missing =
            vec![Unavailable::new("kernels", "not recorded").recorded_by(Some("rpd-collect --x")); 2];
        let lines = |text: &str| screen_text(&screen(text, None), &missing, TableStyle::Plain);
        let whole = "unavailable  kernels: not recorded; to record: rpd-collect --x\n";
        assert_eq!(lines("short").matches(whole).count(), 2);
        let full = lines(&"word ".repeat(1 << 12));
        assert!(full.lines().count() <= MAX_LINES, "{full}");
    }

    #[test]
    fn no_text_makes_a_long_line_or_a_long_screen() {
        let texts = ["word ".repeat(1 << 12), "x".repeat(1 << 20), "\x1b[1m\n".repeat(999), String::new()];
        for text in texts {
            let missing = vec![Unavailable::new("topic", text.clone()); 40];
            let shown = screen_text(&screen(&text, Some(&text)), &missing, TableStyle::Plain);
            assert!(shown.lines().count() <= MAX_LINES, "{shown}");
            assert!(shown.lines().all(|line| line.chars().count() <= MAX_LINE), "{shown}");
            assert!(shown.chars().all(|character| character == '\n' || !character.is_control()), "{shown}");
            assert!(shown.contains(" more: --format json\nnext         one: rpd-report path"), "{shown}");
        }
    }

    #[test]
    fn commands_are_on_lines_of_their_own() {
        let shown = screen_text(&screen("text", Some(" 'a  b'")), &[], TableStyle::Plain);
        let next: Vec<&str> = shown.lines().filter(|line| line.starts_with("next")).collect();
        assert_eq!(next[0], "next         one: rpd-report path 'a  b'");
        assert_eq!(next.len(), 3);
        let shown = screen_text(&screen("text", None), &[], TableStyle::Plain);
        assert!(shown.ends_with("next         three: rpd-report path RUN\n"), "{shown}");
        let long = format!(" {}", "x".repeat(200));
        let shown = screen_text(&screen("text", Some(&long)), &[], TableStyle::Plain);
        assert!(shown.ends_with("next         three: rpd-report path RUN\n"), "{shown}");
    }

    #[test]
    fn only_the_verdict_is_bold() {
        let plain = screen_text(&screen("a text", None), &[], TableStyle::Plain);
        let bold = screen_text(&screen("a text", None), &[], TableStyle::Coloured);
        assert_eq!(bold.matches("\x1b[1m").count(), 1);
        assert_eq!(bold.replace("\x1b[1m", "").replace("\x1b[0m", ""), plain);
    }
}
