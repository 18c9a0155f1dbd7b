//! Compares the workspace with the rules.

use crate::rules::{LayerException, LayerRules};
use crate::source_tree::{ModuleFile, SourceCrate, SourceTree};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A violation of a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LayerViolation {
    /// The file, relative to the root of the repository, or the name of a type.
    pub file: String,
    /// Line number, from 1; 0 for a whole file.
    pub line: usize,
    /// The rule.
    pub rule: &'static str,
    /// The forbidden room, crate, name or number.
    pub found: String,
    /// The broken rule in a sentence.
    pub sentence: String,
}

impl fmt::Display for LayerViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LayerViolation { file, line, rule, found, sentence } = self;
        let line = if *line > 0 { format!(":{line}") } else { String::new() };
        write!(f, "{file}{line}: {rule}: {found}: {sentence}")
    }
}

impl LayerViolation {
    fn is_permitted_by(&self, exception: &LayerException) -> bool {
        let is_within = match (self.found.parse::<usize>(), exception.found.parse::<usize>()) {
            (Ok(found), Ok(permitted)) => found <= permitted,
            _ => self.found == exception.found,
        };
        (self.file.as_str(), self.rule) == (exception.file.as_str(), exception.rule.as_str()) && is_within
    }
}

/// Returns all violations that no exception permits.
pub fn violations(tree: &SourceTree, rules: &LayerRules) -> Vec<LayerViolation> {
    let all = all_violations(tree, rules).into_iter();
    all.filter(|found| !rules.exceptions.iter().any(|exception| found.is_permitted_by(exception))).collect()
}

/// Returns the exceptions that no violation needs, so that the list can only become shorter.
pub fn unneeded_exceptions(tree: &SourceTree, rules: &LayerRules) -> Vec<LayerException> {
    let all = all_violations(tree, rules);
    let is_unneeded = |exception: &&LayerException| !all.iter().any(|found| found.is_permitted_by(exception));
    rules.exceptions.iter().filter(is_unneeded).cloned().collect()
}

fn all_violations(tree: &SourceTree, rules: &LayerRules) -> BTreeSet<LayerViolation> {
    let mut found = BTreeSet::new();
    for owner in &tree.crates {
        found.extend(crates_above(owner, rules));
        found.extend(rooms_above(tree, owner, rules));
        found.extend(many_imports(tree, owner, rules));
        found.extend(bare_constants(owner, rules));
        found.extend(large_root(owner, rules));
    }
    found.extend(repeated_types(tree, rules));
    found
}

/// Finds dependencies on crates that are not lower in the order.
fn crates_above(owner: &SourceCrate, rules: &LayerRules) -> Vec<LayerViolation> {
    let place = |name: &str| rules.crates.iter().position(|listed| listed == name);
    let violation = |found: &str, sentence: String| LayerViolation {
        file: owner.manifest.clone(),
        line: 0,
        rule: "crate-order",
        found: found.to_owned(),
        sentence,
    };
    let Some(own) = place(&owner.name) else {
        return vec![violation(&owner.name, "the order of crates does not list this crate".to_owned())];
    };
    let above = owner.dependencies.iter().filter(|needed| place(needed).is_none_or(|place| place >= own));
    above
        .map(|needed| violation(needed, format!("{} may depend only on crates before it", owner.name)))
        .collect()
}

/// Finds imports of rooms that are not lower in the order, one per file and room.
fn rooms_above(tree: &SourceTree, owner: &SourceCrate, rules: &LayerRules) -> Vec<LayerViolation> {
    let Some(order) = rules.rooms.get(&owner.name) else { return Vec::new() };
    let mut first: BTreeMap<(String, String), LayerViolation> = BTreeMap::new();
    for (module, file) in &owner.modules {
        let own = room_of(module, order);
        let place = |room: &str| order.iter().position(|listed| listed == room);
        for path in &file.source.paths {
            let Some(target) = tree.resolve(owner, module, &path.segments) else { continue };
            if target.owner != owner.name || target.module == module.as_slice() {
                continue;
            }
            let theirs = room_of(target.module, order);
            let is_below = match (place(&own), place(&theirs)) {
                // The root and the programs are above all rooms, and no room imports them.
                (None, theirs) => is_root(&own) && (theirs.is_some() || is_root(&theirs_name(target.module))),
                (Some(_), None) => false,
                (Some(own), Some(theirs)) => theirs <= own,
            };
            if !is_below {
                let sentence =
                    format!("room {own} may import only rooms before it; {}", path.segments.join("::"));
                let violation = LayerViolation {
                    file: file.path.clone(),
                    line: path.line,
                    rule: "room-order",
                    found: theirs.clone(),
                    sentence,
                };
                first.entry((file.path.clone(), theirs)).or_insert(violation);
            }
        }
    }
    first.into_values().collect()
}

fn theirs_name(module: &[String]) -> String {
    module.first().cloned().unwrap_or_else(|| ROOT.to_owned())
}

/// The name of `lib.rs` as a room.
const ROOT: &str = "lib";

fn is_root(room: &str) -> bool {
    matches!(room, ROOT | "main" | "bin")
}

/// Returns the deepest listed room that contains a module, or its first segment.
fn room_of(module: &[String], order: &[String]) -> String {
    let listed = (1..=module.len()).rev().map(|length| module[..length].join("::"));
    let mut listed = listed.filter(|room| order.contains(room));
    listed.next().unwrap_or_else(|| theirs_name(module))
}

/// Finds files that import too many names of the project.
fn many_imports(tree: &SourceTree, owner: &SourceCrate, rules: &LayerRules) -> Vec<LayerViolation> {
    let limit = rules.limits.imported_names_per_file;
    let count = |module: &[String], file: &ModuleFile| {
        let imports = file.source.paths.iter().filter(|path| path.is_import);
        let of_project = imports.filter(|path| tree.resolve(owner, module, &path.segments).is_some());
        of_project.map(|path| &path.segments).collect::<BTreeSet<_>>().len()
    };
    let counted = owner.modules.iter().map(|(module, file)| (file, count(module, file)));
    counted
        .filter(|(_, names)| *names > limit)
        .map(|(file, names)| LayerViolation {
            file: file.path.clone(),
            line: 0,
            rule: "imported-names",
            found: names.to_string(),
            sentence: format!("a file imports at most {limit} names of the project"),
        })
        .collect()
}

fn bare_constants(owner: &SourceCrate, rules: &LayerRules) -> Vec<LayerViolation> {
    let bare = &rules.limits.forbidden_constant_names;
    let constants =
        owner.modules.values().flat_map(|file| file.source.constants.iter().map(move |c| (file, c)));
    constants
        .filter(|(_, constant)| bare.contains(&constant.name))
        .map(|(file, constant)| LayerViolation {
            file: file.path.clone(),
            line: constant.line,
            rule: "constant-name",
            found: constant.name.clone(),
            sentence: "the name of a limit contains the limited quantity".to_owned(),
        })
        .collect()
}

/// Finds a crate with too many public items in its root.
fn large_root(owner: &SourceCrate, rules: &LayerRules) -> Option<LayerViolation> {
    let limit = rules.limits.public_items_per_crate_root;
    let items = public_items(owner, &[]);
    (rules.crates_with_small_root.contains(&owner.name) && items > limit).then(|| LayerViolation {
        file: format!("{}src/lib.rs", owner.manifest.trim_end_matches("Cargo.toml")),
        line: 0,
        rule: "crate-root",
        found: items.to_string(),
        sentence: format!("the root of a crate has at most {limit} public items"),
    })
}

/// Counts the public items of a module and its public modules.
fn public_items(owner: &SourceCrate, module: &[String]) -> usize {
    let Some(file) = owner.modules.get(module) else { return 1 };
    let source = &file.source;
    let below = source.public_modules.iter().map(|name| [module, std::slice::from_ref(name)].concat());
    let of_modules: usize = below.map(|child| public_items(owner, &child)).sum();
    source.items.values().filter(|is_public| **is_public).count() + source.public_imports.len() + of_modules
}

/// Finds names that too many public types share.
fn repeated_types(tree: &SourceTree, rules: &LayerRules) -> Vec<LayerViolation> {
    let limit = rules.limits.max_types_per_name;
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in tree.crates.iter().flat_map(|owner| owner.modules.values()) {
        for item in &file.source.public_types {
            places.entry(&item.name).or_default().push(&file.path);
        }
    }
    let repeated = places.into_iter().filter(|(_, files)| files.len() > limit);
    repeated
        .map(|(name, files)| LayerViolation {
            file: name.to_owned(),
            line: 0,
            rule: "type-name",
            found: files.len().to_string(),
            sentence: format!("at most {limit} types have one name: {}", files.join(", ")),
        })
        .collect()
}
