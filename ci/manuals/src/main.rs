//! `rpd-manuals PREFIX`: writes the man pages and the completions of the programs below a prefix, as `ci/install` has it.

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;
use rpd_collect::command_line::Options;
use rpd_merge::cli::Cli;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
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
    let written =
        [Options::parser(), Cli::command()].into_iter().try_for_each(|command| write(&command, prefix));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: below {}: {error}", prefix.display());
            ExitCode::FAILURE
        }
    }
}

fn write(command: &Command, prefix: &Path) -> io::Result<()> {
    let name = command.get_name().to_owned();
    let manuals = prefix.join("share/man/man1");
    fs::create_dir_all(&manuals)?;
    let mut file = BufWriter::new(File::create(manuals.join(format!("{name}.1")))?);
    Man::new(command.clone()).render(&mut file)?;
    file.flush()?;
    for (shell, folder) in COMPLETIONS {
        let folder = prefix.join(folder);
        fs::create_dir_all(&folder)?;
        generate_to(shell, &mut command.clone(), &name, &folder)?;
        if shell == Shell::Bash {
            // bash-completion loads a file by the name of the command.
            fs::rename(folder.join(format!("{name}.bash")), folder.join(&name))?;
        }
    }
    Ok(())
}
