//! Prints violations of the rules, and how public types are named.
//!
//! ```text
//! cargo run -p rpd-layers                 violations, unneeded exceptions, names
//! cargo run -p rpd-layers -- exceptions   the violations in the form of layers.toml
//! ```

use rpd_layers::{
    LayerRules, SourceTree, repository, share_of_one_word_names, unneeded_exceptions, violations,
};
use std::process::ExitCode;

fn main() -> ExitCode {
    match check(std::env::args().nth(1).as_deref() == Some("exceptions")) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("rpd-layers: error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check(prints_exceptions: bool) -> Result<bool, String> {
    let rules = LayerRules::read(&repository().join("ci/layers/layers.toml"))?;
    let tree = SourceTree::read(&repository())?;
    let (found, unneeded) = (violations(&tree, &rules), unneeded_exceptions(&tree, &rules));
    if prints_exceptions {
        for violation in &found {
            let (file, rule, found) = (&violation.file, violation.rule, &violation.found);
            println!("    {{ file = {file:?}, rule = {rule:?}, found = {found:?}, reason = \"\" }},");
        }
        return Ok(true);
    }
    found.iter().for_each(|violation| println!("{violation}"));
    unneeded.iter().for_each(|exception| println!("{}: not needed any more: {exception:?}", exception.file));
    let (one_word, all) = share_of_one_word_names(&tree);
    println!("{} violations", found.len());
    println!("public types with a name of one word: {one_word} of {all} ({} %)", 100 * one_word / all.max(1));
    Ok(found.is_empty() && unneeded.is_empty())
}
