//! Which store a command uses: a DynamoDB table, or a file of this machine.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use clap::Args;
use firstclaim::aws::{Patience, loopback_config, sdk_config};
use firstclaim::clock::Source;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Claims, Config};

use super::said::Said;
use super::{Error, FileOrTable, SOURCE, file, sweep};
use crate::escape::{Escaped, Quoted};
use crate::private;

/// The table's name where only an endpoint is given, and the one in a file.
pub const TABLE: &str = "firstclaim";

/// The file below the data folder. `firstclaim dev` has its own data folder, with the same file.
pub const FILE: &str = "claims.sqlite";

/// A variable that names the table.
pub const TABLE_VARIABLE: &str = "FIRSTCLAIM_TABLE";

/// A variable that names the endpoint.
pub const ENDPOINT_VARIABLE: &str = "FIRSTCLAIM_ENDPOINT";

/// A variable that names the data folder.
pub const DATA_VARIABLE: &str = "FIRSTCLAIM_DATA";

/// Where claims are, and how much is said. The same for every command.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[group(skip)]
pub struct Options {
    /// Use this DynamoDB table [env: FIRSTCLAIM_TABLE]
    #[arg(
        long,
        value_name = "TABLE",
        help_heading = "Store",
        conflicts_with = "data"
    )]
    pub table: Option<String>,
    /// Use the DynamoDB at this URL [env: FIRSTCLAIM_ENDPOINT]
    #[arg(
        long,
        value_name = "URL",
        help_heading = "Store",
        conflicts_with = "data"
    )]
    pub endpoint: Option<String>,
    /// Use a file in this folder [env: FIRSTCLAIM_DATA] [default: $XDG_STATE_HOME/firstclaim]
    #[arg(long, value_name = "DIR", help_heading = "Store")]
    pub data: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Say on stderr only what must be known
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

/// What to do where a file is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Make,
    Tell,
}

/// A store's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file in this folder.
    File(PathBuf),
    /// A table of a DynamoDB.
    Table {
        /// Its name.
        table: String,
        /// Where it is, if not where the AWS settings say.
        endpoint: Option<String>,
    },
}

impl Place {
    /// The variables that bring another process of this program to the same store; `None` where
    /// one must not be set.
    #[must_use]
    pub fn variables(&self) -> [(&'static str, Option<String>); 3] {
        let (table, endpoint, data) = match self {
            Self::File(folder) => (None, None, Some(folder.to_string_lossy().into_owned())),
            Self::Table { table, endpoint } => (Some(table.clone()), endpoint.clone(), None),
        };
        [
            (TABLE_VARIABLE, table),
            (ENDPOINT_VARIABLE, endpoint),
            (DATA_VARIABLE, data),
        ]
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(folder) => {
                write!(f, "{}", Escaped(&folder.join(FILE).to_string_lossy()))
            }
            Self::Table { table, endpoint } => {
                write!(f, "table {}", Escaped(table))?;
                match endpoint {
                    Some(endpoint) => write!(f, " at {}", Escaped(endpoint)),
                    None => Ok(()),
                }
            }
        }
    }
}

impl Options {
    /// The store's place: from the options first, then from the variables, else the default file.
    ///
    /// # Errors
    ///
    /// An endpoint that is none, or no folder where the default file could be.
    pub fn place(&self, environment: impl Fn(&str) -> Option<String>) -> Result<Place, Error> {
        let set = |name: &str| environment(name).filter(|value| !value.is_empty());
        if let Some(data) = &self.data {
            return absolute(data);
        }
        let table = self.table.clone().or_else(|| set(TABLE_VARIABLE));
        let endpoint = self.endpoint.clone().or_else(|| set(ENDPOINT_VARIABLE));
        if table.is_some() || endpoint.is_some() {
            let endpoint = endpoint.map(|url| normalised(&url)).transpose()?;
            let table = table.unwrap_or_else(|| TABLE.to_owned());
            return Ok(Place::Table { table, endpoint });
        }
        if let Some(data) = set(DATA_VARIABLE) {
            return absolute(Path::new(&data));
        }
        match default_folder(environment) {
            Some(folder) => Ok(Place::File(folder)),
            None => Err(Error::Usage(
                "neither XDG_STATE_HOME nor HOME is set; give --data DIR or --table TABLE"
                    .to_owned(),
            )),
        }
    }

    /// The claims in the store, with this configuration; says which store it is. A file must be there
    /// already: nothing is made for one who only looks, at a place that may be mistyped.
    pub(super) async fn open(
        &self,
        config: Config,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<(FileOrTable, Place), Error> {
        let (client, place) = self.connect(environment, Missing::Tell).await?;
        Ok((claims(client, &place, config)?, place))
    }

    /// The same, and a file that is missing is made.
    pub(super) async fn open_or_make(
        &self,
        config: Config,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<(FileOrTable, Place), Error> {
        let (client, place) = self.connect(environment, Missing::Make).await?;
        Ok((claims(client, &place, config)?, place))
    }

    /// The same for a command that claims: before it does, some of what is over leaves the file.
    pub(super) async fn open_to_claim(
        &self,
        config: Config,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<(FileOrTable, Place), Error> {
        let (client, place) = self.connect(environment, Missing::Make).await?;
        if let Place::File(folder) = &place {
            sweep::sweep(&client, folder, SOURCE.now()).await;
        }
        Ok((claims(client, &place, config)?, place))
    }

    async fn connect(
        &self,
        environment: impl Fn(&str) -> Option<String>,
        missing: Missing,
    ) -> Result<(Client, Place), Error> {
        let place = match self.place(environment)? {
            Place::File(folder) => Place::File(real(&folder, missing)?),
            table => table,
        };
        self.said().note(&format!("using {place}"));
        let client = match &place {
            Place::File(folder) => open_in(folder, missing).await?,
            Place::Table { endpoint, .. } => open_table(endpoint.as_deref()).await,
        };
        Ok((client, place))
    }

    /// What of these options brings another command to this store, `place`: as words of a shell, each
    /// behind a space. The environment brings the rest.
    pub(super) fn pasted(&self, place: &Place) -> String {
        let mut text = String::new();
        let mut option = |name: &str, value: &str| {
            text.push_str(&format!(" {name}={}", Quoted(value)));
        };
        match place {
            Place::File(folder) if self.data.is_some() => {
                option("--data", &folder.to_string_lossy());
            }
            Place::File(_) => {}
            Place::Table { table, endpoint } => {
                if self.table.is_some() {
                    option("--table", table);
                }
                if let (Some(_), Some(endpoint)) = (&self.endpoint, endpoint) {
                    option("--endpoint", endpoint);
                }
            }
        }
        text
    }

    pub(super) fn said(&self) -> Said {
        Said::new(self.quiet)
    }
}

fn claims(client: Client, place: &Place, config: Config) -> Result<FileOrTable, Error> {
    let table = match place {
        Place::File(_) => TABLE,
        Place::Table { table, .. } => table,
    };
    Ok(Claims::new(DynamoDb::new(client, table), config)?)
}

/// The folder of what is kept between runs, where none is named; `None` where there is no home.
pub(crate) fn default_folder(environment: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let absolute_path = |name: &str| {
        environment(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state = absolute_path("XDG_STATE_HOME")
        .or_else(|| absolute_path("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("firstclaim"))
}

/// The folder by the one name that it has, whatever links and dots lead to it: what an earlier attempt
/// left behind is known by it.
fn real(folder: &Path, missing: Missing) -> Result<PathBuf, Error> {
    let failed = |source| Error::Folder {
        folder: Escaped(&folder.to_string_lossy()).to_string(),
        source,
    };
    match missing {
        Missing::Make => private::make_folder(folder).map_err(failed)?,
        Missing::Tell => {
            let file = folder.join(FILE);
            // One that can't be looked at for another reason is no missing one.
            if matches!(file.try_exists(), Ok(false)) {
                return Err(Error::NoStore {
                    file: Escaped(&file.to_string_lossy()).to_string(),
                });
            }
        }
    }
    let real = folder.canonicalize().map_err(failed)?;
    match real.to_str() {
        Some(_) => Ok(real),
        None => Err(Error::Usage(format!(
            "{} has a name that is no UTF-8, which can't be handed on; choose another folder",
            Escaped(&real.to_string_lossy())
        ))),
    }
}

fn absolute(folder: &Path) -> Result<Place, Error> {
    match std::path::absolute(folder) {
        Ok(folder) => Ok(Place::File(folder)),
        Err(source) => Err(Error::Folder {
            folder: Escaped(&folder.to_string_lossy()).to_string(),
            source,
        }),
    }
}

/// An endpoint in the one form that it is compared in: scheme and host in lower case, without the
/// scheme's own port, and without a slash at its end.
fn normalised(endpoint: &str) -> Result<String, Error> {
    let url = reqwest::Url::parse(endpoint).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    match url {
        Some(url) => Ok(url.as_str().trim_end_matches('/').to_owned()),
        None => Err(Error::Usage(format!(
            "{} is no URL of a DynamoDB; give a whole one, http://… or https://…",
            Escaped(endpoint)
        ))),
    }
}

/// A client of the DynamoDB in the file of this folder; both are made where they are missing. Its
/// table is [`TABLE`].
///
/// # Errors
///
/// The folder or the file can't be used.
pub async fn open_file(folder: &Path) -> Result<Client, Error> {
    private::make_folder(folder).map_err(|source| Error::Folder {
        folder: Escaped(&folder.to_string_lossy()).to_string(),
        source,
    })?;
    open_in(folder, Missing::Make).await
}

async fn open_in(folder: &Path, missing: Missing) -> Result<Client, Error> {
    let path = folder.join(FILE);
    // A file is waited for while another process writes to it.
    let patience = Patience {
        attempts: 3,
        attempt: Duration::from_secs(10),
        total: Duration::from_secs(20),
    };
    file::client(&path, TABLE, missing, patience)
        .await
        .map_err(|source| Error::File {
            file: Escaped(&path.to_string_lossy()).to_string(),
            source,
        })
}

async fn open_table(endpoint: Option<&str>) -> Client {
    // A person or a script waits longer than a sender does.
    let patience = Patience {
        attempts: 4,
        attempt: Duration::from_secs(2),
        total: Duration::from_secs(8),
    };
    let config = match endpoint {
        Some(endpoint) if crate::dev::is_loopback(endpoint) => {
            loopback_config(endpoint, patience).await
        }
        Some(endpoint) => {
            let config = sdk_config(patience).await;
            config.into_builder().endpoint_url(endpoint).build()
        }
        None => sdk_config(patience).await,
    };
    Client::new(&config)
}

#[cfg(test)]
mod tests;
