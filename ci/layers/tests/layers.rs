//! The workspace keeps the order of its crates and rooms.
#![allow(missing_docs, clippy::unwrap_used)]

use rpd_layers::{LayerException, LayerRules, SourceTree, repository, unneeded_exceptions, violations};

fn rules() -> LayerRules {
    LayerRules::read(&repository().join("ci/layers/layers.toml")).unwrap()
}

#[test]
fn crates_and_rooms_import_only_what_is_below_them() {
    let tree = SourceTree::read(&repository()).unwrap();
    let found: Vec<String> = violations(&tree, &rules()).iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn each_exception_is_needed_and_has_a_reason() {
    let (tree, rules) = (SourceTree::read(&repository()).unwrap(), rules());
    assert_eq!(unneeded_exceptions(&tree, &rules), []);
}

#[test]
fn an_exception_that_nothing_needs_is_found() {
    let (tree, mut rules) = (SourceTree::read(&repository()).unwrap(), rules());
    let exception = LayerException {
        file: "merger/src/lib.rs".to_owned(),
        rule: "room-order".to_owned(),
        found: "nowhere".to_owned(),
        reason: "a test".to_owned(),
    };
    rules.permit(exception.clone());
    assert_eq!(unneeded_exceptions(&tree, &rules), [exception]);
}
