//! Man pages and completions: they know every option that the programs know.

use super::Installed;
use rpd_tests::harness::{Job, skip};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Each program with the words in front of its options.
const PROGRAMS: [&[&str]; 20] = [
    &["rpd-collect"],
    &["rpd-collect", "doctor"],
    &["rpd-merge"],
    &["rpd-merge", "inspect"],
    &["rpd-report"],
    &["rpd-report", "summary"],
    &["rpd-report", "ranks"],
    &["rpd-report", "collectives"],
    &["rpd-report", "gpu"],
    &["rpd-report", "blame"],
    &["rpd-report", "steps"],
    &["rpd-report", "messages"],
    &["rpd-report", "anomalies"],
    &["rpd-report", "hang"],
    &["rpd-report", "whatif"],
    &["rpd-report", "path"],
    &["rpd-report", "efficiency"],
    &["rpd-report", "clocks"],
    &["rpd-report", "integrity"],
    &["rpd-report", "html"],
];

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// The long options that `--help` tells.
fn options(installed: &Installed, words: &[&str]) -> BTreeSet<String> {
    let help = Job::new(installed.bin(words[0])).args(&words[1..]).arg("--help").run().success();
    let of_line = |line: &str| -> Option<String> {
        let line = line.trim_start();
        let long = if line.starts_with("--") {
            line
        } else {
            line.strip_prefix('-')?.get(1..)?.strip_prefix(", ")?
        };
        let end = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
        long.strip_prefix("--").map(|name| name.split(end).next().unwrap_or_default().to_owned())
    };
    let part = help.stdout.split_once("Options:").unwrap().1;
    let part = part.split("EXAMPLES:").next().unwrap().split("Examples:").next().unwrap();
    part.lines().filter_map(of_line).filter(|name| !name.is_empty()).collect()
}

/// The page of a program as a terminal shows it, in one line each paragraph.
fn page(path: &PathBuf) -> String {
    let source = fs::read_to_string(path).unwrap();
    assert!(source.is_ascii(), "{}", path.display());
    source.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "").replace("\\fI", "")
}

#[test]
fn every_option_is_in_the_man_page_of_its_program() {
    let installed = Installed::new();
    let folder = installed.prefix().join("share/man/man1");
    for words in PROGRAMS {
        let path = folder.join(format!("{}.1", words.join("-")));
        let (page, options) = (page(&path), options(&installed, words));
        // Each stands at the head of a paragraph, below the heading that its group has.
        let heads: Vec<&str> = page.split("\n.TP\n").filter_map(|part| part.lines().next()).collect();
        assert!(options.contains("help"), "{words:?}: {options:?}");
        for option in &options {
            let named = |line: &str| {
                let words = line.split([' ', ',', '=', '[']);
                words.into_iter().any(|word| word.strip_prefix("--") == Some(option))
            };
            assert!(heads.iter().any(|head| named(head)), "{words:?}: --{option} is not in {heads:?}");
        }
        // It is called as it is typed, and names no page that is not there.
        let synopsis = page.split(".SH SYNOPSIS\n").nth(1).unwrap();
        assert!(synopsis.starts_with(&words.join(" ")), "{page}");
        assert!(!page.contains("help(1)"), "{page}");
        // What is to be typed stays in its line.
        assert!(words.len() > 1 || page.contains("\n.nf\n") && page.contains(".SH \"EXAMPLES\""), "{page}");
    }
    assert!(options(&installed, PROGRAMS[0]).len() > 20 && options(&installed, PROGRAMS[2]).len() > 30);
    let pages = fs::read_dir(&folder).unwrap().count();
    assert_eq!(pages, PROGRAMS.len(), "a page of something that has no test");
    if !is_there("groff") {
        return skip("whether groff takes the man pages", "there is no groff");
    }
    for words in PROGRAMS {
        let path = folder.join(format!("{}.1", words.join("-")));
        let checked = Job::new("groff").args(["-man", "-ww", "-Tutf8", "-z"]).arg(&path).run().success();
        assert_eq!(checked.stderr, "", "{}", path.display());
    }
}

#[test]
fn shells_complete_the_options() {
    let installed = Installed::new();
    let file = |folder: &str, name: &str| installed.prefix().join("share").join(folder).join(name);
    for program in ["rpd-collect", "rpd-merge", "rpd-report"] {
        let zsh = fs::read_to_string(file("zsh/site-functions", &format!("_{program}"))).unwrap();
        let fish = file("fish/vendor_completions.d", &format!("{program}.fish"));
        let fish = fs::read_to_string(fish).unwrap();
        assert!(zsh.starts_with(&format!("#compdef {program}")), "{zsh}");
        for option in options(&installed, &[program]) {
            assert!(zsh.contains(&format!("--{option}")), "zsh, {program}: --{option}");
            assert!(fish.contains(&format!("-l {option}")), "fish, {program}: --{option}");
        }
    }
    let completed = |program: &str, word: &str| -> BTreeSet<String> {
        let script = r#"
            source "$1" || exit 1
            function=$(complete -p "$2" | sed 's/.* -F \([^ ]*\) .*/\1/')
            COMP_WORDS=("$2" "$3") COMP_CWORD=1
            "$function" "$2" "$3" "$2"
            printf '%s\n' "${COMPREPLY[@]}""#;
        let load = file("bash-completion/completions", program);
        let job = Job::new("bash").args(["--norc", "-uc", script, "bash"]).arg(load).args([program, word]);
        let outcome = job.run().success();
        assert_eq!(outcome.stderr, "", "{outcome}");
        outcome.stdout.lines().map(str::to_owned).collect()
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
    let split = ["--split", "--split-by-time", "--split-by-events", "--split-by-size"];
    assert_eq!(completed("rpd-merge", "--spl"), words(&split));
    assert_eq!(completed("rpd-collect", "--max"), words(&["--max-size"]));
    let all: BTreeSet<String> =
        options(&installed, &["rpd-merge"]).iter().map(|option| format!("--{option}")).collect();
    assert_eq!(completed("rpd-merge", "--"), all);
}
