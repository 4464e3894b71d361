//! What the audience sees: what is being told, over a live picture of the cluster.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use kube::Client;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::board::{self, Board};

/// How often the picture is drawn anew.
const FRAME: Duration = Duration::from_millis(400);

enum Message {
    Story(String, oneshot::Sender<()>),
    Say(String),
    Verdict(String, bool, oneshot::Sender<()>),
}

/// The screen; it draws by itself until it is dropped.
pub struct Screen {
    messages: mpsc::UnboundedSender<Message>,
    task: JoinHandle<()>,
}

impl Screen {
    /// A live picture on a terminal, plain lines anywhere else.
    pub fn new(client: Client) -> Self {
        let (messages, inbox) = mpsc::unbounded_channel();
        let live =
            std::io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let task = tokio::spawn(Projector { client, live, drawn: 0, playing: false }.run(inbox));
        Self { messages, task }
    }

    /// Begins a story.
    pub async fn story(&self, title: &str) {
        let (done, drawn) = oneshot::channel();
        self.send(Message::Story(title.to_owned(), done));
        // An error means that the projector has ended, which only happens when this value is dropped.
        let _ = drawn.await;
    }

    /// Tells what happens.
    pub fn say(&self, told: String) {
        self.send(Message::Say(told));
    }

    /// Ends a story; returns when the last picture of it has been drawn.
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
    /// How many lines of the picture are on the screen, to be drawn over.
    drawn: usize,
    /// Whether a story is under way.
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
            Message::Say(told) if self.live => self.draw(Some(told)).await,
            Message::Say(told) => {
                println!("  {told}");
                match Board::take(&self.client).await.map(|board| board.line()) {
                    Ok(line) if !line.is_empty() => println!("    {line}"),
                    _ => {}
                }
            }
            Message::Verdict(verdict, passed, done) => {
                if self.live {
                    self.draw(None).await;
                }
                // The last picture stays.
                self.playing = false;
                self.drawn = 0;
                println!("  {}", board::verdict(&verdict, passed, self.live));
                let _ = done.send(());
            }
        }
    }

    /// Draws the picture over the last one; what is told stays above it for good.
    async fn draw(&mut self, told: Option<String>) {
        // A picture that cannot be had now is drawn a moment later; the story itself notices real trouble.
        let picture = match Board::take(&self.client).await {
            Ok(board) => board.picture(),
            Err(_) if told.is_none() => return,
            Err(_) => Vec::new(),
        };
        let mut frame = String::new();
        if self.drawn > 0 {
            frame.push_str(&format!("\x1b[{}A", self.drawn));
        }
        // Lines that wrapped would be more lines than counted.
        frame.push_str("\r\x1b[?7l");
        let told = told.map(|told| format!("  {told}"));
        for line in told.iter().chain(&picture) {
            frame.push_str(line);
            frame.push_str("\x1b[K\n");
        }
        frame.push_str("\x1b[J\x1b[?7h");
        self.drawn = picture.len();
        let mut out = std::io::stdout().lock();
        // Nobody is left to tell when standard output is gone.
        let _ = out.write_all(frame.as_bytes()).and_then(|()| out.flush());
    }
}
