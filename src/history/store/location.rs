//! Where the history is kept.

use std::error::Error as _;
use std::fmt;
use std::path::PathBuf;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// Where the history is kept.
#[derive(Clone, Debug)]
pub enum Location {
    /// In a file of SQLite.
    File(PathBuf),
    /// In a database of PostgreSQL.
    Server(Box<Server>),
}

/// A database of PostgreSQL.
#[derive(Clone)]
pub struct Server {
    /// The connection.
    pub config: Config,
    /// The file with the password.
    pub password_file: Option<PathBuf>,
    /// The file with further authorities.
    pub authorities: Option<PathBuf>,
}

impl Location {
    /// Reads a file name or the URL of a server.
    ///
    /// # Errors
    /// The problem, without the URL.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !["postgres:", "postgresql:"].iter().any(|scheme| text.starts_with(scheme)) {
            return match text.contains("://") {
                true => Err("neither a file nor a postgres:// URL".to_owned()),
                false => Ok(Self::File(text.into())),
            };
        }
        let config = server(text)?;
        Ok(Self::Server(Box::new(Server { config, password_file: None, authorities: None })))
    }

    /// The same with the password of a server in a file, and with further certificate authorities.
    #[must_use]
    pub fn with(self, password_file: Option<PathBuf>, authorities: Option<PathBuf>) -> Self {
        match self {
            Self::Server(server) => Self::Server(Box::new(Server { password_file, authorities, ..*server })),
            file @ Self::File(_) => file,
        }
    }
}

/// Without user and password.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Server(server) => {
                let host = server.config.get_hosts().first().map(|host| match host {
                    Host::Tcp(name) => name.clone(),
                    Host::Unix(path) => path.display().to_string(),
                });
                let host = host.unwrap_or_else(|| "localhost".to_owned());
                let port =
                    server.config.get_ports().first().map(|port| format!(":{port}")).unwrap_or_default();
                write!(f, "postgres://{host}{port}/{}", server.config.get_dbname().unwrap_or_default())
            }
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

/// Reads the URL of a server.
///
/// # Errors
/// The problem, without the URL, which may hold a password.
fn server(url: &str) -> Result<Config, String> {
    url.parse::<Config>().map_err(|error| {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("not a URL of PostgreSQL ({error}{cause})")
    })
}
