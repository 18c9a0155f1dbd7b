//! `rpd-collect`: see the library.

use clap::Parser;
use rpd_collect::command_line::{Options, command_alone};
use rpd_collect::session::Session;
use rpd_collect::{child, warn};

fn main() {
    if disabled()
        && let Some(command) = command_alone(&std::env::args_os().collect::<Vec<_>>())
    {
        std::process::exit(child::replace(&command));
    }
    let options = Options::parse().or_variables(|name| std::env::var_os(name));
    let session = match Session::prepare(&options) {
        Ok(session) => session,
        Err(error) => {
            warn(format_args!("warning: {error}; the command runs untraced"));
            std::process::exit(child::replace(&options.command));
        }
    };
    session.run(&options.command).leave()
}

/// `RPD_DISABLE` set to anything but nothing and 0.
fn disabled() -> bool {
    std::env::var_os("RPD_DISABLE").is_some_and(|value| !value.is_empty() && value != "0")
}
