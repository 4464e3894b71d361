//! An end to tests that hang.

use std::cell::RefCell;
use std::io::Write as _;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// A test that takes this long hangs: its steps have shorter limits of their own.
const HANGS: Duration = Duration::from_secs(15 * 60);

/// Dropped with the thread of its test, so after the test's runtime, which waits for blocking work without a limit.
struct Watch(#[expect(dead_code, reason = "the end of the channel is the message")] Sender<()>);

thread_local! {
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Ends the process when the test of this thread hangs, and says which test and which programs it still runs. Otherwise
/// one test would keep the others from being reported until the run as a whole is cut off.
pub fn end_if_this_test_hangs() {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let (alive, ended) = channel::<()>();
    WATCH.set(Some(Watch(alive)));
    std::thread::spawn(move || {
        if ended.recv_timeout(HANGS) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let own = std::process::id().to_string();
        let programs = Command::new("ps").args(["-o", "pid,etime,stat,args", "--ppid", &own]).output();
        let programs = programs.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let programs = programs.unwrap_or_default();
        // Not by a macro: the test harness would keep its output to itself.
        let _ = writeln!(
            std::io::stderr(),
            "test {test} hangs: it has not ended within {HANGS:?}. Its process runs:\n{programs}"
        );
        std::process::abort();
    });
}
