//! Files for Environment Modules and Lmod name the prefix, whatever characters it has.

use super::install;
use rpd_tests::harness::{Job, skip};
use std::fs;
use std::path::Path;
use std::process::Command;

/// What Environment Modules gives a file of its own, in so far as ours uses it.
const TCL: &str = r#"
proc module-whatis {text} { puts "whatis $text" }
proc prepend-path {name path} { puts "$name $path" }
source [lindex $argv 0]
ModulesHelp
"#;

/// The same of Lmod.
const LUA: &str = r#"
function help(text) end
function whatis(text) end
function pathJoin(a, b) return a .. "/" .. b end
function prepend_path(name, path) print(name .. " " .. path) end
dofile(arg[1])
"#;

fn interpreter(names: &[&'static str]) -> Option<&'static str> {
    names.iter().copied().find(|name| Command::new(name).arg("/dev/null").output().is_ok())
}

/// The paths that a module file adds, by its interpreter.
fn assert_adds(job: Job, prefix: &Path) {
    let outcome = job.run().success();
    let said = outcome.stdout.lines().filter(|line| !line.starts_with("whatis")).collect::<Vec<_>>();
    let [bin, man] = ["bin", "share/man"].map(|below| prefix.join(below).display().to_string());
    // man finds its pages by that; MANPATH would hide those of the system.
    assert_eq!(said, [format!("PATH {bin}")], "{outcome}");
    assert!(Path::new(&bin).is_dir() && Path::new(&man).is_dir());
}

#[test]
fn module_files_name_the_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let (tcl, lua) = (interpreter(&["tclsh"]), interpreter(&["lua", "lua5.4", "lua5.3", "luajit"]));
    for name in ["a prefix", "a&b|c $d 'e' [f]"] {
        let prefix = folder.path().join(name);
        let _ = install().arg(&prefix).run().success();
        let files = prefix.join("share/rpd/modulefiles");
        for file in ["rpd.tcl", "rpd.lua"] {
            let text = fs::read_to_string(files.join(file)).unwrap();
            assert!(text.contains(&prefix.display().to_string()) && !text.contains("@PREFIX@"), "{text}");
        }
        let run = |interpreter: &str, name: &str, text: &str, file: &str| {
            let script = folder.path().join(name);
            fs::write(&script, text).unwrap();
            assert_adds(Job::new(interpreter).arg(script).arg(files.join(file)), &prefix);
        };
        match tcl {
            Some(tcl) => run(tcl, "stand-in.tcl", TCL, "rpd.tcl"),
            None => skip("the module file for Tcl", "there is no tclsh"),
        }
        match lua {
            Some(lua) => run(lua, "stand-in.lua", LUA, "rpd.lua"),
            None => skip("the module file for Lmod", "there is no lua"),
        }
    }
    // No text of Lua or Tcl.
    let prefix = folder.path().join("a \"prefix\"");
    let outcome = install().arg(&prefix).run().success();
    assert!(outcome.stderr.contains("no module files"), "{outcome}");
    assert!(prefix.join("bin/rpd-merge").is_file() && !prefix.join("share/rpd/modulefiles").exists());
}
