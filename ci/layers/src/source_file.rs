//! Definitions and imports of one source file.

use std::collections::BTreeMap;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

/// One parsed source file, without code under `#[cfg(test)]`.
#[derive(Debug, Default)]
pub(crate) struct SourceFile {
    /// Paths that the file uses: those of `use`, and those with two or more segments in code.
    pub(crate) paths: Vec<UsedPath>,
    /// Names that `use` imports into the module, with the path of each.
    pub(crate) imports: BTreeMap<String, Vec<String>>,
    /// Names of the items that the module defines.
    pub(crate) items: BTreeMap<String, bool>,
    /// Public types, in any sense of `pub`.
    pub(crate) public_types: Vec<NamedItem>,
    /// Constants.
    pub(crate) constants: Vec<NamedItem>,
    /// Public modules in files of their own; inline modules are not included.
    pub(crate) public_modules: Vec<String>,
    /// Names that `pub use` makes public, and `*` for a glob.
    pub(crate) public_imports: Vec<(String, Vec<String>)>,
    /// Modules that exist only for tests.
    pub(crate) test_modules: Vec<String>,
}

/// A path in the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UsedPath {
    pub(crate) segments: Vec<String>,
    /// Line number, from 1.
    pub(crate) line: usize,
    /// Whether `use` imports the path without `pub`.
    pub(crate) is_import: bool,
}

/// A definition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NamedItem {
    pub(crate) name: String,
    /// Line number, from 1.
    pub(crate) line: usize,
}

impl SourceFile {
    /// Parses the text of a file.
    pub(crate) fn parse(text: &str) -> Result<SourceFile, syn::Error> {
        let file = syn::parse_file(text)?;
        let mut found = SourceFile::default();
        for item in &file.items {
            found.add_item(item);
        }
        found.visit_file(&file);
        Ok(found)
    }

    fn add_item(&mut self, item: &Item) {
        if is_for_tests(attributes(item)) {
            if let Item::Mod(module) = item {
                self.test_modules.push(module.ident.to_string());
            }
            return;
        }
        let (name, visibility, is_type) = match item {
            Item::Struct(item) => (&item.ident, &item.vis, true),
            Item::Enum(item) => (&item.ident, &item.vis, true),
            Item::Union(item) => (&item.ident, &item.vis, true),
            Item::Trait(item) => (&item.ident, &item.vis, true),
            Item::Type(item) => (&item.ident, &item.vis, true),
            Item::Fn(item) => (&item.sig.ident, &item.vis, false),
            Item::Const(item) => (&item.ident, &item.vis, false),
            Item::Static(item) => (&item.ident, &item.vis, false),
            Item::Mod(item) => {
                if is_public(&item.vis) && item.content.is_none() {
                    self.public_modules.push(item.ident.to_string());
                }
                return;
            }
            Item::Use(item) => {
                let mut leaves = Vec::new();
                collect_leaves(&item.tree, &mut Vec::new(), &mut leaves);
                for (name, path) in leaves {
                    if is_public(&item.vis) {
                        self.public_imports.push((name.clone(), path.clone()));
                    }
                    self.imports.insert(name, path);
                }
                return;
            }
            _ => return,
        };
        let named = NamedItem { name: name.to_string(), line: name.span().start().line };
        self.items.insert(named.name.clone(), is_public(visibility));
        match item {
            Item::Const(_) => self.constants.push(named),
            _ if is_type && !matches!(visibility, Visibility::Inherited) => self.public_types.push(named),
            _ => {}
        }
    }
}

impl<'ast> Visit<'ast> for SourceFile {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let mut leaves = Vec::new();
        collect_leaves(&item.tree, &mut Vec::new(), &mut leaves);
        let line = item.use_token.span.start().line;
        let is_import = !is_public(&item.vis);
        self.paths.extend(leaves.into_iter().map(|(_, segments)| UsedPath { segments, line, is_import }));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.len() > 1 {
            let line = path.segments[0].ident.span().start().line;
            self.paths.push(UsedPath { segments, line, is_import: false });
        }
        visit::visit_path(self, path);
    }
}

/// Collects the names at the ends of a `use` tree, each with its whole path.
fn collect_leaves(tree: &UseTree, before: &mut Vec<String>, leaves: &mut Vec<(String, Vec<String>)>) {
    let path_to = |before: &[String], name: String| [before, &[name]].concat();
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            collect_leaves(&path.tree, before, leaves);
            before.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            leaves.push((before.last().cloned().unwrap_or_default(), before.clone()));
        }
        UseTree::Name(name) => leaves.push((name.ident.to_string(), path_to(before, name.ident.to_string()))),
        UseTree::Rename(rename) => {
            let path = if rename.ident == "self" {
                before.clone()
            } else {
                path_to(before, rename.ident.to_string())
            };
            leaves.push((rename.rename.to_string(), path));
        }
        UseTree::Glob(_) => leaves.push(("*".to_owned(), before.clone())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| collect_leaves(tree, before, leaves)),
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = match &attribute.meta {
            syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string(),
            syn::Meta::Path(path) if path.is_ident("test") => return true,
            _ => return false,
        };
        text.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test") && !text.contains("not")
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_read_from_trees_and_from_code_but_not_from_tests() {
        let text = "
            use crate::a::{self, B, c::{D as E, *}};
            use super::f;
            pub use self::g::H;
            #[cfg(test)]
            use crate::only_for_tests::X;
            pub(crate) struct PublicType(crate::i::J);
            struct PrivateType;
            const MOST: usize = 3;
            fn k() { crate::l::m() }
            #[cfg(test)]
            mod tests { use crate::also_for_tests::Y; }
        ";
        let file = SourceFile::parse(text).unwrap();
        let joined = |is_import| {
            let paths = file.paths.iter().filter(|path| path.is_import == is_import);
            paths.map(|path| path.segments.join("::")).collect::<Vec<_>>()
        };
        assert_eq!(joined(true), ["crate::a", "crate::a::B", "crate::a::c::D", "crate::a::c", "super::f"]);
        assert_eq!(joined(false), ["self::g::H", "crate::i::J", "crate::l::m"]);
        assert_eq!(
            file.public_types.iter().map(|item| item.name.as_str()).collect::<Vec<_>>(),
            ["PublicType"]
        );
        assert_eq!(file.constants[0].name, "MOST");
        assert_eq!(file.imports["E"].join("::"), "crate::a::c::D");
        assert_eq!(file.test_modules, ["tests"]);
    }
}
