//! A Chromium without a window, driven through its debugging pipe.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

/// The longest wait for an answer of the browser, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page; it ends with this value.
pub struct Browser {
    process: Child,
    to: File,
    from: Receiver<Value>,
    session: Option<String>,
    last: u64,
    /// What the browser reported beside answers.
    pub events: Vec<Value>,
}

impl Browser {
    /// Starts it with a profile of its own in this folder.
    pub fn start(folder: &Path) -> Result<Self> {
        let [to, from] = ["to", "from"].map(|name| folder.join(name));
        for pipe in [&to, &from] {
            ensure!(Command::new("mkfifo").arg(pipe).status()?.success(), "mkfifo {}", pipe.display());
        }
        // The browser reads commands from descriptor 3 and writes answers to 4.
        let script = format!(
            "exec chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run \
             --disable-background-networking --disable-component-update --user-data-dir='{}' \
             --remote-debugging-pipe 3<'{}' 4>'{}'",
            folder.join("profile").display(),
            to.display(),
            from.display()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn()?;
        let writer = OpenOptions::new().write(true).open(&to)?;
        let reader = BufReader::new(File::open(&from)?);
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for message in reader.split(0) {
                let parsed = message.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
                if parsed.is_none_or(|message: Value| sender.send(message).is_err()) {
                    return;
                }
            }
        });
        let mut browser =
            Self { process, to: writer, from: receiver, session: None, last: 0, events: Vec::new() };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let attached = browser
            .call("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}))?;
        browser.session = attached["sessionId"].as_str().map(ToOwned::to_owned);
        for domain in ["Page", "Network", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// Sends a command and waits for its result.
    pub fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.to.write_all(message.to_string().as_bytes())?;
        self.to.write_all(&[0])?;
        loop {
            let mut message =
                self.from.recv_timeout(PATIENCE).with_context(|| format!("no answer to {method}"))?;
            if message["id"] == self.last {
                if !message["error"].is_null() {
                    bail!("{method}: {}", message["error"]);
                }
                return Ok(message["result"].take());
            }
            self.events.push(message);
        }
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Result<Value> {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut result = self.call("Runtime.evaluate", params)?;
        ensure!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        Ok(result["result"]["value"].take())
    }

    /// Waits until an expression is true.
    pub fn until(&mut self, expression: &str) -> Result<()> {
        let began = std::time::Instant::now();
        while began.elapsed() < PATIENCE {
            // While a page is replaced by the next, there is none to ask.
            if self.value(expression).is_ok_and(|value| value == true) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        bail!("{expression} does not become true")
    }

    /// Goes to an address and waits until the page is whole.
    pub fn open(&mut self, url: &str) -> Result<()> {
        self.call("Page.navigate", json!({"url": url}))?;
        let path = url.split('/').skip(3).collect::<Vec<_>>().join("/");
        let there = format!("document.readyState === 'complete' && location.href.includes({})", json!(path));
        self.until(&there)
    }

    /// Shows the page at a width, in a theme.
    pub fn view(&mut self, width: u32, dark: bool) -> Result<()> {
        let height = if width < 600 { 800 } else { width * 9 / 16 };
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", metrics)?;
        let scheme = if dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features)?;
        Ok(())
    }

    /// A picture of the page as a PNG.
    pub fn picture(&mut self) -> Result<Vec<u8>> {
        let params = json!({"format": "png", "captureBeyondViewport": false});
        let ByteString(bytes) =
            serde_json::from_value(self.call("Page.captureScreenshot", params)?["data"].take())?;
        Ok(bytes)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
