//! Which source sets an option, with the options of a program made up for it.
#![allow(clippy::unwrap_used)]

use clap::{Arg, ArgAction, ArgGroup, Command};
use rpd_configs::{LayeredSettings, PRESETS, Program, SettingOrigin};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

fn command() -> Command {
    let value = |name: &'static str| Arg::new(name).long(name);
    Command::new("program")
        .arg(value("max-size").value_parser(clap::value_parser!(u32)).help("Most bytes [default: 7]"))
        .arg(value("trace"))
        .arg(value("each").action(ArgAction::Append))
        .arg(value("names").action(ArgAction::Append).value_delimiter(','))
        .arg(value("verify").action(ArgAction::SetTrue).conflicts_with("dry"))
        .arg(value("dry").action(ArgAction::SetTrue))
        .arg(value("by-time"))
        .arg(value("by-size"))
        .arg(value("align").default_value("auto"))
        .arg(value("config"))
        .group(ArgGroup::new("splits").args(["by-time", "by-size"]).multiple(false))
        .arg(Arg::new("command").required(true).num_args(1..).trailing_var_arg(true))
}

/// What counts, with a file that is named and one of the site.
fn layered(typed: &str, own: &str, site: &str, variable: Option<&str>) -> Result<LayeredSettings, String> {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let (own, site) = (place("own.toml", own), place("site.toml", site));
    let program = Program {
        table: "collect",
        command: command(),
        variables: &[("max-size", "MAX_SIZE")],
        typed_only: &["config"],
    };
    let typed =
        command().get_matches_from(format!("program {typed} -- run -x --max-size=3").split_whitespace());
    let found = program.layered(&typed, Some(own.as_os_str()), Some(&site), |name| {
        variable.filter(|_| name == "MAX_SIZE").map(OsString::from)
    });
    found.map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
}

fn origin(found: &LayeredSettings, key: &str) -> (Option<Vec<String>>, String) {
    let setting = found.settings.iter().find(|setting| setting.key == key).unwrap();
    let origin = match &setting.origin {
        SettingOrigin::File(name, line) | SettingOrigin::Locked(name, line) => {
            let name = Path::new(name).file_name().unwrap().to_string_lossy().into_owned();
            let locked = if matches!(setting.origin, SettingOrigin::Locked(..)) { "locked " } else { "" };
            format!("{locked}{name}:{line}")
        }
        other => other.to_string(),
    };
    (setting.values.clone(), origin)
}

fn is(values: &[&str], origin: &str) -> (Option<Vec<String>>, String) {
    (Some(values.iter().map(|value| (*value).to_owned()).collect()), origin.to_owned())
}

/// The arguments in front of the command, which is as it was.
fn arguments(found: &LayeredSettings) -> Vec<String> {
    let all: Vec<String> = found.arguments().iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let at = all.iter().position(|word| word == "--").unwrap();
    assert_eq!(all[at + 1..], ["run", "-x", "--max-size=3"]);
    assert_eq!(all[0], "program");
    command().try_get_matches_from(found.arguments()).unwrap();
    all[1..at].to_vec()
}

#[test]
fn what_is_typed_counts_before_variables_files_the_site_and_defaults() {
    let (own, site) = ("[collect]\nmax-size = 2\n", "[collect]\n\nmax-size = 1\n");
    let max_size =
        |typed, own, site, variable| origin(&layered(typed, own, site, variable).unwrap(), "max-size");
    assert_eq!(max_size("--max-size 4", own, site, Some("3")), is(&["4"], "typed"));
    assert_eq!(max_size("", own, site, Some("3")), is(&["3"], "MAX_SIZE in the environment"));
    assert_eq!(max_size("", own, site, Some("")), is(&["2"], "own.toml:2"));
    assert_eq!(max_size("", own, site, Some("soon")), is(&["2"], "own.toml:2"));
    assert_eq!(max_size("", "", site, None), is(&["1"], "site.toml:3"));
    assert_eq!(max_size("", "", "[merge]\nmax-size = 1", None), is(&["7"], "default"));
    let found = layered("", own, site, Some("3")).unwrap();
    assert_eq!(origin(&found, "align"), is(&["auto"], "default"));
    // The program reads variables itself.
    assert_eq!(arguments(&found), Vec::<String>::new());
    assert_eq!(arguments(&layered("", own, site, None).unwrap()), ["--max-size=2"]);
}

#[test]
fn what_the_site_has_locked_counts_before_all_and_is_told() {
    let site = "[collect]\nmax-size = 1\nlocked = [\"max-size\", \"verify\"]\n";
    let found = layered("--max-size 4 --verify", "", site, None).unwrap();
    assert_eq!(origin(&found, "max-size"), is(&["1"], "locked site.toml:2"));
    assert_eq!(origin(&found, "verify"), (None, "locked site.toml:3".to_owned()));
    assert_eq!(arguments(&found), ["--max-size=1"]);
    let [size, verify] = &found.warnings[..] else { panic!("{:?}", found.warnings) };
    assert!(
        size.contains("--max-size is 1, not as typed says") && size.contains("site.toml, line 2"),
        "{size}"
    );
    assert!(verify.contains("--verify is not given"), "{verify}");
    // No warning for a user who wants the site's value.
    assert_eq!(layered("--max-size 1", "", site, None).unwrap().warnings, [""; 0]);
    for (own, variable) in [("[collect]\nmax-size = 2\n", None), ("", Some("3"))] {
        assert_eq!(layered("", own, site, variable).unwrap().warnings.len(), 1);
    }
}

#[test]
fn lists_switches_and_what_is_typed_go_to_the_program_as_they_are() {
    let own = "[collect]\ntrace = [\"mpi\", \"system\"]\neach = [\"a b\", \"-c\"]\nnames = [\"x\", \"y\"]\nverify = true\n";
    let found = layered("", own, "", None).unwrap();
    assert_eq!(
        arguments(&found),
        ["--trace=mpi,system", "--each=a b", "--each=-c", "--names=x,y", "--verify"]
    );
    let found = layered("--each=1 --each=2 --names p,q --names=r --trace=", own, "", None).unwrap();
    assert_eq!(
        arguments(&found),
        ["--trace=", "--each=1", "--each=2", "--names=p,q", "--names=r", "--verify"]
    );
    let off = layered("", "[collect]\nverify = false", "[collect]\nverify = true", None).unwrap();
    assert_eq!(arguments(&off), [""; 0]);
}

#[test]
fn what_is_typed_is_not_in_conflict_with_files() {
    let own = "[collect]\nby-time = 3\nverify = true\n";
    assert_eq!(arguments(&layered("--by-size=9 --dry", own, "", None).unwrap()), ["--dry", "--by-size=9"]);
    assert_eq!(arguments(&layered("--by-size=9 --dry", "", own, None).unwrap()), ["--dry", "--by-size=9"]);
}

#[test]
fn of_what_nobody_typed_the_least_is_left_out_that_lets_the_rest_go_together() {
    // A made-up rule: `trace` goes neither with `each` nor with `names`.
    let reconciled = |typed: &str, own: &str, site: &str| {
        let mut found = layered(typed, own, site, None).unwrap();
        let goes = found.reconcile(&["each", "names", "trace"], &["names"], |arguments| {
            let has = |name: &str| arguments.iter().any(|word| word.to_string_lossy().starts_with(name));
            match has("--trace") && (has("--each") || has("--names")) {
                true => Err("trace stands alone".to_owned()),
                false => Ok(()),
            }
        });
        let refusal = |line: &String| {
            assert!(line.contains(" is left out: trace stands alone"), "{line}");
            line.trim_start_matches("warning: --").split(' ').next().unwrap().to_owned()
        };
        let refusal: Vec<String> = found.warnings.iter().map(refusal).collect();
        (goes.is_ok(), arguments(&found), refusal)
    };
    let both = "[collect]\neach = [\"a\"]\nnames = [\"x\"]\n";
    let trace = "[collect]\ntrace = \"mpi\"\n";
    let answer = |goes: bool, arguments: &[&str], refusal: &[&str]| {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        (goes, owned(arguments), owned(refusal))
    };
    assert_eq!(reconciled("", both, ""), answer(true, &["--each=a", "--names=x"], &[]));
    // One that counts more stays, whatever goes for it; else as few go as can be. A detail goes without a word.
    assert_eq!(reconciled("", trace, both), answer(true, &["--trace=mpi"], &["each"]));
    assert_eq!(reconciled("", both, trace), answer(true, &["--each=a", "--names=x"], &["trace"]));
    assert_eq!(
        reconciled("", &format!("{both}trace = \"mpi\"\n"), ""),
        answer(true, &["--each=a", "--names=x"], &["trace"])
    );
    assert_eq!(reconciled("--trace mpi", both, ""), answer(true, &["--trace=mpi"], &["each"]));
    // What was typed and what is locked stays: the caller refuses it. Locks alone stop nobody.
    assert_eq!(reconciled("--trace mpi --each a", "", ""), answer(false, &["--trace=mpi", "--each=a"], &[]));
    let lock = "[collect]\neach = [\"a\"]\nlocked = [\"each\"]\n";
    assert_eq!(reconciled("--trace mpi", "", lock), answer(false, &["--trace=mpi", "--each=a"], &[]));
    let locks = "[collect]\neach = [\"a\"]\ntrace = \"mpi\"\nlocked = [\"each\", \"trace\"]\n";
    assert_eq!(reconciled("", "", locks), answer(true, &["--trace=mpi"], &["each"]));
}

#[test]
fn a_mistake_in_a_file_is_named_with_its_line() {
    for (own, refusal) in [
        (
            "[collect]\n\nmax-sise = 3",
            "own.toml:3: there is no option \"max-sise\", did you mean \"max-size\"",
        ),
        (
            "[collect]\ncolour = 3",
            "own.toml:2: there is no option \"colour\"; use one that program --help lists",
        ),
        ("[colect]\n", "own.toml:1: there is no table \"colect\", did you mean \"collect\""),
        ("max-size = 3", "own.toml:1: there is no table \"max-size\""),
        ("collect = 3", "own.toml:1: collect is the name of a table; write [collect]"),
        ("[collect]\nmax-size = \"much\"", "own.toml:2: invalid value 'much' for '--max-size"),
        ("[collect]\nmax-size = true", "own.toml:2: max-size takes a value"),
        ("[collect]\nverify = 1", "own.toml:2: verify is true or false"),
        ("[collect]\nmax-size = 2024-01-01", "own.toml:2: max-size: write a text"),
        ("[collect]\nmax-size = { a = 1 }", "own.toml:2: max-size: write a text"),
        ("[collect]\nconfig = \"x\"", "own.toml:2: config is for the command line alone"),
        ("[collect]\nlocked = [\"colour\"]", "own.toml:2: there is no option \"colour\""),
        ("[collect]\nmax-size = 1\nmax-size = 2", "own.toml:3: "),
        ("[collect\n", "own.toml:1: "),
    ] {
        let error = layered("", own, "", None).unwrap_err();
        assert!(error.starts_with(refusal), "{own}: {error}");
        // In the site's file it costs the site's settings.
        let found = layered("", "", own, None).unwrap();
        assert!(found.warnings[0].contains("the site's settings are left aside"), "{:?}", found.warnings);
    }
}

#[test]
fn files_that_cannot_be_read_and_unknown_presets_are_refused() {
    let program = Program { table: "collect", command: command(), variables: &[], typed_only: &[] };
    let typed = command().get_matches_from(["program", "run"]);
    let refusal = |name: &OsStr| program.layered(&typed, Some(name), None, |_| None).unwrap_err().to_string();
    assert!(refusal("./none.toml".as_ref()).starts_with("cannot read the file ./none.toml (No such file"));
    assert!(refusal("/".as_ref()).contains("it is not a regular file"));
    assert!(refusal("hpc-mpy".as_ref()).contains("did you mean \"hpc-mpi\""));
    let folder = tempfile::tempdir().unwrap();
    let large = folder.path().join("large.toml");
    fs::write(&large, "#".repeat((1 << 20) + 1)).unwrap();
    assert!(refusal(large.as_os_str()).contains("more than 1 MiB"));
    fs::write(&large, "[collect]\nmax-size = ".to_owned() + &"[".repeat(100_000)).unwrap();
    assert!(refusal(large.as_os_str()).contains("large.toml:2: "));
}

#[test]
fn what_is_shown_is_a_file_that_says_the_same() {
    let own = "[collect]\neach = [\"a \\\"b\\\"\", \"c\\\\d\\n\"]\nverify = true\nmax-size = 2\n";
    let found = layered("--by-size=9", own, "", None).unwrap();
    let shown = found.show("collect");
    assert!(shown.contains("# align = \"auto\"") && shown.contains("own.toml, line 4"), "{shown}");
    let again = layered("", &shown, "", None).unwrap();
    assert_eq!(again.arguments(), found.arguments(), "{shown}");
}

#[test]
fn presets_are_text_of_toml() {
    for (name, text) in PRESETS {
        let tables: toml::Table = text.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(tables.contains_key("collect"), "{name}");
    }
}
