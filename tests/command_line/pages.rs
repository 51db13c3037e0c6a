//! Pages, as a browser shows them: in headless Chromium, where the computer has it. Elsewhere these tests have nothing to look with.

use std::process::Command;

use super::{stderr, towtank};

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// A browser that shows pages here: some are installed and cannot run.
fn browser() -> Option<&'static str> {
    NAMES.into_iter().find(|name| dom(name, "data:text/html,<p>seen</p>").is_some_and(|(dom, _)| dom.contains("<p>seen</p>")))
}

/// The page after its script has run, without a network, and what the browser complained about.
fn dom(browser: &str, address: &str) -> Option<(String, String)> {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--dump-dom", address])
        .output()
        .ok()?;
    Some((String::from_utf8_lossy(&output.stdout).into_owned(), stderr(&output)))
}

#[test]
fn every_kind_of_page_opens_in_a_browser_and_its_script_runs() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let simulated = ["slow-store", "--set", "dataset.count=320"];
    let kinds: [(&[&str], &str); 3] = [
        (&["sim"], "Where the consumer's time went"),
        (&["explain", "--seeds", "1"], "store connections"),
        (&["tune", "--for", "throughput >= 300 samples/s", "--space", "threads=1..2,lanes=32|64", "--seeds", "1"], "Front"),
    ];
    for (verb, heading) in kinds {
        let page = folder.path().join(format!("{}.html", verb[0]));
        let output = towtank(&[verb, &simulated, &["--html", page.to_str().unwrap()]].concat());
        assert!(page.exists(), "{}", stderr(&output));
        let (dom, complaints) = dom(browser, &format!("file://{}", page.display())).expect("it has just shown one");
        assert!(dom.contains(heading), "{verb:?}: {complaints}");
        // The page comes with its button hidden, and the script shows it.
        let button = dom.split("<button").nth(1).and_then(|rest| rest.split('>').next()).expect("there is a button");
        assert!(!button.contains("hidden"), "{verb:?}: the script did not run: {complaints}");
        assert!(!complaints.contains("Uncaught") && !complaints.contains("SyntaxError"), "{complaints}");
    }
}
