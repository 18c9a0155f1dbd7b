//! Combines the command line, variables and files to effective settings.

use crate::file::{FileEntry, FileError, FileTable, TypedValue, nearest};
use crate::preset;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;

/// A program with options that may be set in files.
#[derive(Clone, Debug)]
pub struct Program<'a> {
    /// Its table: `collect` or `merge`.
    pub table: &'static str,
    /// Its options.
    pub command: Command,
    /// Options that an environment variable may set, with the variable.
    pub variables: &'a [(&'a str, &'a str)],
    /// Options that no file may set.
    pub typed_only: &'a [&'a str],
}

/// Origin of an effective option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SettingOrigin {
    /// The default.
    Default,
    /// The site file or a named file, at a line.
    File(String, usize),
    /// The site file, at a line that locks the option.
    Locked(String, usize),
    /// An environment variable.
    Variable(String),
    /// The command line.
    Typed,
}

impl SettingOrigin {
    /// Returns the precedence; a higher one wins. `site` is the name of the site file.
    fn rank(&self, site: &str) -> u8 {
        match self {
            SettingOrigin::Default => 0,
            SettingOrigin::File(name, _) if name == site => 1,
            SettingOrigin::File(..) => 2,
            SettingOrigin::Variable(_) => 3,
            SettingOrigin::Typed => 4,
            SettingOrigin::Locked(..) => 5,
        }
    }
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingOrigin::Default => f.write_str("default"),
            SettingOrigin::File(name, line) => write!(f, "{name}, line {line}"),
            SettingOrigin::Locked(name, line) => write!(f, "locked by the site: {name}, line {line}"),
            SettingOrigin::Variable(name) => write!(f, "{name} in the environment"),
            SettingOrigin::Typed => f.write_str("typed"),
        }
    }
}

/// An effective option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Its long name.
    pub key: String,
    /// Its values in the form of the command line; `None` if it is not given.
    pub values: Option<Vec<String>>,
    /// Whether it takes no value.
    pub is_switch: bool,
    /// Its origin.
    pub origin: SettingOrigin,
}

impl Setting {
    fn of(arg: &Arg, values: Option<Vec<String>>, origin: SettingOrigin) -> Setting {
        Setting { key: key_of(arg).to_owned(), values, is_switch: is_switch(arg), origin }
    }
}

/// The effective settings of a call.
#[derive(Clone, Debug)]
pub struct LayeredSettings {
    program: OsString,
    /// Each given option in the form of the command line.
    options: Vec<Given>,
    /// The arguments after the options.
    positionals: Vec<OsString>,
    /// Name of the site file.
    site: String,
    /// Variables of options that the site has locked. Their values are ignored.
    pub locked_variables: Vec<String>,
    /// All options, in the order of the help.
    pub settings: Vec<Setting>,
    /// Settings that were ignored, one line each.
    pub warnings: Vec<String>,
    /// Variables with invalid values, which count as unset, one line each; for programs that do not read them.
    pub unread_variables: Vec<String>,
}

/// An option in the form of the program's own parser.
#[derive(Clone, Debug)]
struct Given {
    words: Vec<OsString>,
    by_variable: bool,
    /// The option without a value from any origin.
    default: Setting,
}

impl LayeredSettings {
    /// Arguments for the program's own parser, with its name: the command line and files.
    pub fn arguments(&self) -> Vec<OsString> {
        self.those(|option| !option.by_variable)
    }

    /// The same arguments, with variables.
    pub fn with_variables(&self) -> Vec<OsString> {
        self.those(|_| true)
    }

    /// The same arguments, without some options.
    pub(crate) fn arguments_without(&self, keys: &[&str]) -> Vec<OsString> {
        self.those(|option| !keys.contains(&option.default.key.as_str()))
    }

    fn those(&self, wanted: impl Fn(&Given) -> bool) -> Vec<OsString> {
        let options = self.options.iter().filter(|option| wanted(option));
        let words = options.flat_map(|option| &option.words);
        let end = OsString::from("--");
        [&self.program].into_iter().chain(words).chain([&end]).chain(&self.positionals).cloned().collect()
    }

    /// Resets an option to its default; it may still be shown.
    pub(crate) fn forget(&mut self, key: &str, is_shown: bool) {
        let Some(at) = self.options.iter().position(|option| option.default.key == key) else { return };
        let option = self.options.remove(at);
        let setting = self.settings.iter_mut().find(|setting| setting.key == key);
        if let Some(setting) = setting.filter(|_| !is_shown) {
            *setting = option.default;
        }
    }

    /// Returns the precedence; a higher one wins.
    pub(crate) fn rank(&self, origin: &SettingOrigin) -> u8 {
        origin.rank(&self.site)
    }

    /// Returns the origin of an option in words.
    pub fn origin(&self, key: &str) -> &SettingOrigin {
        let found = self.settings.iter().find(|setting| setting.key == key);
        found.map_or(&SettingOrigin::Default, |setting| &setting.origin)
    }

    /// Returns the options that the site has locked.
    pub fn locked(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter().filter(|setting| matches!(setting.origin, SettingOrigin::Locked(..)))
    }
}

impl Program<'_> {
    /// Combines the command line, variables, the named file and the site file. A mistake in the named file is an
    /// error. A mistake in the site file discards the site's settings, because the user cannot mend them.
    pub fn layered(
        &self,
        typed: &ArgMatches,
        named: Option<&OsStr>,
        site: Option<&Path>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<LayeredSettings, FileError> {
        let mut warnings = Vec::new();
        let site = site.filter(|path| path.exists()).map_or(Ok(FileTable::default()), |path| {
            preset::read(path).and_then(|(name, text)| self.checked(&name, &text))
        });
        let site = site.unwrap_or_else(|error| {
            warnings.push(format!("warning: {error}; the site's settings are left aside"));
            FileTable::default()
        });
        let own = match named {
            Some(name) => {
                let (name, text) = preset::named(name)?;
                self.checked(&name, &text)?
            }
            None => FileTable::default(),
        };
        let (mut all, mut unread_variables) = (Vec::<(&Arg, Setting)>::new(), Vec::new());
        for arg in self.options() {
            let key = key_of(arg);
            let locked = site.locked.iter().find(|(word, _)| word == key);
            let by_site = site.find(key);
            let wanted = self.wanted(arg, typed, &own, &variable, &mut unread_variables);
            let setting = match (locked, wanted, by_site) {
                (Some((_, line)), wanted, by_site) => {
                    let origin =
                        SettingOrigin::Locked(site.name.clone(), by_site.map_or(*line, |entry| entry.line));
                    let setting = of_file(by_site, origin, arg);
                    if let Some(wanted) = wanted.filter(|wanted| wanted.values != setting.values) {
                        warnings.push(overruled(&wanted, &setting));
                    }
                    setting
                }
                (None, Some(wanted), _) => wanted,
                (None, None, Some(entry)) if !self.is_excluded(arg, typed) => {
                    of_file(Some(entry), SettingOrigin::File(site.name.clone(), entry.line), arg)
                }
                _ => by_default(arg),
            };
            all.push((arg, setting));
        }
        warnings.extend(self.leave_out(&mut all, &site.name));
        let (mut options, mut settings, mut locked_variables) = (Vec::new(), Vec::new(), Vec::new());
        for (arg, setting) in all {
            let key = key_of(arg);
            let words = match &setting.origin {
                SettingOrigin::Typed => typed_again(arg, typed),
                SettingOrigin::Default => Vec::new(),
                _ => as_typed(arg, &setting),
            };
            if !words.is_empty() {
                let by_variable = matches!(setting.origin, SettingOrigin::Variable(_));
                options.push(Given { words, by_variable, default: by_default(arg) });
            }
            if let (SettingOrigin::Locked(..), Some((_, name))) =
                (&setting.origin, self.variables.iter().find(|(option, _)| *option == key))
            {
                locked_variables.push((*name).to_owned());
            }
            // Options about a single call are not for files.
            if self.may_stand_in_files(arg) {
                settings.push(setting);
            }
        }
        let positionals = self.command.get_positionals().map(|arg| arg.get_id().as_str());
        let positionals =
            positionals.flat_map(|id| raw(typed, id).into_iter().flatten().map(OsStr::to_owned));
        Ok(LayeredSettings {
            program: self.command.get_name().into(),
            options,
            positionals: positionals.collect(),
            site: site.name,
            locked_variables,
            settings,
            warnings,
            unread_variables,
        })
    }

    /// Returns the options that have a long name, without `--help` and `--version`.
    fn options(&self) -> impl Iterator<Item = &Arg> {
        let is_about_itself = |arg: &Arg| {
            use ArgAction::{Help, HelpLong, HelpShort, Version};
            matches!(arg.get_action(), Help | HelpLong | HelpShort | Version)
        };
        self.command.get_arguments().filter(move |arg| arg.get_long().is_some() && !is_about_itself(arg))
    }

    fn may_stand_in_files(&self, arg: &Arg) -> bool {
        !self.typed_only.contains(&key_of(arg))
    }

    /// Reads the table of a file. Its keys must be options, and the program must accept its values.
    fn checked(&self, name: &str, text: &str) -> Result<FileTable, FileError> {
        let table = FileTable::read(name, text, self.table)?;
        let at = |line, what| FileError::At { name: name.to_owned(), line, what };
        let known = || self.options().filter(|arg| self.may_stand_in_files(arg));
        let find = |key: &str, line| {
            let found = known().find(|arg| key_of(arg) == key);
            found.ok_or_else(|| {
                if self.options().any(|arg| key_of(arg) == key) {
                    return at(line, format!("{key} is for the command line alone"));
                }
                let near = nearest(key, known().map(key_of));
                let program = self.command.get_name();
                at(
                    line,
                    format!(
                        "there is no option {key:?}{near}; use one that {program} --help lists, without its dashes"
                    ),
                )
            })
        };
        for (key, line) in &table.locked {
            find(key, *line)?;
        }
        for FileEntry { key, value, line } in &table.entries {
            let arg = find(key, *line)?;
            let setting = of_file(table.find(key), SettingOrigin::Default, arg);
            let is_switch = matches!(value, TypedValue::Switch(_));
            if is_switch != setting.is_switch {
                let what = if setting.is_switch { "is true or false" } else { "takes a value" };
                return Err(at(*line, format!("{key} {what}")));
            }
            self.read(as_typed(arg, &setting)).map_err(|what| at(*line, what))?;
        }
        Ok(table)
    }

    /// Parses one option with the program's parser.
    fn read(&self, arguments: Vec<OsString>) -> Result<(), String> {
        let name = OsString::from(self.command.get_name());
        let read = self.command.clone().try_get_matches_from(std::iter::once(name).chain(arguments));
        // Other required arguments, such as a command, come from the command line.
        let read = read.map(drop).or_else(|error| match error.kind() {
            ErrorKind::MissingRequiredArgument => Ok(()),
            _ => Err(error),
        });
        read.map_err(|error| {
            let text = error.render().to_string();
            let first = text.lines().next().unwrap_or_default();
            first.trim_start_matches("error: ").to_owned()
        })
    }

    /// Returns the value that the user set, if any.
    fn wanted(
        &self,
        arg: &Arg,
        typed: &ArgMatches,
        own: &FileTable,
        variable: &impl Fn(&str) -> Option<OsString>,
        unread: &mut Vec<String>,
    ) -> Option<Setting> {
        let key = key_of(arg);
        let setting = |values, origin| Setting::of(arg, Some(values), origin);
        if is_typed(arg.get_id().as_str(), typed) {
            let values = raw(typed, arg.get_id().as_str()).into_iter().flatten();
            let values = values.map(|value| value.to_string_lossy().into_owned()).collect();
            return Some(setting(values, SettingOrigin::Typed));
        }
        let by_variable = self.variables.iter().find(|(option, _)| *option == key).and_then(|(_, name)| {
            let value = variable(name).filter(|value| !value.is_empty())?.to_string_lossy().into_owned();
            let given = setting(vec![value], SettingOrigin::Variable((*name).to_owned()));
            match self.read(as_typed(arg, &given)) {
                Ok(()) => Some(given),
                Err(what) => {
                    unread.push(format!("warning: {name}: {what}; it counts as unset"));
                    None
                }
            }
        });
        let by_file = || {
            let entry = own.find(key).filter(|_| !self.is_excluded(arg, typed))?;
            Some(of_file(Some(entry), SettingOrigin::File(own.name.clone(), entry.line), arg))
        };
        by_variable.or_else(by_file)
    }

    /// Returns whether an option on the command line conflicts with this one; the command line wins.
    fn is_excluded(&self, arg: &Arg, typed: &ArgMatches) -> bool {
        self.options().any(|other| is_typed(other.get_id().as_str(), typed) && self.excludes(arg, other))
    }

    /// Returns whether two options conflict.
    fn excludes(&self, one: &Arg, other: &Arg) -> bool {
        let has = |of: &Arg, other: &Arg| {
            self.command.get_arg_conflicts_with(of).iter().any(|found| found.get_id() == other.get_id())
        };
        let mut groups = self.command.get_groups().filter(|group| !(*group).clone().is_multiple());
        let is_of = |group: &ArgGroup, arg: &Arg| group.get_args().any(|id| id == arg.get_id());
        one.get_id() != other.get_id()
            && (has(one, other)
                || has(other, one)
                || groups.any(|group| is_of(group, one) && is_of(group, other)))
    }

    /// Drops settings from files and variables that conflict with settings of higher precedence, with a warning.
    /// Conflicts within the command line are for the caller.
    fn leave_out(&self, all: &mut [(&Arg, Setting)], site: &str) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut order: Vec<usize> = (0..all.len()).filter(|at| is_given(all, *at)).collect();
        order.sort_by_key(|at| std::cmp::Reverse(all.get(*at).map(|(_, setting)| setting.origin.rank(site))));
        for (place, at) in order.iter().enumerate() {
            let Some((arg, setting)) = all.get(*at) else { continue };
            let mut before = order.iter().take(place).filter(|other| is_given(all, **other));
            let stronger =
                before.find_map(|other| all.get(*other).filter(|(of_it, _)| self.excludes(arg, of_it)));
            let Some((_, stronger)) = stronger.filter(|_| setting.origin != SettingOrigin::Typed) else {
                continue;
            };
            warnings.push(format!(
                "warning: --{} ({}) does not go together with --{} ({}), and is left out",
                setting.key, setting.origin, stronger.key, stronger.origin
            ));
            let left_out = by_default(arg);
            if let Some((_, setting)) = all.get_mut(*at) {
                *setting = left_out;
            }
        }
        warnings
    }
}

impl FileTable {
    fn find(&self, key: &str) -> Option<&FileEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}

fn is_given(all: &[(&Arg, Setting)], at: usize) -> bool {
    all.get(at)
        .is_some_and(|(_, setting)| setting.origin != SettingOrigin::Default && setting.values.is_some())
}

fn key_of(arg: &Arg) -> &str {
    arg.get_long().unwrap_or_default()
}

fn is_switch(arg: &Arg) -> bool {
    !arg.get_action().takes_values()
}

fn is_typed(id: &str, typed: &ArgMatches) -> bool {
    typed.try_contains_id(id).is_ok() && typed.value_source(id) == Some(ValueSource::CommandLine)
}

/// An entry of a file; without one the option has its default.
fn of_file(entry: Option<&FileEntry>, origin: SettingOrigin, arg: &Arg) -> Setting {
    let values = entry.and_then(|entry| match &entry.value {
        TypedValue::Switch(true) => Some(Vec::new()),
        TypedValue::Switch(false) => None,
        // A list is one value, unless each element repeats the option.
        TypedValue::Values(values) if is_repeated(arg) => Some(values.clone()),
        TypedValue::Values(values) => Some(vec![values.join(",")]),
    });
    Setting::of(arg, values, origin)
}

/// Describes a value as the help does.
fn by_default(arg: &Arg) -> Setting {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let shown = help.rsplit_once("[default: ").and_then(|(_, rest)| rest.split_once(']'));
    let own = arg.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
    let value = own.or_else(|| shown.map(|(value, _)| value.to_owned())).filter(|_| !is_switch(arg));
    Setting::of(arg, value.map(|value| vec![value]), SettingOrigin::Default)
}

fn is_repeated(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append) && arg.get_value_delimiter().is_none()
}

/// Returns a setting in the form of the command line.
fn as_typed(arg: &Arg, setting: &Setting) -> Vec<OsString> {
    let key = key_of(arg);
    match &setting.values {
        None => Vec::new(),
        Some(_) if setting.is_switch => vec![format!("--{key}").into()],
        Some(values) => values.iter().map(|value| format!("--{key}={value}").into()).collect(),
    }
}

/// Returns the values of the command line unchanged.
fn typed_again(arg: &Arg, typed: &ArgMatches) -> Vec<OsString> {
    let option = || OsString::from(format!("--{}", key_of(arg)));
    if is_switch(arg) {
        return vec![option()];
    }
    let delimiter = arg.get_value_delimiter().map(|letter| letter.to_string());
    let with_value = |values: Vec<&OsStr>| {
        let mut text = option();
        text.push("=");
        text.push(values.join(OsStr::new(delimiter.as_deref().unwrap_or(","))));
        text
    };
    let all = raw(typed, arg.get_id().as_str());
    all.into_iter().map(with_value).collect()
}

/// Returns the values for each occurrence of an option.
fn raw<'a>(typed: &'a ArgMatches, id: &str) -> Vec<Vec<&'a OsStr>> {
    let found = typed.try_get_raw_occurrences(id).ok().flatten();
    found.map_or(Vec::new(), |found| found.map(Iterator::collect).collect())
}

fn overruled(wanted: &Setting, by_site: &Setting) -> String {
    let value = match &by_site.values {
        None => "not given".to_owned(),
        Some(_) if by_site.is_switch => "given".to_owned(),
        Some(values) => values.join(" "),
    };
    format!("warning: --{} is {value}, not as {} says: it is {}", wanted.key, wanted.origin, by_site.origin)
}
