//! Drops options from files and variables that contradict the rest of a call.

use crate::layers::{LayeredSettings, Setting, SettingOrigin};
use std::ffi::OsString;

/// Maximum number of options of which all combinations are tried.
const MAX_TRIED_OPTIONS: usize = 12;

impl LayeredSettings {
    /// Drops options that are neither typed nor locked, as few and as low in precedence as possible, until `goes` accepts
    /// the call. Each dropped option is reported in [`LayeredSettings::warnings`]. An option of higher precedence stays,
    /// however many lower ones must go; among equals, those that come first in `keys` go first. If no combination helps,
    /// nothing changes, and the reason is returned.
    ///
    /// `details` are those of `keys` that only have a meaning in other calls. They are dropped without a warning, and are
    /// still shown.
    pub fn reconcile(
        &mut self,
        keys: &[&str],
        details: &[&str],
        goes: impl Fn(&[OsString]) -> Result<(), String>,
    ) -> Result<(), String> {
        let Err(reason) = goes(&self.with_variables()) else { return Ok(()) };
        let given: Vec<&Setting> = keys.iter().filter_map(|key| self.given(key)).collect();
        let is_locked = |setting: &&Setting| matches!(setting.origin, SettingOrigin::Locked(..));
        let is_typed = |setting: &&Setting| setting.origin == SettingOrigin::Typed;
        let mut free: Vec<String> = Vec::new();
        let mut costs: Vec<u64> = Vec::new();
        // A lock wins over the command line. Only locks that contradict each other are dropped as well.
        let locks_alone = !given.iter().any(is_typed) && given.iter().all(is_locked);
        for setting in
            given.into_iter().filter(|setting| !is_typed(setting) && (locks_alone || !is_locked(setting)))
        {
            free.push(setting.key.clone());
            costs.push(1 << (8 * u32::from(self.rank(&setting.origin))));
        }
        free.truncate(MAX_TRIED_OPTIONS);
        let mut choices: Vec<u32> = (1..1 << free.len()).collect();
        let cost = |choice: u32| -> u64 {
            costs.iter().enumerate().filter(|(at, _)| choice & 1 << at != 0).map(|(_, cost)| cost).sum()
        };
        choices.sort_by_key(|choice| (cost(*choice), *choice));
        for choice in choices {
            let chosen = |at: usize| choice & 1 << at != 0;
            let without: Vec<&str> =
                free.iter().enumerate().filter(|(at, _)| chosen(*at)).map(|(_, key)| key.as_str()).collect();
            if goes(&self.arguments_without(&without)).is_ok() {
                for key in without {
                    if !details.contains(&key) {
                        self.warn_of_left_out(key, &reason);
                    }
                    self.forget(key, details.contains(&key));
                }
                return Ok(());
            }
        }
        Err(reason)
    }

    fn given(&self, key: &str) -> Option<&Setting> {
        let found = self.settings.iter().find(|setting| setting.key == key)?;
        (found.origin != SettingOrigin::Default && found.values.is_some()).then_some(found)
    }

    fn warn_of_left_out(&mut self, key: &str, reason: &str) {
        let line = format!("warning: --{key} ({}) is left out: {reason}", self.origin(key));
        self.warnings.push(line);
    }
}
