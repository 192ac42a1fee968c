//! One page in headless Chromium, through chromedriver.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{block_on, poll};

/// For headless use in a container, and without requests of its own to the outside.
const FLAGS: &[&str] = &[
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-prefers-reduced-motion",
    "--lang=en",
    "--window-size=1280,800",
];

/// How WebDriver marks the id of an element in an answer.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

pub(super) struct Chromium {
    driver: Child,
    client: reqwest::Client,
    session: String,
    _profile: TempDir,
}

impl Chromium {
    /// A browser with a profile of its own, at this address. The certificate is not checked: its
    /// authority is new.
    pub(super) fn open(url: &str) -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts: scripts/setup test installs it");
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| {
            let line = line.unwrap();
            let (_, port) = line.split_once("started successfully on port ")?;
            Some(port.trim_end_matches('.').to_owned())
        });
        let port = port.expect("chromedriver reports its port");
        // It blocks when its output is not read.
        std::thread::spawn(move || lines.for_each(drop));
        let profile = tempfile::tempdir().unwrap();
        let mut flags: Vec<String> = FLAGS.iter().map(|&flag| flag.to_owned()).collect();
        flags.push(format!("--user-data-dir={}", profile.path().display()));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let session = format!("http://127.0.0.1:{port}/session");
        let mut page = Self { driver, client, session, _profile: profile };
        let made = page.command(
            "",
            &json!({"capabilities": {"alwaysMatch": {
                "acceptInsecureCerts": true,
                "goog:chromeOptions": {"args": flags},
                "goog:loggingPrefs": {"browser": "ALL"},
            }}}),
        );
        let made = made.expect("Chromium starts");
        page.session = format!("{}/{}", page.session, made["sessionId"].as_str().unwrap());
        // Chromium gives up when an interface of the host changes meanwhile; other tests change some.
        poll("the dashboard opens", || {
            page.command("/url", &json!({"url": url}))?;
            (0..200)
                .find_map(|_| page.find("input[name=password]").ok())
                .ok_or("it stays empty".to_owned())
        });
        page
    }

    /// Sends a command of WebDriver; its error is a text.
    fn command(&self, path: &str, body: &Value) -> Result<Value, String> {
        let request = self.client.post(format!("{}{path}", self.session));
        let request = request.header("content-type", "application/json").body(body.to_string());
        let text = block_on(async { request.send().await.unwrap().text().await.unwrap() });
        let mut answer: Value = serde_json::from_str(&text).unwrap();
        match answer["value"]["error"].as_str() {
            Some(error) => Err(format!("{error}: {}", answer["value"]["message"])),
            None => Ok(answer["value"].take()),
        }
    }

    /// The first element that matches: a path beginning with `//`, or a selector of CSS.
    fn find(&self, what: &str) -> Result<String, String> {
        let using = if what.starts_with("//") { "xpath" } else { "css selector" };
        let found = self.command("/element", &json!({"using": using, "value": what}))?;
        Ok(found[ELEMENT].as_str().unwrap().to_owned())
    }

    /// Waits until something is on the page.
    #[track_caller]
    pub(super) fn sees(&self, what: &str) {
        poll(what, || self.find(what));
    }

    #[track_caller]
    pub(super) fn click(&self, what: &str) {
        poll(what, || {
            let element = self.find(what)?;
            self.command(&format!("/element/{element}/click"), &json!({}))
        });
    }

    /// Replaces what a field holds.
    #[track_caller]
    pub(super) fn fill(&self, what: &str, text: &str) {
        poll(what, || {
            let element = self.find(what)?;
            self.command(&format!("/element/{element}/clear"), &json!({}))?;
            self.command(&format!("/element/{element}/value"), &json!({"text": text}))
        });
    }

    /// Runs a script in the page and returns what it returns.
    pub(super) fn script(&self, text: &str) -> Value {
        self.command("/execute/sync", &json!({"script": text, "args": []})).unwrap()
    }

    /// Errors of scripts and violations of the page's policy since the last call.
    pub(super) fn problems(&self) -> Vec<String> {
        let log = self.command("/se/log", &json!({"type": "browser"})).unwrap();
        let texts = log.as_array().unwrap().iter().filter_map(|entry| entry["message"].as_str());
        let is_problem =
            |text: &&str| text.contains("Uncaught") || text.contains("Security Policy");
        texts.filter(is_problem).map(str::to_owned).collect()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let request = self.client.delete(&self.session);
        block_on(async {
            let _ = request.send().await;
        });
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
