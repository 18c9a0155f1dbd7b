//! `rpd-manuals PREFIX`: writes the man pages and the completions of the programs below a prefix, as `ci/install` has it.

mod page;

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate_to};
use page::page;
use rpd_collect::{CollectOptions, doctor_parser};
use rpd_merge::CommandLine;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Where the shells look, below a prefix.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions"),
    (Shell::Zsh, "share/zsh/site-functions"),
    (Shell::Fish, "share/fish/vendor_completions.d"),
];

fn main() -> ExitCode {
    let Some(prefix) = std::env::args_os().nth(1) else {
        eprintln!("usage: rpd-manuals PREFIX");
        return ExitCode::from(2);
    };
    let prefix = Path::new(&prefix);
    match write(prefix) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: below {}: {error}", prefix.display());
            ExitCode::FAILURE
        }
    }
}

fn write(prefix: &Path) -> io::Result<()> {
    let programs = [CollectOptions::parser(), CommandLine::command(), rpd_report::CommandLine::command()];
    let manuals = prefix.join("share/man/man1");
    fs::create_dir_all(&manuals)?;
    // The doctor has a parser of its own.
    for command in programs.iter().cloned().chain([doctor_parser()]) {
        write_pages(command.get_name(), &command, &manuals)?;
    }
    programs.iter().try_for_each(|program| write_completions(program, prefix))
}

/// The page of a command that is called by these words, and those of its subcommands.
fn write_pages(words: &str, command: &Command, folder: &Path) -> io::Result<()> {
    let file = format!("{}.1", words.replace(' ', "-"));
    fs::write(folder.join(file), page(words, command.clone())?)?;
    let globals = || command.get_arguments().filter(|argument| argument.is_global_set());
    let below = |below: &Command| {
        let below = globals().fold(below.clone(), |below, global| below.arg(global.clone()));
        write_pages(&format!("{words} {}", below.get_name()), &below, folder)
    };
    command.get_subcommands().try_for_each(below)
}

fn write_completions(program: &Command, prefix: &Path) -> io::Result<()> {
    let name = program.get_name();
    for (shell, folder) in COMPLETIONS {
        let folder = prefix.join(folder);
        fs::create_dir_all(&folder)?;
        generate_to(shell, &mut program.clone(), name, &folder)?;
        if shell == Shell::Bash {
            // bash-completion loads a file by the name of the command.
            fs::rename(folder.join(format!("{name}.bash")), folder.join(name))?;
        }
    }
    Ok(())
}
