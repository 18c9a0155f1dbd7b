//! The crates of the workspace with their modules, and the resolution of paths to files.

use crate::source_file::SourceFile;
use cargo_metadata::{DependencyKind, MetadataCommand};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of re-exports that the resolution of a path follows.
const MAX_REEXPORTS: usize = 16;

/// The crates of the workspace.
#[derive(Debug)]
pub struct SourceTree {
    pub(crate) crates: Vec<SourceCrate>,
}

/// One crate.
#[derive(Debug)]
pub(crate) struct SourceCrate {
    /// Name in Cargo.toml.
    pub(crate) name: String,
    /// Crates of the workspace that this crate depends on, without dependencies of its tests.
    pub(crate) dependencies: BTreeSet<String>,
    /// Modules by path; the path of `lib.rs` is empty.
    pub(crate) modules: BTreeMap<Vec<String>, ModuleFile>,
    /// Path of Cargo.toml, relative to the root of the repository.
    pub(crate) manifest: String,
}

/// A module that has a file.
#[derive(Debug)]
pub(crate) struct ModuleFile {
    /// Path, relative to the root of the repository.
    pub(crate) path: String,
    pub(crate) source: SourceFile,
}

/// A module of a crate of the workspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PathTarget<'a> {
    pub(crate) owner: &'a str,
    pub(crate) module: &'a [String],
    /// The imported item; `None` for the module itself.
    pub(crate) name: Option<String>,
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl SourceTree {
    /// Reads the workspace at the root of a repository.
    ///
    /// # Errors
    /// Returns an error if cargo cannot describe the workspace, or a source file cannot be read or parsed.
    pub fn read(root: &Path) -> Result<SourceTree, String> {
        let root = root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
        let mut command = MetadataCommand::new();
        command.manifest_path(root.join("Cargo.toml")).no_deps().other_options(["--offline".to_owned()]);
        let metadata = command.exec().map_err(|error| error.to_string())?;
        let names: BTreeSet<String> =
            metadata.packages.iter().map(|package| package.name.to_string()).collect();
        let mut crates = Vec::new();
        for package in &metadata.packages {
            let normal =
                package.dependencies.iter().filter(|needed| needed.kind != DependencyKind::Development);
            let dependencies =
                normal.map(|needed| needed.name.clone()).filter(|name| names.contains(name)).collect();
            let manifest = package.manifest_path.as_std_path();
            let source = manifest.parent().unwrap_or(&root).join("src");
            crates.push(SourceCrate {
                name: package.name.to_string(),
                dependencies,
                modules: read_modules(&source, &root)?,
                manifest: relative(manifest, &root),
            });
        }
        Ok(SourceTree { crates })
    }

    /// Returns all source files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &SourceFile> {
        self.crates.iter().flat_map(|owner| owner.modules.values()).map(|module| &module.source)
    }

    /// Returns the module that defines the item of a path; `None` if no crate of the workspace does.
    pub(crate) fn resolve<'a>(
        &'a self,
        owner: &'a SourceCrate,
        module: &[String],
        path: &[String],
    ) -> Option<PathTarget<'a>> {
        self.resolve_within(owner, module, path, MAX_REEXPORTS)
    }

    fn resolve_within<'a>(
        &'a self,
        owner: &'a SourceCrate,
        module: &[String],
        path: &[String],
        depth: usize,
    ) -> Option<PathTarget<'a>> {
        let depth = depth.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let parent = || module.get(..module.len().saturating_sub(1)).unwrap_or_default();
        match first.as_str() {
            "crate" => self.walk(owner, &[], rest, depth),
            "self" => self.walk(owner, module, rest, depth),
            "super" if rest.first().is_some_and(|next| next == "super") => {
                self.resolve_within(owner, parent(), rest, depth)
            }
            "super" => self.walk(owner, parent(), rest, depth),
            name => {
                if let Some(other) = self.crates.iter().find(|other| other.name.replace('-', "_") == name) {
                    return self.walk(other, &[], rest, depth);
                }
                let here = owner.modules.get(module)?;
                let is_child = owner.modules.contains_key(&[module, std::slice::from_ref(first)].concat());
                let is_import = here.source.imports.get(name).is_some_and(|import| import.as_slice() != path);
                if is_child || is_import { self.walk(owner, module, path, depth) } else { None }
            }
        }
    }

    /// Follows the segments down from a module.
    fn walk<'a>(
        &'a self,
        owner: &'a SourceCrate,
        from: &[String],
        segments: &[String],
        depth: usize,
    ) -> Option<PathTarget<'a>> {
        let mut at = from.to_vec();
        for (number, segment) in segments.iter().enumerate() {
            let child = [at.as_slice(), std::slice::from_ref(segment)].concat();
            if owner.modules.contains_key(&child) {
                at = child;
                continue;
            }
            let source = &owner.modules.get(&at)?.source;
            let rest = segments.get(number + 1..).unwrap_or_default();
            if !source.items.contains_key(segment) {
                if let Some(import) = source.imports.get(segment) {
                    let whole = [import.as_slice(), rest].concat();
                    return self.resolve_within(owner, &at, &whole, depth);
                }
                let globs = source.public_imports.iter().filter(|(name, _)| name == "*");
                for (_, glob) in globs {
                    let whole = [glob.as_slice(), &segments[number..]].concat();
                    if let Some(found) = self.resolve_within(owner, &at, &whole, depth) {
                        return Some(found);
                    }
                }
            }
            let (module, _) = owner.modules.get_key_value(&at)?;
            return Some(PathTarget { owner: &owner.name, module, name: Some(segment.clone()) });
        }
        let (module, _) = owner.modules.get_key_value(&at)?;
        Some(PathTarget { owner: &owner.name, module, name: None })
    }
}

/// Reads all modules below a source folder except those for tests.
fn read_modules(source: &Path, root: &Path) -> Result<BTreeMap<Vec<String>, ModuleFile>, String> {
    let mut modules = BTreeMap::new();
    let mut folders = vec![source.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
                let text = fs::read_to_string(&path).map_err(|error| failed(&error))?;
                let parsed = SourceFile::parse(&text).map_err(|error| failed(&error))?;
                let file = ModuleFile { path: relative(&path, root), source: parsed };
                modules.insert(module_path(&path, source), file);
            }
        }
    }
    let for_tests: Vec<Vec<String>> = modules
        .iter()
        .flat_map(|(module, file)| {
            file.source
                .test_modules
                .iter()
                .map(|name| [module.as_slice(), std::slice::from_ref(name)].concat())
        })
        .collect();
    modules.retain(|module, _| !for_tests.iter().any(|tests| module.starts_with(tests)));
    Ok(modules)
}

fn module_path(file: &Path, source: &Path) -> Vec<String> {
    let inner = file.strip_prefix(source).unwrap_or(file).with_extension("");
    let mut path: Vec<String> = inner.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|last| last == "mod") || path == ["lib"] {
        path.pop();
    }
    path
}

fn relative(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}
