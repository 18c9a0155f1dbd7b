//! A man page of a command: what its parser knows, and the text that `--help` ends with.

use clap::Command;
use clap::builder::Resettable;
use clap_mangen::Man;
use std::fmt::Write;
use std::io;

/// The page of a command that is called by these words: that of `rpd-merge inspect` is named rpd-merge-inspect.
pub(crate) fn page(words: &str, command: Command) -> io::Result<String> {
    let name = words.replace(' ', "-");
    let after_options = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    // There is no page of the word help.
    let command = command.disable_help_subcommand(true).after_help(Resettable::Reset);
    let command = command.bin_name(words).display_name(&name);
    let mut page = Vec::new();
    Man::new(command).title(name).source(concat!("rpd ", env!("CARGO_PKG_VERSION"))).render(&mut page)?;
    let page = String::from_utf8_lossy(&page).into_owned();
    Ok((page + &sections(&after_options)).chars().map(portable).collect())
}

/// Returns the sections of the text after the options. A line at the margin that ends in a colon is a heading. Indented
/// lines stay as they are, since users type most of them.
fn sections(text: &str) -> String {
    let mut out = String::new();
    let mut is_kept = false;
    for line in text.lines() {
        let indented = line.starts_with(' ') || (is_kept && line.is_empty());
        if indented != is_kept {
            out.push_str(if indented { ".nf\n" } else { ".fi\n" });
            is_kept = indented;
        }
        let _ = match line.strip_suffix(':') {
            Some(heading) if !indented => writeln!(out, ".SH \"{}\"", escaped(&heading.to_uppercase())),
            _ if line.is_empty() && !indented => writeln!(out, ".PP"),
            _ => writeln!(out, "{}", escaped(line)),
        };
    }
    if is_kept {
        out.push_str(".fi\n");
    }
    out
}

/// A line of text that is none of roff's commands.
fn escaped(line: &str) -> String {
    let escaped = line.replace('\\', "\\e").replace('-', "\\-");
    if escaped.starts_with(['.', '\'']) { format!("\\&{escaped}") } else { escaped }
}

/// A character as any troff takes it.
fn portable(character: char) -> String {
    match character.is_ascii() {
        true => character.to_string(),
        false => format!("\\[u{:04X}]", u32::from(character)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_sections_and_what_is_typed_stays_as_it_is() {
        let text = "EXAMPLES:\n  First:\n    a --b \\\n\n  .c\n\nExit codes: 0\n.d";
        let wanted =
            ".SH \"EXAMPLES\"\n.nf\n  First:\n    a \\-\\-b \\e\n\n  .c\n\n.fi\nExit codes: 0\n\\&.d\n";
        assert_eq!(sections(text), wanted);
        assert_eq!(sections("A:\n  b"), ".SH \"A\"\n.nf\n  b\n.fi\n");
        assert_eq!(sections(""), "");
        assert_eq!("a…".chars().map(portable).collect::<String>(), "a\\[u2026]");
    }
}
