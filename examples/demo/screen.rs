//! The demo's output: the story's lines over a live view of the cluster.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use kube::Client;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::board::{self, Board};

/// Time between two updates of the view.
const FRAME: Duration = Duration::from_millis(400);

enum Message {
    Story(String, oneshot::Sender<()>),
    Say(String),
    Verdict(String, bool, oneshot::Sender<()>),
}

/// The screen; it updates until it is dropped.
pub struct Screen {
    messages: mpsc::UnboundedSender<Message>,
    task: JoinHandle<()>,
}

impl Screen {
    /// A live view on a terminal, plain lines elsewhere.
    pub fn new(client: Client) -> Self {
        let (messages, inbox) = mpsc::unbounded_channel();
        let live =
            std::io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let task = tokio::spawn(Projector { client, live, drawn: 0, playing: false }.run(inbox));
        Self { messages, task }
    }

    /// Starts a story.
    pub async fn story(&self, title: &str) {
        let (done, drawn) = oneshot::channel();
        self.send(Message::Story(title.to_owned(), done));
        // An error means that the projector has ended, which happens only when this value is dropped.
        let _ = drawn.await;
    }

    /// Prints a line of the story.
    pub fn say(&self, line: String) {
        self.send(Message::Say(line));
    }

    /// Ends a story; returns when its last view has been drawn.
    pub async fn verdict(&self, verdict: &str, passed: bool) {
        let (done, drawn) = oneshot::channel();
        self.send(Message::Verdict(verdict.to_owned(), passed, done));
        let _ = drawn.await;
    }

    fn send(&self, message: Message) {
        let _ = self.messages.send(message);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Projector {
    client: Client,
    live: bool,
    /// Number of lines of the view on the screen, which the next view overwrites.
    drawn: usize,
    /// Whether a story is playing.
    playing: bool,
}

impl Projector {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Message>) {
        let mut frames = tokio::time::interval(FRAME);
        frames.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = inbox.recv() => match message {
                    Some(message) => self.take(message).await,
                    None => return,
                },
                _ = frames.tick(), if self.live && self.playing => self.draw(None).await,
            }
        }
    }

    async fn take(&mut self, message: Message) {
        match message {
            Message::Story(title, done) => {
                self.playing = true;
                println!("\n{}", board::bold(&format!("--- {title} ---"), self.live));
                let _ = done.send(());
            }
            Message::Say(line) if self.live => self.draw(Some(line)).await,
            Message::Say(line) => {
                println!("  {line}");
                match Board::take(&self.client).await.map(|board| board.line()) {
                    Ok(line) if !line.is_empty() => println!("    {line}"),
                    _ => {}
                }
            }
            Message::Verdict(verdict, passed, done) => {
                if self.live {
                    self.draw(None).await;
                }
                // The last view stays.
                self.playing = false;
                self.drawn = 0;
                println!("  {}", board::verdict(&verdict, passed, self.live));
                let _ = done.send(());
            }
        }
    }

    /// Draws the view over the last one; a line of the story stays above it.
    async fn draw(&mut self, line: Option<String>) {
        // A failed read is repeated for the next frame; the story itself reports errors.
        let view = match Board::take(&self.client).await {
            Ok(board) => board.lines(),
            Err(_) if line.is_none() => return,
            Err(_) => Vec::new(),
        };
        let mut frame = String::new();
        if self.drawn > 0 {
            frame.push_str(&format!("\x1b[{}A", self.drawn));
        }
        // Wrapped lines would break the count of lines.
        frame.push_str("\r\x1b[?7l");
        let said = line.map(|line| format!("  {line}"));
        for line in said.iter().chain(&view) {
            frame.push_str(line);
            frame.push_str("\x1b[K\n");
        }
        frame.push_str("\x1b[J\x1b[?7h");
        self.drawn = view.len();
        let mut out = std::io::stdout().lock();
        // A closed standard output is no error.
        let _ = out.write_all(frame.as_bytes()).and_then(|()| out.flush());
    }
}
