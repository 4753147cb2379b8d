//! Where the gateway is, and the token for it.

use std::path::Path;

use crate::cli::admin::{AdminClient, TokenVariables};
use crate::cli::admin_tls::AdminTlsArguments;
use crate::config;

/// The variable that holds the token for `--url`.
const TOKEN_VARIABLE: &str = "TOLLGATE_ADMIN_TOKEN";

/// The admin listener of one gateway.
pub(super) struct AdminTarget {
    pub(super) client: AdminClient,
    /// The value of the header `authorization`, if a token is known.
    pub(super) authorization: Option<String>,
}

impl AdminTarget {
    /// Those at `urls`, else the one that `file` names. At least one. The error is for users.
    pub(super) fn find_all(
        file: &Path,
        urls: &[String],
        tls: &AdminTlsArguments,
    ) -> Result<Vec<Self>, String> {
        match urls {
            [] => Ok(vec![Self::find(file, None, tls)?]),
            urls => urls.iter().map(|url| Self::find(file, Some(url), tls)).collect(),
        }
    }

    /// Its address, as it is shown.
    pub(super) fn address(&self) -> String {
        self.client.address.to_string()
    }

    /// The one at `url`, else the one that `file` names. With a URL the file need not be there or be good. The error is
    /// for users.
    fn find(file: &Path, url: Option<&str>, tls: &AdminTlsArguments) -> Result<Self, String> {
        let Some(url) = url else {
            let client = AdminClient::named_in(file, tls)?;
            let authorization = client.authorization()?;
            return Ok(Self { client, authorization });
        };
        Ok(Self { client: AdminClient::at_url(url, tls)?, authorization: authorization(file) })
    }
}

/// The token for `--url`: of its own variable, else as the file says, if there is a file with `[admin]`.
fn authorization(file: &Path) -> Option<String> {
    let token = std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
    if let Some(token) = token {
        return Some(format!("Bearer {token}"));
    }
    // Standard input has no file to look at, and would be waited for.
    if config::is_standard_input(file) || !file.exists() {
        return None;
    }
    let table = config::peek(file).ok()?;
    TokenVariables::of(&table).authorization().ok()?
}
