use super::binaries::repository;
use super::job::Job;
use super::skip;
use serde_json::Value;
use std::env;
use std::path::Path;
use std::time::Duration;

/// A Chromium without a window, which opens pages of rpd-report.
#[derive(Clone, Copy, Debug)]
pub struct PageBrowser(());

impl PageBrowser {
    /// Finds Chromium and Node; where there is none, says that `what` is skipped.
    ///
    /// # Panics
    /// If there is none, and `RPD_CI_CHROMIUM` is 1.
    pub fn find(what: &str) -> Option<PageBrowser> {
        let asked = env::var("RPD_CI_CHROMIUM").unwrap_or_default();
        let chromium = env::var_os("RPD_CHROMIUM").unwrap_or_else(|| "chromium".into());
        let is_here =
            |program| Job::new("sh").args(["-c", "command -v \"$0\""]).arg(program).run().code() == Some(0);
        let why = if asked == "0" {
            "RPD_CI_CHROMIUM is 0"
        } else if is_here(chromium) && is_here("node".into()) {
            return Some(PageBrowser(()));
        } else {
            "chromium or node is not here"
        };
        assert!(asked != "1", "{what}: RPD_CI_CHROMIUM is 1, but {why}");
        skip(what, why);
        None
    }

    /// Opens a page and uses it by keyboard. Returns what it shows; `pictures` is the beginning of the names of pictures.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn uses(self, page: &Path, pictures: &Path) -> Value {
        open(page, pictures, "use")
    }

    /// Returns the time until the page is complete, ms.
    ///
    /// # Panics
    /// If it does not come up, or has errors.
    pub fn load_ms(self, page: &Path) -> f64 {
        let found = open(page, Path::new(""), "load");
        assert_eq!(found["errors"], Value::Array(Vec::new()));
        found["ms"].as_f64().expect("a number of milliseconds")
    }
}

fn open(page: &Path, pictures: &Path, mode: &str) -> Value {
    let outcome = Job::new("node")
        .arg(repository().join("tests/browser/page.mjs"))
        .args([page, pictures, Path::new(mode)])
        .limit(Duration::from_secs(100))
        .run()
        .success();
    serde_json::from_str(&outcome.stdout).expect("the script writes JSON")
}
