//! PostgreSQL, over one connection.

use std::error::Error;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use futures::TryStreamExt as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::runtime::Runtime;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::database::{Database, StoreError};
use super::location::Server;
use super::value::{Row, Value};

/// The time limit to connect.
const CONNECT: Duration = Duration::from_secs(5);
/// The time limit of one statement, unless it may take as long as it needs.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long a connection is silent before the server is asked whether it is still there, and the pause between such questions:
/// a statement without a time limit must end with its server.
const SILENCE: Duration = Duration::from_secs(15);
/// The unanswered questions after which a connection is lost.
const UNANSWERED: u32 = 4;
/// Prepared statements that are kept.
const STATEMENTS: usize = 64;
/// What a connection that only reads asks for. The statements of reports have a branch for each period, and to compile them takes longer than
/// to interpret them. With the memory of the default a report of many groups is sorted on disk; two reports at most are made at once.
const FOR_REPORTS: &str = "SET jit = off; SET work_mem = '32MB'";
/// The lock that writers take, so that they write one after the other.
const LOCK: i64 = 0x5105_ce00;

/// A connection.
pub struct Postgres {
    runtime: Runtime,
    client: Client,
    statements: Vec<(String, Statement)>,
    limit: Option<Duration>,
}

impl Postgres {
    /// Connects, to read alone or also to write.
    pub fn connect(server: &Server, reads: bool) -> Result<Self, StoreError> {
        let mut config = server.config.clone();
        config.connect_timeout(CONNECT).application_name("sluice").keepalives(true);
        config.keepalives_idle(SILENCE).keepalives_interval(SILENCE).keepalives_retries(UNANSWERED);
        config.tcp_user_timeout(DEADLINE);
        if let Some(file) = &server.password_file {
            config.password(password(file)?);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let tls = MakeRustlsConnect::new(tls(server.authorities.as_deref())?);
        let client = runtime.block_on(async {
            let (client, connection) = limited(Some(CONNECT * 2), config.connect(tls)).await?;
            // It ends with the client.
            tokio::spawn(async move { drop(connection.await) });
            Ok::<_, StoreError>(client)
        })?;
        let mut connected = Self { runtime, client, statements: Vec::new(), limit: Some(DEADLINE) };
        if reads {
            connected.script(FOR_REPORTS)?;
        }
        Ok(connected)
    }

    fn prepared(&mut self, sql: &str) -> Result<Statement, StoreError> {
        if let Some((_, statement)) = self.statements.iter().find(|(text, _)| text == sql) {
            return Ok(statement.clone());
        }
        let dialect = sql.replace('?', "$");
        let statement = self.runtime.block_on(limited(self.limit, self.client.prepare(&dialect)))?;
        if self.statements.len() >= STATEMENTS {
            self.statements.clear();
        }
        self.statements.push((sql.to_owned(), statement.clone()));
        Ok(statement)
    }
}

impl Database for Postgres {
    fn unhurried(&mut self, begins: bool) -> Result<(), StoreError> {
        self.limit = if begins { None } else { Some(DEADLINE) };
        // The server may have limits of its own.
        self.script(match begins {
            true => "SET statement_timeout = 0; SET lock_timeout = 0",
            false => "RESET statement_timeout; RESET lock_timeout",
        })
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        self.script(&format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK})"))
    }

    fn script(&mut self, sql: &str) -> Result<(), StoreError> {
        self.runtime.block_on(limited(self.limit, self.client.batch_execute(sql)))
    }

    fn run(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        let statement = self.prepared(sql)?;
        self.runtime.block_on(limited(self.limit, self.client.execute(&statement, &borrowed(values))))
    }

    fn each(&mut self, sql: &str, values: &[Value], found: &mut dyn FnMut(Row)) -> Result<(), StoreError> {
        let statement = self.prepared(sql)?;
        let mut unreadable = None;
        let read = async {
            let mut rows = std::pin::pin!(self.client.query_raw(&statement, borrowed(values)).await?);
            while let Some(next) = rows.try_next().await? {
                match row(&next) {
                    Ok(row) => found(row),
                    Err(error) => unreadable = Some(error),
                }
            }
            Ok(())
        };
        self.runtime.block_on(limited(self.limit, read))?;
        unreadable.map_or(Ok(()), Err)
    }
}

fn borrowed(values: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

fn row(row: &tokio_postgres::Row) -> Result<Row, StoreError> {
    let value = |at: usize, type_: &Type| {
        let text = || row.try_get::<_, Option<String>>(at).map(|text| text.map_or(Value::Null, Value::Text));
        let value = match *type_ {
            Type::INT8 => row.try_get::<_, Option<i64>>(at).map(Value::from),
            Type::INT4 => row.try_get::<_, Option<i32>>(at).map(|number| Value::from(number.map(i64::from))),
            Type::BOOL => row.try_get::<_, Option<bool>>(at).map(|flag| Value::from(flag.map(i64::from))),
            Type::FLOAT8 => {
                row.try_get::<_, Option<f64>>(at).map(|number| number.map_or(Value::Null, Value::Real))
            }
            _ => text(),
        };
        value.map_err(|error| StoreError::Refused(format!("column {}: {error}", at + 1)))
    };
    row.columns().iter().enumerate().map(|(at, column)| value(at, column.type_())).collect()
}

impl ToSql for Value {
    fn to_sql(&self, type_: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match (self, type_) {
            (Self::Null, _) => Ok(IsNull::Yes),
            (Self::Int(number), &Type::INT4) => i32::try_from(*number)?.to_sql(type_, out),
            (Self::Int(number), _) => number.to_sql(type_, out),
            (Self::Real(number), _) => number.to_sql(type_, out),
            (Self::Text(text), _) => text.to_sql(type_, out),
        }
    }

    fn accepts(type_: &Type) -> bool {
        <i64 as ToSql>::accepts(type_)
            || <i32 as ToSql>::accepts(type_)
            || <f64 as ToSql>::accepts(type_)
            || <String as ToSql>::accepts(type_)
    }

    to_sql_checked!();
}

/// The password in a file, without the line break at its end. It is read for each connection, so it may be replaced.
fn password(file: &Path) -> Result<String, StoreError> {
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| StoreError::Unavailable(format!("{}: {error}", file.display())))?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

fn tls(authorities: Option<&Path>) -> Result<ClientConfig, StoreError> {
    let unusable = |problem: String| StoreError::Unavailable(format!("--history-ca: {problem}"));
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(file) = authorities {
        for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unusable(error.to_string()))? {
            let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
            roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
        }
    }
    let provider = rustls::crypto::ring::default_provider();
    let config = ClientConfig::builder_with_provider(provider.into()).with_safe_default_protocol_versions();
    let config = config.map_err(|error| unusable(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

async fn limited<T>(
    limit: Option<Duration>,
    work: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, StoreError> {
    let Some(limit) = limit else { return work.await.map_err(|error| told(&error)) };
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done.map_err(|error| told(&error)),
        Err(_) => Err(StoreError::Unavailable(format!("no answer within {} s", limit.as_secs()))),
    }
}

/// An error without values or parameters. Data that the server refuses is refused again when it is sent again.
fn told(error: &tokio_postgres::Error) -> StoreError {
    let Some(of_server) = error.as_db_error() else {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        return StoreError::Unavailable(format!("{error}{cause}"));
    };
    let code = of_server.code().code();
    let message = format!("{} ({code})", of_server.message());
    // Data exceptions, integrity violations, limits of the program.
    if ["22", "23", "54"].iter().any(|class| code.starts_with(class)) {
        StoreError::Refused(message)
    } else {
        StoreError::Unavailable(message)
    }
}
